"""Tables of runs as Markdown and LaTeX, and significance over users."""

import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from mgformer.errors import DataError
from mgformer.experiments.paper_rows import Figures
from mgformer.experiments.summary import Summary, summarize
from mgformer.files import make_folder, write_text
from mgformer.ranking.evaluation import GROUPS
from mgformer.ranking.metrics import SELECTION_METRICS
from mgformer.ranking.significance import PairedTest, paired_test
from mgformer.runs.folder import Run

LEVEL = 0.05
NOTHING = "–"
RECALL, NDCG = SELECTION_METRICS

EMPHASIS = {0: r"\textbf", 1: r"\underline"}
RANKED = ("Recall@20", "NDCG@20", "valid NDCG@20", "validation NDCG@20")
"""Columns of figures where more is better."""
SPECIAL = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%_#$"}
    | {"±": r"$\pm$", "*": "$^{*}$", "–": "--", "<": "$<$", "~": r"\textasciitilde{}"}
    | {"“": "``", "”": "''"}
)

Tests = Mapping[str, PairedTest]
"""metric@k → test."""


class Table(NamedTuple):
    """Cells of text; the first column names the rows."""

    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the table as Markdown, with figures to the right."""
        rule = ["---", *("---:" for _ in self.columns[1:])]
        lines = [self.columns, rule, *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self, ranked: Collection[str] = (), note: str = "") -> str:
        """Return the table as LaTeX for the package booktabs, with figures to the right.

        In the columns in `ranked`, the largest figure is bold and the second is underlined. The
        note stands below the table.
        """
        places = [self._places(column) for column in self.columns]
        head = " & ".join(map(_tex, self.columns))
        body = [
            " & ".join(
                _emphasized(_tex(cell), where.get(number)) if column in ranked else _tex(cell)
                for column, cell, where in zip(self.columns, row, places, strict=True)
            )
            for number, row in enumerate(self.rows)
        ]
        lines = [
            "% needs \\usepackage{booktabs}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            *(rf"{row} \\" for row in body),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        if note:
            lines.append(rf"\par\smallskip{{\footnotesize {_tex(note)}\par}}")
        return "\n".join([*lines, ""])

    def _places(self, column: str) -> dict[int, int]:
        """Return the place of each row by its figure, the largest at 0; equals share a place."""
        texts = (row[self.columns.index(column)] for row in self.rows)
        found = {n: float(m[0]) for n, t in enumerate(texts) if (m := re.match(r"-?\d+\.\d+", t))}
        order = sorted({*found.values()}, reverse=True)
        return {number: order.index(value) for number, value in found.items()}

    def write(
        self, path: Path, document: str, csv: str, ranked: Collection[str] = (), note: str = ""
    ) -> None:
        """Write the document that holds the table, and beside it the table as .tex and .csv."""
        make_folder(path.parent)
        tex = self.latex(ranked, note)
        for suffix, text in {path.suffix: document, ".tex": tex, ".csv": csv}.items():
            write_text(path.with_suffix(suffix), text)


def _emphasized(text: str, place: int | None) -> str:
    command = EMPHASIS.get(place) if place is not None else None
    return f"{command}{{{text}}}" if command else text


def _tex(text: str) -> str:
    """Return text as LaTeX shows it."""
    return text.translate(SPECIAL)


def table_of(rows: Sequence[Mapping[str, str]]) -> Table:
    """Return a table of rows that map each column to its cell."""
    return Table([*rows[0]], [[*row.values()] for row in rows])


def p_text(p_value: float) -> str:
    """Return a p-value as text; one too small for a float is not zero."""
    return f"{p_value:.2g}" if p_value else "< 1e-300"


def paired_tests(
    ours: Sequence[pl.DataFrame],
    theirs: Sequence[pl.DataFrame],
    metrics: Sequence[str] = SELECTION_METRICS,
) -> dict[str, PairedTest]:
    """Compare two models over users, given their figures per user for each seed.

    The figures of a user are averaged over the seeds first, so that each user counts once: what one
    user does in several splits is not independent.
    """
    for mine, other in zip(ours, theirs, strict=True):
        if not mine["user"].equals(other["user"]):
            raise DataError("the runs were tested on different users; train them on one split")
    means = [
        pl.concat([table.select("user", *metrics) for table in side])
        .group_by("user", maintain_order=True)
        .mean()
        for side in (ours, theirs)
    ]
    return {name: paired_test(*(side[name].to_numpy() for side in means)) for name in metrics}


def row_tests(
    runs: Mapping[str, Sequence[Run]], against: Mapping[str, str]
) -> dict[str, dict[str, PairedTest]]:
    """Test rows over users `against` others, for the seeds that both rows have."""
    tests = {}
    for name, other in against.items():
        theirs = {run.record.seed: run for run in runs.get(other, ())}
        ours = [run for run in runs.get(name, ()) if run.record.seed in theirs]
        if ours and name != other:
            tests[name] = paired_tests(
                [run.per_user for run in ours], [theirs[run.record.seed].per_user for run in ours]
            )
    return tests


def significance_json(tests: Tests) -> dict[str, Any]:
    """Return tests as plain values."""
    metrics = {
        name: {"difference": test.difference, "p_value": test.p_value}
        for name, test in tests.items()
    }
    return {"users": next(iter(tests.values())).num_users, "metrics": metrics}


def runs_csv(runs: Mapping[str, Sequence[Run]]) -> str:
    """Return the figures of every run as CSV: one line per run, nothing rounded."""
    lines = []
    for name, record in ((name, run.record) for name, own in runs.items() for run in own):
        parts = {"test": record.test, "valid": record.valid, "seconds": record.seconds}
        lines.append(
            {
                "name": name,
                "dataset": record.dataset,
                "seed": record.seed,
                "epochs": record.epochs,
                **{f"{part} {key}": v for part, own in parts.items() for key, v in own.items()},
                "peak_mb": record.peak_mb,
            }
        )
    return pl.DataFrame(lines, infer_schema_length=None).write_csv()


def comparison_table(runs: Mapping[str, Sequence[Run]], tests: Mapping[str, Tests]) -> Table:
    """Return a row for each name: figures, p-values of tests against the best, and costs."""
    rows = []
    for name, own in runs.items():
        row, found = summarize([run.record for run in own]), tests.get(name, {})
        differs = [m for m, test in found.items() if test.p_value < LEVEL / len(tests)]
        epochs = [seconds for run in own if (seconds := run.seconds_per_epoch) is not None]
        peaks = [peak for run in own if (peak := run.record.peak_mb) is not None]
        rows.append(
            {
                "model": name,
                "Recall@20": f"{row.test[RECALL]}{'*' if RECALL in differs else ''}",
                "NDCG@20": f"{row.test[NDCG]}{'*' if NDCG in differs else ''}",
                "p": p_text(found[NDCG].p_value) if found else NOTHING,
                "valid NDCG@20": str(row.valid[NDCG]),
                "s/epoch": f"{statistics.fmean(epochs):.2f}" if epochs else NOTHING,
                "s to best": f"{statistics.fmean(run.seconds_to_best for run in own):.1f}",
                "peak MB": str(max(peaks)) if peaks else NOTHING,
            }
        )
    return table_of(rows)


def explanation(best: str, num_seeds: int, tests: Mapping[str, Tests]) -> str:
    """Say what the columns of a comparison mean."""
    seeds = f"Mean ± deviation over {num_seeds} seeds. " if num_seeds > 1 else ""
    costs = (
        "s/epoch is training only; s to best includes preparation and validation; peak MB is the"
        " whole process."
    )
    if not tests:
        return f"{seeds}{costs}"
    users = next(iter(tests.values()))[NDCG].num_users
    among = f" ({LEVEL:g} shared among {len(tests)} tests)" if len(tests) > 1 else ""
    return (
        f"{seeds}p: two-sided paired t-test of NDCG@20 over {users} users against {best}, the best"
        f" by validation NDCG@20; * differs from it, p < {LEVEL / len(tests):.2g}{among}. {costs}"
    )


def quality_table(
    rows: Mapping[str, Summary],
    published: Mapping[str, Figures | None],
    p_values: Mapping[str, float],
    *,
    marked: bool = False,
) -> Table:
    """Return our figures beside those of the paper, and the p-values of rows that were tested.

    With `marked`, rows that differ get a star: p below the level, shared among all tests.
    """
    differing = {name for name, p in p_values.items() if p < LEVEL / len(p_values)}
    return table_of(
        [
            {
                "": name,
                "paper Recall@20 / NDCG@20": published_text(published.get(name)),
                "Recall@20": str(row.test[RECALL]),
                "NDCG@20": f"{row.test[NDCG]}{'*' if marked and name in differing else ''}",
                "ratio": ratio_text(row, published.get(name)),
                "p (NDCG@20)": p_text(p_values[name]) if name in p_values else NOTHING,
                "validation NDCG@20": str(row.valid[NDCG]),
                "seeds": ", ".join(map(str, row.seeds)),
                "epochs": ", ".join(str(epochs or NOTHING) for epochs in row.epochs),
                "minutes": NOTHING if row.minutes is None else f"{row.minutes:.1f}",
            }
            for name, row in rows.items()
        ]
    )


def published_text(figures: Figures | None) -> str:
    """Return published figures as text."""
    return f"{figures.recall:.4f} / {figures.ndcg:.4f}" if figures else NOTHING


def ratio_text(row: Summary, theirs: Figures | None) -> str:
    """Return our Recall@20 and NDCG@20 as shares of the published ones."""
    if theirs is None:
        return NOTHING
    ratios = [row.test[RECALL].mean / theirs.recall, row.test[NDCG].mean / theirs.ndcg]
    return " / ".join(f"{ratio:.3f}" for ratio in row.ratio or ratios)


def group_table(rows: Mapping[str, Summary]) -> Table:
    """Return what items of each popularity group contribute to Recall@20."""
    lines = [
        [name, *(str(row.groups[group][RECALL]) for group in GROUPS)]
        for name, row in rows.items()
        if row.groups
    ]
    return Table(["Recall@20", *(f"{group} items" for group in GROUPS)], lines)
