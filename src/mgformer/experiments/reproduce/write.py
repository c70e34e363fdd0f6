"""What is written of the runs: Markdown tables beside the paper's figures, and charts."""

from collections.abc import Mapping, Sequence

from mgformer.errors import DataError
from mgformer.experiments import paper
from mgformer.experiments.reproduce.chart import bar_chart
from mgformer.experiments.reproduce.plan import REFERENCE, Row
from mgformer.experiments.tables import (
    METRICS,
    NOTHING,
    Table,
    figure,
    measured,
    p_shown,
    paired_tests,
)
from mgformer.experiments.timing import EpochTime
from mgformer.ranking.evaluation import GROUPS
from mgformer.runs.folder import Run

Runs = Mapping[str, Sequence[Run]]
P_VALUE = "p (NDCG@20)"


def quality_table(rows: Sequence[Row], runs: Runs) -> Table:
    """Return our figures beside the paper's, and p-values against another row.

    Args:
        rows: The lines of the table; those without runs are left out.
        runs: Name of a row → its runs, one for each seed.
    """
    columns = [
        "", "paper Recall@20 / NDCG@20", "Recall@20", "NDCG@20", "ratio", P_VALUE,
        "validation NDCG@20", "seeds", "epochs", "minutes",
    ]  # fmt: skip
    lines = []
    for row in rows:
        own = runs.get(row.name)
        if not own:
            continue
        ours = [measured(own, "test", metric) for metric in METRICS]
        stated, ratio = NOTHING, NOTHING
        if row.paper is not None:
            stated = " / ".join(f"{value:.4f}" for value in row.paper)
            means = [sum(values) / len(values) for values in ours]
            ratio = " / ".join(f"{m / p:.3f}" for m, p in zip(means, row.paper, strict=True))
        minutes = [run.record.seconds.get("train", 0) / 60 for run in own]
        lines.append(
            [
                row.name,
                stated,
                *(figure(values) for values in ours),
                ratio,
                p_value(own, runs.get(row.against, ())) if row.name != row.against else NOTHING,
                figure(measured(own, "valid", METRICS[-1])),
                ", ".join(str(run.record.seed) for run in own),
                ", ".join(str(run.record.epochs or NOTHING) for run in own),
                f"{sum(minutes) / len(minutes):.1f}",
            ]
        )
    return Table(columns, lines)


def p_value(ours: Sequence[Run], theirs: Sequence[Run]) -> str:
    """Return the p-value of NDCG@20 over users, for the seeds that both sides have."""
    other = {run.record.seed: run for run in theirs}
    pairs = [(run, other[run.record.seed]) for run in ours if run.record.seed in other]
    if not pairs:
        return NOTHING
    tests = paired_tests([run.per_user for run, _ in pairs], [run.per_user for _, run in pairs])
    return p_shown(tests[METRICS[-1]].p_value)


def group_table(runs: Runs) -> Table:
    """Return what items of each popularity group contribute to Recall@20."""
    rows = [
        [name, *(figure(_of_group(own, group)) for group in GROUPS)] for name, own in runs.items()
    ]
    return Table(["Recall@20", *(f"{group} items" for group in GROUPS)], rows)


def group_chart(dataset: str, runs: Runs) -> str:
    """Return the same as a picture."""
    series = {
        name: [sum(values) / len(values) for group in GROUPS if (values := _of_group(own, group))]
        for name, own in runs.items()
    }
    return bar_chart(f"Recall@20 by popularity of items, {dataset}", GROUPS, series)


def quality_chart(title: str, runs: Runs) -> str:
    """Return NDCG@20 of every row as a picture."""
    means = [
        sum(values) / len(values)
        for own in runs.values()
        if (values := measured(own, "test", METRICS[-1]))
    ]
    return bar_chart(title, list(runs), {"NDCG@20": means})


def timing_table(dataset: str, times: Mapping[str, EpochTime], reference: str) -> Table:
    """Return epoch times beside the paper's, and their ratios to one of the models."""
    stated = paper.EPOCH_SECONDS if dataset == REFERENCE else {}
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


def timing_chart(dataset: str, times: Mapping[str, EpochTime]) -> str:
    """Return the same as a picture."""
    seconds = [time.seconds for time in times.values()]
    return bar_chart(f"Seconds of an epoch, {dataset}", list(times), {"ours": seconds}, digits=1)


def provenance(rows: Sequence[Row], runs: Runs, command: str) -> str:
    """Say how the figures came about, and refuse to put together what cannot be compared."""
    first, *others = dict.fromkeys(row.against for row in rows if row.name in runs)
    against = f"against “{first}”" + "".join(
        f", and of what starts from “{other}” against that" for other in others
    )
    records = [run.record for own in runs.values() for run in own]
    prints = {record.fingerprint for record in records}
    protocols = {record.protocol for record in records}
    if len(prints) > 1 or len(protocols) > 1:
        raise DataError(
            f"runs of different data or protocols cannot stand in one table: {sorted(prints)},"
            f" {sorted(protocols)}; choose another --out"
        )
    commits = sorted({str(record.commit) for record in records})
    return (
        f"`{command}`\n\nData {prints.pop()}; {protocols.pop()}. Every seed has its own split;"
        f" figures are means ± deviations over seeds. p: paired t-test {against}, over test users,"
        f" each averaged over the seeds. Commits: {', '.join(commits)}.\n"
    )


def _of_group(runs: Sequence[Run], group: str) -> list[float]:
    return [run.record.groups[group]["recall@20"] for run in runs]
