"""Tables of runs as Markdown and LaTeX, and significance over users."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from mgformer.errors import DataError
from mgformer.experiments import paper
from mgformer.experiments.summary import Summary, figure
from mgformer.experiments.timing import EpochTime
from mgformer.ranking.evaluation import GROUPS
from mgformer.ranking.metrics import SELECTION_METRIC, SELECTION_METRICS
from mgformer.ranking.significance import PairedTest, paired_test
from mgformer.runs.folder import Run

LEVEL = 0.05
NOTHING = "–"

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

    def latex(self) -> str:
        """Return the table as LaTeX, with figures to the right."""
        lines = [" & ".join(map(_escaped, line)) + r" \\" for line in (self.columns, *self.rows)]
        head, *body = lines
        columns = "l" + "r" * (len(self.columns) - 1)
        begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
        return "\n".join([begin, r"\hline", head, r"\hline", *body, r"\hline", end, ""])


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


def significance_json(tests: Tests) -> dict[str, Any]:
    """Return tests as plain values."""
    return {
        "users": next(iter(tests.values())).num_users,
        "metrics": {
            name: {"difference": test.difference, "p_value": test.p_value}
            for name, test in tests.items()
        },
    }


def runs_csv(runs: Mapping[str, Sequence[Run]]) -> str:
    """Return the figures of every run as CSV: one line per run, nothing rounded."""
    lines = [
        {
            "name": name,
            "dataset": run.record.dataset,
            "seed": run.record.seed,
            "epochs": run.record.epochs,
            **{f"test {metric}": value for metric, value in run.record.test.items()},
            **{f"valid {metric}": value for metric, value in run.record.valid.items()},
            **{f"seconds {phase}": value for phase, value in run.record.seconds.items()},
            "peak_mb": run.record.peak_mb,
        }
        for name, own in runs.items()
        for run in own
    ]
    return pl.DataFrame(lines, infer_schema_length=None).write_csv()


def comparison_table(runs: Mapping[str, Sequence[Run]], tests: Mapping[str, Tests]) -> Table:
    """Return a row for each name: figures, p-values and costs.

    Args:
        runs: Name → its runs, one for each seed.
        tests: Name → tests against the best; the best has none.
    """
    columns = [
        "model", "Recall@20", "NDCG@20", "p", "valid NDCG@20", "s/epoch", "s to best", "peak MB",
    ]  # fmt: skip
    rows = []
    for name, own in runs.items():
        found = tests.get(name, {})
        figures = [
            f"{figure([run.record.test[metric] for run in own])}"
            + ("*" if found and found[metric].p_value < LEVEL / len(tests) else "")
            for metric in SELECTION_METRICS
        ]
        epochs = [seconds for run in own if (seconds := run.seconds_per_epoch) is not None]
        peaks = [peak for run in own if (peak := run.record.peak_mb) is not None]
        rows.append(
            [
                name,
                *figures,
                p_text(found[SELECTION_METRIC].p_value) if found else NOTHING,
                str(figure([run.record.valid[SELECTION_METRIC] for run in own])),
                f"{statistics.fmean(epochs):.2f}" if epochs else NOTHING,
                f"{statistics.fmean(run.seconds_to_best for run in own):.1f}",
                str(max(peaks)) if peaks else NOTHING,
            ]
        )
    return Table(columns, rows)


def explanation(best: str, num_seeds: int, tests: Mapping[str, Tests]) -> str:
    """Say what the columns of a comparison mean."""
    seeds = f"Mean ± deviation over {num_seeds} seeds. " if num_seeds > 1 else ""
    costs = (
        "s/epoch is training only; s to best includes preparation and validation; peak MB is the"
        " whole process."
    )
    if not tests:
        return f"{seeds}{costs}"
    users = next(iter(next(iter(tests.values())).values())).num_users
    among = f" ({LEVEL:g} shared among {len(tests)} tests)" if len(tests) > 1 else ""
    return (
        f"{seeds}p: two-sided paired t-test of NDCG@20 over {users} users against {best}, the best"
        f" by validation NDCG@20; * differs from it, p < {LEVEL / len(tests):.2g}{among}. {costs}"
    )


def quality_table(
    rows: Mapping[str, Summary],
    published: Mapping[str, paper.Figures | None],
    p_values: Mapping[str, float],
) -> Table:
    """Return our figures beside those of the paper.

    Args:
        rows: Name of a row → its figures.
        published: Name of a row → the figures of the paper, if there are any.
        p_values: Name of a row → p-value against another row, if it was tested.
    """
    columns = [
        "", "paper Recall@20 / NDCG@20", "Recall@20", "NDCG@20", "ratio", "p (NDCG@20)",
        "validation NDCG@20", "seeds", "epochs", "minutes",
    ]  # fmt: skip
    lines = [
        [
            name,
            published_text(published.get(name)),
            *(str(row.test[metric]) for metric in SELECTION_METRICS),
            ratio_text(row, published.get(name)),
            p_text(p_values[name]) if name in p_values else NOTHING,
            str(row.valid[SELECTION_METRIC]),
            ", ".join(map(str, row.seeds)),
            ", ".join(str(epochs or NOTHING) for epochs in row.epochs),
            NOTHING if row.minutes is None else f"{row.minutes:.1f}",
        ]
        for name, row in rows.items()
    ]
    return Table(columns, lines)


def published_text(figures: paper.Figures | None) -> str:
    """Return published figures as text."""
    return f"{figures.recall:.4f} / {figures.ndcg:.4f}" if figures else NOTHING


def ratio_text(row: Summary, theirs: paper.Figures | None) -> str:
    """Return our Recall@20 and NDCG@20 as shares of the published ones."""
    if theirs is None:
        return NOTHING
    recall, ndcg = (row.test[metric].mean for metric in SELECTION_METRICS)
    ratios = row.ratio or [recall / theirs.recall, ndcg / theirs.ndcg]
    return f"{ratios[0]:.3f} / {ratios[1]:.3f}"


def group_table(rows: Mapping[str, Summary]) -> Table:
    """Return what items of each popularity group contribute to Recall@20."""
    lines = [
        [name, *(str(row.groups[group][SELECTION_METRICS[0]]) for group in GROUPS)]
        for name, row in rows.items()
        if row.groups
    ]
    return Table(["Recall@20", *(f"{group} items" for group in GROUPS)], lines)


def timing_table(
    times: Mapping[str, EpochTime], stated: Mapping[str, float], reference: str
) -> Table:
    """Return epoch times beside those of the paper, and their ratios to one of the models."""
    rows = [
        [
            name,
            f"{stated[name]:.1f}" if name in stated else NOTHING,
            f"{stated[name] / stated[reference]:.2f}" if name in stated else NOTHING,
            f"{time.seconds:.1f}",
            f"{time.ratio:.2f}",
        ]
        for name, time in times.items()
    ]
    columns = ["", "paper s / epoch", "paper ratio", "s / epoch", f"ratio to {reference}"]
    return Table(columns, rows)


def _escaped(cell: str) -> str:
    return "".join(f"\\{letter}" if letter in "&%_#" else letter for letter in cell)
