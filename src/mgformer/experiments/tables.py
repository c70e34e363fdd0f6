"""Tables of runs: means over seeds, significance over users, Markdown."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from mgformer.errors import DataError
from mgformer.ranking.significance import PairedTest, paired_test
from mgformer.runs.folder import Run
from mgformer.runs.record import Part

METRICS = ("recall@20", "ndcg@20")
LEVEL = 0.05
NOTHING = "–"

Tests = Mapping[str, PairedTest]
"""metric@k → test."""


class Table(NamedTuple):
    """Cells of text; the first column names the rows."""

    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the table as Markdown, figures to the right."""
        rule = ["---", *("---:" for _ in self.columns[1:])]
        lines = [self.columns, rule, *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def figure(values: Sequence[float], digits: int = 4) -> str:
    """Return the mean of one figure over runs, with its deviation if there are several."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def p_shown(p_value: float) -> str:
    """Return a p-value as text; one too small for a float is not zero."""
    return f"{p_value:.2g}" if p_value else "< 1e-300"


def measured(runs: Sequence[Run], part: Part, metric: str) -> list[float]:
    """Return a metric of a part ("valid" or "test") of each run."""
    return [run.record.figures(part)[metric] for run in runs]


def paired_tests(
    ours: Sequence[pl.DataFrame], theirs: Sequence[pl.DataFrame], metrics: Sequence[str] = METRICS
) -> dict[str, PairedTest]:
    """Compare metrics of two sides over users, given the figures per user for each seed in turn.

    A user counts once: the figures of a user are averaged over the seeds first, as what one user
    does in several splits is not independent.
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


def as_json(tests: Tests) -> dict[str, Any]:
    """Return tests as plain values."""
    return {
        "users": next(iter(tests.values())).num_users,
        "metrics": {
            name: {"difference": test.difference, "p_value": test.p_value}
            for name, test in tests.items()
        },
    }


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
            figure(measured(own, "test", metric)) + _mark(found.get(metric), len(tests))
            for metric in METRICS
        ]
        epochs = [seconds for run in own if (seconds := run.seconds_per_epoch) is not None]
        peaks = [peak for run in own if (peak := run.record.peak_mb) is not None]
        rows.append(
            [
                name,
                *figures,
                p_shown(found[METRICS[-1]].p_value) if found else NOTHING,
                figure(measured(own, "valid", METRICS[-1])),
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
        "An epoch is training alone; to the best one counts what was prepared and validated, too."
        " The peak is that of the whole process."
    )
    if not tests:
        return f"{seeds}{costs}"
    users = next(iter(next(iter(tests.values())).values())).num_users
    among = f" ({LEVEL:g} shared among {len(tests)} tests)" if len(tests) > 1 else ""
    return (
        f"{seeds}p: two-sided paired t-test of NDCG@20 over {users} users against {best}, the best"
        f" by validation NDCG@20; * differs from it, p < {LEVEL / len(tests):.2g}{among}. {costs}"
    )


def _mark(test: PairedTest | None, num_tests: int) -> str:
    return "*" if test is not None and test.p_value < LEVEL / num_tests else ""
