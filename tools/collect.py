"""Copy the figures of finished runs into `results/`.

    python -m tools.collect RUNS

RUNS is the --out folder of `mgformer reproduce` or `mgformer compare`, with runs in NAME/seed-N, or
that of `mgformer backtest`, which is copied whole. Of the others, only presets and rows of the
paper's tables are copied, and only if they ran with the options that the preset has now. Tests
between rows are computed from the figures per user and stored too.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from mgformer.errors import MgformerError
from mgformer.experiments import order_rows, paper_rows
from mgformer.experiments.tables import row_tests
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.folder import Run, check_config, runs_below
from tools.store import RESULTS, PairedResult, file_name, read_tests, run_result, write_json

NUM_SEEDS = 3
"""Tables are over the first three seeds."""


def main() -> None:
    """Copy all runs that can be named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if (options.runs / "backtest.json").is_file():
        print(collect_backtest(options.runs, options.results))
        return
    for line in collect(options.runs, options.results):
        print(line)


def collect_backtest(folder: Path, results: Path) -> str:
    """Copy the figures of a backtest, with the commits and options of its runs."""
    found = json.loads((folder / "backtest.json").read_text())
    paths = sorted(folder.glob("cut-*/*/record.json"))
    records = [(path, json.loads(path.read_text())) for path in paths]
    found["commits"] = sorted({record["commit"] or record["library"] for _, record in records})
    found["configs"] = {path.parent.name: record["config"] for path, record in records}
    path = results / "backtests" / f"{found['dataset']}.json"
    write_json(path, found)
    return f"wrote {path}"


def collect(folder: Path, results: Path) -> list[str]:
    """Copy the runs below a folder; return a line about each."""
    lines = []
    comparable: dict[str, dict[str, list[Run]]] = {}
    for run in runs_below(folder).runs:
        record = run.record
        name = run.folder.parent.name if run.folder.name.startswith("seed-") else record.model
        split = record.config["split"]["kind"]
        configs = known_runs(record.dataset, name, split)
        if not configs:
            lines.append(f"skipped {run.folder}: {name} is neither a preset nor a row of a table")
            continue
        refusals = [refusal(run, config) for config in configs]
        if all(refusals):
            lines.append(f"skipped {refusals[0]}")
            continue
        path = results / record.dataset / file_name(name, split, [record.seed])
        write_json(path, run_result(name, run, SELECTION_METRIC))
        lines.append(f"wrote {path}")
        if split == paper_rows.PAPER_SPLIT["kind"] or name.endswith(("-order", "-no-order")):
            comparable.setdefault(record.dataset, {}).setdefault(name, []).append(run)
    for dataset, runs in comparable.items():
        update_tests(dataset, runs, results)
    return lines


def known_runs(dataset: str, name: str, split: str) -> list[RunConfig]:
    """Return the runs that presets and rows of tables describe under this name.

    There may be two: a row states the whole split of the paper, where a preset may leave part of
    it to the defaults.
    """
    raw = paper_rows.preset(dataset, name)
    found = []
    if raw is not None and raw.get("split", {}).get("kind", "ratio") == split:
        found.append(build_config(raw, name))
    rows = []
    if split == paper_rows.PAPER_SPLIT["kind"]:
        rows = [*paper_rows.table2_rows(dataset), *paper_rows.table3_rows(dataset)]
    elif dataset in order_rows.DATASETS:
        rows = order_rows.order_rows(dataset)
    return found + [row.config for row in rows if row.folder == name]


def refusal(run: Run, config: RunConfig) -> MgformerError | None:
    """Return why a run is not the one that a config describes; None if it is."""
    try:
        wanted = config.model_copy(update={"seed": run.record.seed})
        check_config(run.folder, run.record.config, wanted)
    except MgformerError as error:
        return error
    return None


def update_tests(dataset: str, runs: Mapping[str, Sequence[Run]], results: Path) -> None:
    """Add the tests between the rows of all tables to those that were stored before."""
    found = read_tests(dataset, results)
    ordered = order_rows.order_rows(dataset) if dataset in order_rows.DATASETS else []
    tables = (paper_rows.table2_rows, paper_rows.wide_rows, paper_rows.table3_rows)
    for rows in (*(table(dataset) for table in tables), ordered):
        folders = {row.name: row.folder for row in rows}
        against = {row.name: row.against for row in rows}
        own = {
            name: [run for run in runs.get(place, ()) if run.record.seed < NUM_SEEDS]
            for name, place in folders.items()
        }
        for name, tests in row_tests(own, against).items():
            sides = own[name], own[against[name]]
            seeds = [{run.record.seed for run in side} for side in sides]
            commits = {run.record.commit or run.record.library for s in sides for run in s}
            found += [
                PairedResult(
                    a=folders[name],
                    b=folders[against[name]],
                    metric=metric,
                    difference=test.difference,
                    p=test.p_value,
                    users=test.num_users,
                    seeds=sorted(seeds[0] & seeds[1]),
                    commits=sorted(commits),
                )
                for metric, test in tests.items()
            ]
    newest = {(*sorted((t.a, t.b)), t.metric, *t.seeds): t for t in found}  # later ones win
    if newest:
        write_json(results / "tests" / f"{dataset}.json", list(newest.values()))


if __name__ == "__main__":
    main()
