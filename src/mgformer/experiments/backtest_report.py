"""A backtest as tables, a plot, and plain values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from mgformer.experiments.backtest import Backtest
from mgformer.experiments.chart import line_chart
from mgformer.experiments.retraining import REFRESHED, RETRAINED, STALE, Retraining, Way
from mgformer.experiments.tables import (
    LEVEL,
    NDCG,
    NOTHING,
    RECALL,
    Table,
    p_text,
    significance_json,
    table_of,
)
from mgformer.files import make_folder, write_text

DOCUMENT, PLOT = "table.md", "plot.svg"


class Section(NamedTuple):
    """A table with its title and what its columns mean."""

    title: str
    table: Table
    note: str = ""


def sections(found: Backtest) -> list[Section]:
    """Return the tables of a backtest: the mean over cuts, each cut, drift and retraining."""
    parts = [Section(f"Mean over {len(found.windows)} cuts", mean_table(found), explanation(found))]
    for place, window in enumerate(found.windows):
        start, last = (found.clock.text(moment) for moment in window.cut[2:])
        rows = [
            {
                "model": name,
                "Recall@20": f"{runs[place].record.test[RECALL]:.4f}",
                "NDCG@20": f"{runs[place].record.test[NDCG]:.4f}",
                "valid NDCG@20": f"{runs[place].record.valid[NDCG]:.4f}",
            }
            for name, runs in found.runs.items()
        ]
        title = f"Cut {window.cut.number}: {start} to {last}, {window.ranked} users"
        parts.append(Section(title, table_of(rows)))
    parts.append(Section("Drift", drift_table(found), DRIFT))
    if found.retraining:
        title = "Without retraining: NDCG@20 in later windows"
        parts.append(Section(title, retraining_table(found.retraining), retraining_note(found)))
    return parts


def mean_table(found: Backtest) -> Table:
    """Return a row for each model: means over cuts, and p-values of tests against the best."""
    rows = []
    for name in found.runs:
        tests = found.tests.get(name, {})
        differs = [m for m, test in tests.items() if test.p_value < LEVEL / len(found.tests)]
        rows.append(
            {
                "model": name,
                "Recall@20": f"{found.mean(name, RECALL):.4f}{'*' if RECALL in differs else ''}",
                "NDCG@20": f"{found.mean(name, NDCG):.4f}{'*' if NDCG in differs else ''}",
                "p": p_text(tests[NDCG].p_value) if tests else NOTHING,
                "valid NDCG@20": f"{found.mean(name, NDCG, 'valid'):.4f}",
            }
        )
    return table_of(rows)


def explanation(found: Backtest) -> str:
    """Say what the columns of the means are."""
    if not found.tests:
        return ""
    users = next(iter(found.tests.values()))[NDCG].num_users
    among = f" ({LEVEL:g} shared among {len(found.tests)} tests)" if len(found.tests) > 1 else ""
    return (
        f"p: two-sided paired t-test of NDCG@20 against {found.best}, the best by validation"
        f" NDCG@20, over the {users} users of all cuts, each averaged over the cuts; * differs from"
        f" it, p < {LEVEL / len(found.tests):.2g}{among}."
    )


DRIFT = (
    "pairs: new in the window. ranked: users who are ranked. unknown: users who are not, because"
    " they have no pairs before the cut. new users, new items: share of the pairs whose user, or"
    " whose item, was not known. popular kept: share of the window's 100 most popular items that"
    " were among those of the window before."
)


def drift_table(found: Backtest) -> Table:
    """Return a row for each cut: its window, and how it differs from what was before."""
    rows = []
    for cut, pairs, ranked, unknown, drift in found.windows:
        days = found.clock.days(cut.start, cut.last)
        rows.append(
            {
                "cut": str(cut.number),
                "from": found.clock.text(cut.start),
                "to": found.clock.text(cut.last),
                **({} if days is None else {"days": f"{days:.1f}"}),
                "pairs": f"{pairs:,}",
                "ranked": f"{ranked:,}",
                "unknown": f"{unknown:,}",
                "new users": f"{drift.new_users:.1%}",
                "new items": f"{drift.new_items:.1%}",
                "popular kept": f"{drift.popular_kept:.0%}",
            }
        )
    return table_of(rows)


def retraining_table(found: Retraining) -> Table:
    """Return a row for each model and each way to keep it."""
    rows = []
    weeks = any(way.loss and way.loss.per_week is not None for way in found.ways)
    for name, way, figures, loss in found.ways:
        cells = {f"cut {n}": f"{own[NDCG]:.4f}" for n, own in zip(found.cuts, figures, strict=True)}
        rows.append(
            {
                "model": f"{name}, {way}",
                **cells,
                "loss": f"{loss.mean:.4f}" if loss else NOTHING,
                "loss/window": f"{loss.per_window:.4f}" if loss else NOTHING,
                **({"loss/week": f"{loss.per_week:.2g}" if loss else NOTHING} if weeks else {}),
                "p": p_text(loss.tests[NDCG].p_value) if loss else NOTHING,
            }
        )
    return table_of(rows)


def retraining_note(found: Backtest) -> str:
    """Say what the ways are, and what a window is."""
    assert found.retraining is not None
    ways = {
        STALE: "the model of the first cut, as it is, with the histories of that time",
        REFRESHED: "the same model with the new pairs, without training",
        RETRAINED: "trained at every cut",
    }
    told = "; ".join(
        f"{way}: {what}"
        for way, what in ways.items()
        if way != REFRESHED or found.retraining.can_refresh
    )
    missing = (
        "" if found.retraining.can_refresh
        else " refreshed is left out: this version of mgformer cannot refresh a recommender."
    )  # fmt: skip
    days = [found.clock.days(window.cut.start, window.cut.last) for window in found.windows]
    known = [day for day in days if day is not None]
    length = f" A window has {min(known):.1f} to {max(known):.1f} days." if known else ""
    counts = ", ".join(f"{number:,}" for number in found.retraining.users)
    return (
        f"{told}.{missing} Only users known at the first cut are ranked ({counts} in the windows),"
        " in all rows. loss: what is lost against retrained, in the mean; loss/window: what each"
        f" window of age costs.{length} p: paired t-test against retrained, over users."
    )


def to_json(found: Backtest) -> dict[str, Any]:
    """Return the backtest as plain values, nothing rounded."""
    clock, first = found.clock, next(iter(found.runs.values()))[0].record
    windows = [
        {
            "cut": cut.number,
            "valid_from": cut.valid_from,
            "start": cut.start,
            "last": cut.last,
            "from": clock.text(cut.start),
            "to": clock.text(cut.last),
            "days": clock.days(cut.start, cut.last),
            "pairs": pairs,
            "ranked_users": ranked,
            "unknown_users": unknown,
            **drift._asdict(),
        }
        for cut, pairs, ranked, unknown, drift in found.windows
    ]
    models = []
    for name, runs in found.runs.items():
        tests = found.tests.get(name)
        against = {"against": {"name": found.best, **significance_json(tests)}} if tests else {}
        mean = {metric: found.mean(name, metric) for metric in (RECALL, NDCG)}
        cuts = [
            {
                "cut": window.cut.number,
                "test": run.record.test,
                "valid": run.record.valid,
                **run.record.chosen.weights._asdict(),
                "epochs": run.record.epochs,
                "seconds": run.record.seconds,
                "run": f"{run.folder.parent.name}/{run.folder.name}",
            }
            for window, run in zip(found.windows, runs, strict=True)
        ]
        models.append({"name": name, "mean": mean, **against, "cuts": cuts})
    whole = {
        "dataset": found.dataset,
        "fingerprint": found.fingerprint,
        "seed": first.seed,
        "window": found.share,
        "best": found.best,
        "cuts": windows,
        "models": models,
    }
    return whole | ({"retraining": _retraining_json(found.retraining)} if found.retraining else {})


def _retraining_json(found: Retraining) -> dict[str, Any]:
    def plain(way: Way) -> dict[str, Any]:
        loss = way.loss
        return {
            "name": way.name,
            "way": way.way,
            "cuts": [
                {"cut": number, **figures}
                for number, figures in zip(found.cuts, way.figures, strict=True)
            ],
            "loss": None if loss is None
            else {
                "mean": loss.mean,
                "per_window": loss.per_window,
                "per_week": loss.per_week,
                **significance_json(loss.tests),
            },
        }  # fmt: skip

    ways = [plain(way) for way in found.ways]
    return {"users": found.users, "can_refresh": found.can_refresh, "ways": ways}


def lines_csv(found: Backtest) -> str:
    """Return a line for each model and cut, then for each later cut and way to keep a model."""
    lines: list[dict[str, Any]] = [
        {
            "cut": window.cut.number,
            "start": window.cut.start,
            "last": window.cut.last,
            "model": name,
            "way": None,
            "users": window.ranked,
            **{metric: run.record.test[metric] for metric in (RECALL, NDCG)},
            **{f"valid {metric}": run.record.valid[metric] for metric in (RECALL, NDCG)},
        }
        for name, runs in found.runs.items()
        for window, run in zip(found.windows, runs, strict=True)
    ]
    if found.retraining:
        places = {window.cut.number: window.cut for window in found.windows}
        users = dict(zip(found.retraining.cuts, found.retraining.users, strict=True))
        lines += [
            {
                "cut": number,
                "start": places[number].start,
                "last": places[number].last,
                "model": way.name,
                "way": way.way,
                "users": users[number],
                **figures,
            }
            for way in found.retraining.ways
            for number, figures in zip(found.retraining.cuts, way.figures, strict=True)
        ]
    return pl.DataFrame(lines, infer_schema_length=None).write_csv()


def plot(found: Backtest) -> str:
    """Return NDCG@20 over the cuts as SVG."""
    places = [found.clock.text(window.cut.start).partition(" ")[0] for window in found.windows]
    lines = {name: [run.record.test[NDCG] for run in runs] for name, runs in found.runs.items()}
    return line_chart(f"NDCG@20 in the window after each cut, {found.dataset}", places, lines)


def write_report(found: Backtest, folder: Path, command: str) -> None:
    """Write table.md, table.csv, backtest.json and plot.svg."""
    records = [run.record for runs in found.runs.values() for run in runs]
    commits = sorted({record.commit or f"mgformer {record.library}" for record in records})
    lines = [
        f"# {len(found.runs)} models at {len(found.windows)} cuts of {found.dataset}",
        "",
        f"Generated by `{command}`.",
        "",
        f"![NDCG@20 over the cuts]({PLOT})",
        "",
    ]
    for title, table, note in sections(found):
        lines += [f"## {title}", "", table.markdown(), *([note, ""] if note else [])]
    lines += [
        f"- data: {found.fingerprint}",
        f"- windows: {found.share:g} of the rows each, and as much for validation before each cut;"
        " trained again on all rows before the cut; all items ranked, known ones masked",
        f"- seed: {records[0].seed}",
        f"- code: {', '.join(commits)}",
        "",
    ]
    make_folder(folder)
    files: dict[str, Callable[[], str]] = {
        PLOT: lambda: plot(found),
        "table.csv": lambda: lines_csv(found),
        "backtest.json": lambda: json.dumps(to_json(found), indent=2) + "\n",
        DOCUMENT: lambda: "\n".join(lines),
    }
    for name, text in files.items():
        write_text(folder / name, text())
