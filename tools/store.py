"""Read and write `results/`: every figure that a document shows, as JSON.

    results/<dataset>/<name>[.<split>]-<seed>.json   one run: its record, without paths
    results/<dataset>/<name>[.<split>]-<a>to<b>.json the mean over seeds, where that is all we have
    results/tests/<dataset>.json                     paired tests over users
    results/backtests/<dataset>.json                 what `mgformer backtest` found
    results/folding/, results/selection/             figures of tools.folding, tools.selection
    results/ultragcn/                                figures of tools.ultragcn
    results/benchmarks/<name>.json                   written by benchmarks with --save
    results/reliability/<name>.json                  rows of tools.reliability

`name` is the name of a preset, or of a variant of table 3. The split is part of the file name if it
is not the paper's (`ratio`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from mgformer.experiments.paper_rows import PAPER_SPLIT
from mgformer.experiments.summary import Summary, summarize
from mgformer.files import write_text
from mgformer.runs.folder import Run
from mgformer.runs.record import Record

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"


class RunResult(BaseModel):
    """One run."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: Literal["run"] = "run"
    name: str
    record: Record
    curve: dict[int, float] = {}
    """Epoch → validation NDCG@20, over the users that epochs are compared on."""
    seconds_per_epoch: float | None = None


class OneSeed(BaseModel):
    """What is known of one of the runs behind a mean."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    test: dict[str, float]
    epochs: int
    score: str | None = None
    gamma: float | None = None
    commit: str
    curve: dict[int, float] = {}
    seconds_per_epoch: float | None = None


class MeanResult(Summary):
    """Means over seeds, of runs whose records were not kept; rounded as documents showed them."""

    kind: Literal["mean"] = "mean"
    name: str
    runs: tuple[OneSeed, ...] = ()
    source: str


class PairedResult(BaseModel):
    """A paired t-test over users between two results of one dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    a: str
    b: str
    metric: str
    difference: float | None = None
    """Mean of a minus mean of b; None if it was not noted."""
    p: float
    """0 means less than 1e-300."""
    users: int | None = None
    seeds: list[int]
    commits: list[str]
    source: str | None = None


def file_name(name: str, split: str, seeds: Sequence[int]) -> str:
    """Return the name of the file that holds a result."""
    mark = "" if split == PAPER_SPLIT["kind"] else f".{split}"
    span = f"{min(seeds)}to{max(seeds)}" if len(seeds) > 1 else str(seeds[0])
    return f"{name}{mark}-{span}.json"


def public_record(record: Record) -> Record:
    """Return a record without paths: they say nothing on another machine."""
    config = {**record.config, "dataset": record.dataset}
    config.pop("warm_start", None)
    if "data" in config:
        config["data"] = {n: v for n, v in config["data"].items() if n not in ("items", "users")}
    return record.model_copy(update={"config": config})


def run_result(name: str, run: Run, metric: str) -> RunResult:
    """Return what is kept of a run."""
    curve = {entry["epoch"]: entry[metric] for entry in run.log if metric in entry}
    return RunResult(
        name=name,
        record=public_record(run.record),
        curve=curve,
        seconds_per_epoch=run.seconds_per_epoch,
    )


def summaries(
    dataset: str, split: str, *, most_seeds: int = 3, results: Path = RESULTS
) -> dict[str, Summary]:
    """Return the figures of each name, over the seeds 0 to `most_seeds` - 1.

    Records of runs come before a mean if they cover its seeds. Of several means, the one with the
    most seeds counts.
    """
    records: dict[str, list[Record]] = {}
    means: dict[str, MeanResult] = {}
    for result in read_results(dataset, results):
        if isinstance(result, RunResult):
            if result.record.config["split"]["kind"] == split and result.record.seed < most_seeds:
                records.setdefault(result.name, []).append(result.record)
        elif result.split == split and max(result.seeds) < most_seeds:
            known = means.get(result.name)
            if known is None or len(known.seeds) < len(result.seeds):
                means[result.name] = result
    found: dict[str, Summary] = dict(means)
    for name, own in records.items():
        own.sort(key=lambda record: record.seed)
        if name not in means or {r.seed for r in own} >= {*means[name].seeds}:
            found[name] = summarize(own)
    return found


def read_tests(dataset: str, results: Path = RESULTS) -> list[PairedResult]:
    """Return the tests of a dataset."""
    path = results / "tests" / f"{dataset}.json"
    return [PairedResult.model_validate(test) for test in read_json(path)] if path.exists() else []


def p_values(
    dataset: str,
    against: Mapping[str, str],
    rows: Mapping[str, Summary],
    metric: str,
    results: Path = RESULTS,
) -> dict[str, float]:
    """Return the p-value of each name against another, if they were tested on the same seeds."""
    found = {}
    for test in read_tests(dataset, results):
        for name, other in ((test.a, test.b), (test.b, test.a)):
            both = name in rows and other in rows and against.get(name) == other
            if both and test.metric == metric:
                seeds = {*rows[name].seeds} & {*rows[other].seeds}
                if seeds == {*test.seeds}:
                    found[name] = test.p
    return found


def read_results(dataset: str, results: Path = RESULTS) -> Iterator[RunResult | MeanResult]:
    """Yield all results of a dataset."""
    for path in sorted((results / dataset).glob("*.json")):
        raw = read_json(path)
        kind = RunResult if raw["kind"] == "run" else MeanResult
        yield kind.model_validate(raw)


def read_json(path: Path) -> Any:
    """Read a file of results."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: BaseModel | Sequence[BaseModel] | Mapping[str, Any]) -> None:
    """Write a file of results, readable by people too."""
    if isinstance(value, BaseModel):
        plain: Any = _plain(value)
    elif isinstance(value, Mapping):
        plain = value
    else:
        plain = [_plain(one) for one in value]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def _plain(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(mode="json", exclude_none=True)
