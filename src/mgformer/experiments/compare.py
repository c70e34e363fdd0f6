"""Several models on one split, by one protocol, tuned with the same number of trials or not at all.

Runs are kept in FOLDER/NAME/seed-N, and are not repeated; trials in FOLDER/NAME/tune.
"""

import logging
import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mgformer.data.catalog import open_dataset
from mgformer.errors import ConfigError, DataError
from mgformer.experiments.search import import_optuna, space_of
from mgformer.experiments.tables import (
    METRICS,
    Tests,
    comparison_table,
    explanation,
    measured,
    paired_tests,
)
from mgformer.experiments.tune import Tuned, shown, tune
from mgformer.files import write_text
from mgformer.models import import_model, model_names
from mgformer.progress import phase
from mgformer.ranking.metrics import SELECTION_K
from mgformer.runs.config import (
    RunConfig,
    build_config,
    different_options,
    read_config,
    with_choices,
    with_settings,
)
from mgformer.runs.folder import Run, ensure_run, find_run
from mgformer.runs.prepare import prepare

DOCUMENT = "compare.md"
SHARED = ("dataset", "seed", "warm_start", "data", "split", "evaluation")
log = logging.getLogger("mgformer")


class Comparison(NamedTuple):
    """Runs of several models, the best by validation NDCG@20 first."""

    runs: dict[str, list[Run]]
    """Name → its runs, one for each seed."""
    tests: dict[str, Tests]
    """Name → tests against the best, over users; the best has none."""
    tuned: dict[str, Tuned]
    """Name → what tuning found, for those that were tuned."""

    @property
    def best(self) -> str:
        """The name of the best."""
        return next(iter(self.runs))


def contestants(
    models: Sequence[str],
    dataset: str | None = None,
    presets: Path | None = None,
    settings: Sequence[str] = (),
) -> dict[str, RunConfig]:
    """Return the run of each model by name; refuse runs that could not be compared.

    Args:
        models: Names of models, in any case, or TOML files of runs.
        dataset: Stands in for that of the files.
        presets: A folder of TOML files; NAME.toml has the options of NAME.
        settings: Options for all, as in `with_settings`.
    """
    described: dict[str, dict[str, Any]] = {}
    for model in models:
        name, raw = _described(model, presets)
        if name in described:
            raise ConfigError(f"--models: {name} is there twice; name each model once")
        described[name] = raw
    if not described:
        raise ConfigError(f"--models is empty; name some of {', '.join(sorted(model_names()))}")
    # A model without a file has the protocol of those that have one.
    protocol = next(filter(None, map(_shared, described.values())), {})
    found: dict[str, RunConfig] = {}
    for name, raw in described.items():
        whole = raw if _shared(raw) else {**protocol, **raw}
        found[name] = build_config(with_settings(with_choices(whole, dataset), settings), name)
    _check_one_protocol(found)
    return found


def compare(
    configs: Mapping[str, RunConfig],
    folder: Path,
    *,
    num_seeds: int = 1,
    trials: int = 0,
    held: Collection[str] = (),
) -> Comparison:
    """Train what is missing of the runs, and compare them.

    Args:
        configs: Name → run, of one protocol.
        folder: Where runs are, or are to be.
        num_seeds: Runs of each, with seeds that follow that of the configs.
        trials: What each is tuned with first, on the validation part of the first seed; 0: none.
        held: Options that tuning leaves as they are, by dotted name.
    """
    first = next(iter(configs.values()))
    if trials:
        import_optuna()
    dataset = open_dataset(first.dataset, first.data)
    split = prepare(first, dataset).split
    for pairs, part in ((split.valid, "valid"), (split.test, "test")):
        if not len(pairs):
            raise DataError(
                f"{dataset.name}: has no {part} part, and comparing takes one; set split.{part}"
                " above 0"
            )
    runs: dict[str, list[Run]] = {name: [] for name in configs}
    tuned: dict[str, Tuned] = {}
    with phase("runs", len(configs) * num_seeds) as advance:
        for name, config in configs.items():
            if trials and space_of(config, held):
                tuned[name] = tune(
                    config, folder / name / "tune", trials, held=held, dataset=dataset
                )
                if len(tuned[name].trials) > trials:
                    raise ConfigError(
                        f"{folder / name}: has {len(tuned[name].trials)} trials, and all models"
                        f" are to have {trials}; give --tune {len(tuned[name].trials)}, or choose"
                        " another --out"
                    )
                config = tuned[name].config
            for seed in range(config.seed, config.seed + num_seeds):
                place = folder / name / f"seed-{seed}"
                if find_run(place) is None:
                    log.info("training %s, seed %d", name, seed)
                run = config.model_copy(update={"seed": seed})
                runs[name].append(ensure_run(run, place, dataset))
                advance(1)
    done = best_first(runs)
    return Comparison(done, _against_first(done), tuned)


def best_first(runs: Mapping[str, Sequence[Run]]) -> dict[str, list[Run]]:
    """Return runs by name in the order of their validation NDCG@20, the best first."""

    def value(name: str) -> float:
        return statistics.fmean(measured(runs[name], "valid", METRICS[-1]))

    return {name: list(runs[name]) for name in sorted(runs, key=value, reverse=True)}


def write_document(comparison: Comparison, folder: Path, command: str) -> None:
    """Write the comparison as Markdown, with what it takes to make it again."""
    runs, tests = comparison.runs, comparison.tests
    records = [run.record for own in runs.values() for run in own]
    seeds = sorted({record.seed for record in records})
    commits = sorted({record.commit or f"mgformer {record.library}" for record in records})
    lines = [
        f"# {len(runs)} models on {records[0].dataset}",
        "",
        f"Generated by `{command}`.",
        "",
        comparison_table(runs, tests).markdown(),
        explanation(comparison.best, len(seeds), tests),
        "",
        f"- data: {records[0].fingerprint}",
        f"- protocol: {records[0].protocol}",
        f"- seeds: {', '.join(map(str, seeds))}",
        f"- code: {', '.join(commits)}",
        *(f"- {name}: {_told(found)}" for name, found in comparison.tuned.items()),
        "",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / DOCUMENT, "\n".join(lines))


def _described(model: str, presets: Path | None) -> tuple[str, dict[str, Any]]:
    """Return the name of a contestant and its run as a nested mapping."""
    if model.endswith(".toml"):
        path = Path(model)
        return path.stem, read_config(path)
    name = model if ":" in model else model.lower()
    if presets is not None and (presets / f"{name}.toml").exists():
        return name, read_config(presets / f"{name}.toml")
    try:
        import_model(name)
    except ConfigError as error:
        raise ConfigError(f"--models: {error}, or a TOML file") from None
    if presets is not None:
        log.info("%s: no %s.toml in %s; it has its defaults", name, name, presets)
    return name, {"model": {"name": name}}


def _shared(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in SHARED if name in described}


def _check_one_protocol(configs: Mapping[str, RunConfig]) -> None:
    """Refuse runs that differ in anything but model, training and scores."""
    (first, config), *others = configs.items()
    expected = _shared(config.to_mapping())
    for name, other in others:
        for option, (one, two) in different_options(expected, _shared(other.to_mapping())).items():
            raise ConfigError(
                f"{option} is {one!r} for {first} and {two!r} for {name}; a comparison needs one"
                " protocol: set it for all with --set"
            )
    if SELECTION_K not in config.evaluation.ks:
        raise ConfigError(
            f"evaluation.ks is {list(config.evaluation.ks)}; comparing takes a cut-off of"
            f" {SELECTION_K}, as in --set evaluation.ks=[{SELECTION_K}]"
        )


def _against_first(runs: Mapping[str, Sequence[Run]]) -> dict[str, Tests]:
    (_, best), *others = runs.items()
    figures = [run.per_user for run in best]
    return {name: paired_tests([run.per_user for run in own], figures) for name, own in others}


def _told(tuned: Tuned) -> str:
    changes = tuned.changes(tuned.best)
    options = ", ".join(f"{name} = {shown(value)}" for name, value in changes.items())
    return f"{tuned.counts()}; {options or 'the options given'}"
