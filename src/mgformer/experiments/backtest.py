"""Test models at several moments in time, each on what came next.

At every cut, a model is trained on what was known and tested on the window after the cut. Runs are
stored in FOLDER/cut-N/NAME and are not repeated.
"""

import logging
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mgformer.data.cuts import Clock, Cut, CutData, Drift, at_cut, check_cuts, choose_cuts, clock_of
from mgformer.data.dataset import Dataset, open_dataset
from mgformer.data.options import SplitConfig
from mgformer.errors import ConfigError
from mgformer.experiments import tables
from mgformer.experiments.compare import contestants
from mgformer.experiments.retraining import Measurements, Retraining
from mgformer.files import folder_name
from mgformer.models import model_class
from mgformer.progress import phase
from mgformer.ranking.score import ScoreConfig
from mgformer.runs.config import RunConfig, named
from mgformer.runs.folder import Run, ensure_run, find_run

POPULARITY = "popularity"
FLOORS = {
    POPULARITY: ScoreConfig(time="off"),
    "popularity with trend": ScoreConfig(time="on"),
}
"""Rows that every backtest has: popular items, and popular items that are on the rise."""
log = logging.getLogger("mgformer")


class Window(NamedTuple):
    """What a report says about the window after a cut."""

    cut: Cut
    pairs: int
    """Pairs that are new in the window."""
    ranked: int
    """Users who are ranked."""
    unknown: int
    """Users who are not ranked, because nothing is known about them."""
    drift: Drift


class Backtest(NamedTuple):
    """Runs of several models at several cuts, the best by validation NDCG@20 first."""

    dataset: str
    fingerprint: str
    """Of the whole dataset."""
    clock: Clock
    share: float
    """Share of the rows in each window."""
    windows: list[Window]
    runs: dict[str, list[Run]]
    """Name → its runs, one for each cut."""
    tests: Mapping[str, tables.Tests]
    """Name → tests against the best, over the users of all cuts; the best has none."""
    retraining: Retraining | None = None
    """What happens without retraining, if it was asked for."""

    @property
    def best(self) -> str:
        """The name of the best."""
        return next(iter(self.runs))

    def mean(self, name: str, metric: str, part: str = "test") -> float:
        """Return the mean over cuts of a figure."""
        return statistics.fmean(getattr(run.record, part)[metric] for run in self.runs[name])


def rows_of(
    models: Sequence[str],
    dataset: str | None = None,
    share: float = 0.1,
    *,
    presets: Path | None = None,
    settings: Sequence[str] = (),
    seed: int | None = None,
) -> dict[str, RunConfig]:
    """Return the run of each model by name, with the floors; refuse options that have no use.

    Args:
        models: As in `contestants`.
        dataset: Used instead of the dataset of the files.
        share: Share of the rows in each window.
        presets: A folder where NAME.toml has the options of the model NAME.
        settings: Options for all models. The floors take those of data and evaluation only.
        seed: Seed of all models.
    """
    for option in named(settings):
        if option.partition(".")[0] in ("split", "warm_start"):
            raise ConfigError(f"--set {option} has no use in a backtest: its cuts split the data")
    # One split for all, whatever the files say: it tells runs with other windows apart.
    split = SplitConfig(kind="time", valid=share, test=share, refit=True)
    same = ["split.kind=time", f"split.valid={share}", f"split.test={share}", "split.refit=true"]
    seeds = [] if seed is None else [f"seed={seed}"]
    given = contestants(models, dataset, presets, [*settings, *same, *seeds])
    configs = {}
    for name, config in given.items():
        if config.warm_start:
            raise ConfigError(f"{name}: warm_start has no use in a backtest; leave it out")
        if name in FLOORS and config.model_name != POPULARITY:
            raise ConfigError(f"--models: {name} is the name of a floor; rename the file")
        if name not in FLOORS:
            configs[name] = config.model_copy(update={"split": split})
    shared = next(iter(given.values()))
    model = model_class(POPULARITY).Config()
    for name, score in FLOORS.items():
        own = {"model_name": POPULARITY, "model": model, "score": score, "split": split}
        configs[name] = shared.model_copy(update=own)
    return configs


def backtest(
    configs: Mapping[str, RunConfig],
    folder: Path,
    *,
    num_cuts: int = 4,
    dataset: Dataset | None = None,
    policy: bool = False,
) -> Backtest:
    """Train the runs that are missing, and compare the models over all cuts.

    Args:
        configs: Runs by name, as `rows_of` returns them.
        folder: Where runs are stored.
        num_cuts: Number of cuts.
        dataset: Used instead of reading the dataset of the configs.
        policy: Also measure what the models of the first cut are worth in later windows.
    """
    first = next(iter(configs.values()))
    share = first.split.test
    check_cuts(num_cuts, share)
    if policy and num_cuts < 2:
        raise ConfigError("--policy needs a later window to look at; set --cuts to 2 or more")
    if dataset is None:
        # A k-core of all rows would tell a model about the future: each cut has its own.
        whole = first.data.model_copy(update={"k_core": 0})
        dataset = open_dataset(first.dataset, whole, keep_rows=True)
    cuts = choose_cuts(dataset, num_cuts, share)
    measured = Measurements(dataset, cuts) if policy else None
    windows: list[Window] = []
    runs: dict[str, list[Run]] = {name: [] for name in configs}
    with phase("runs", len(cuts) * len(configs)) as advance:
        for cut in cuts:
            data = at_cut(dataset, cut, first.data.k_core)
            windows.append(_window(data))
            for name, config in configs.items():
                place = folder / f"cut-{cut.number}" / folder_name(name)
                if find_run(place) is None:
                    log.info("training %s at cut %d of %d", name, cut.number, num_cuts)
                keep = policy and cut.number == 1
                run = ensure_run(config, place, data.dataset, split=data.split, keep=keep)
                runs[name].append(run)
                if measured:
                    measured.add(name, data, run)
                advance(1)
    found = Backtest(dataset.name, dataset.fingerprint, clock_of(dataset), share, windows, runs, {})
    names = sorted(runs, key=lambda name: found.mean(name, tables.NDCG, "valid"), reverse=True)
    best, *others = names
    tests = {name: _tests(runs[name], runs[best]) for name in others}
    return found._replace(
        runs={name: runs[name] for name in names},
        tests=tests,
        retraining=measured.result(names) if measured else None,
    )


def _window(data: CutData) -> Window:
    return Window(data.cut, len(data.window), data.num_ranked, data.num_unknown, data.drift)


def _tests(ours: Sequence[Run], theirs: Sequence[Run]) -> tables.Tests:
    return tables.paired_tests([run.per_user for run in ours], [run.per_user for run in theirs])
