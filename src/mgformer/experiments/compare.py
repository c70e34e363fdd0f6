"""Compare several models on one split, by one protocol, each tuned with the same number of trials.

Runs are stored in FOLDER/NAME/seed-N and are not repeated; trials are in FOLDER/NAME/tune.
"""

import logging
import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mgformer.data.dataset import open_dataset
from mgformer.errors import ConfigError, DataError
from mgformer.experiments.search import import_optuna, search_space
from mgformer.experiments.tables import (
    Tests,
    comparison_table,
    explanation,
    paired_tests,
    runs_csv,
)
from mgformer.experiments.tune import TuningResult, tune
from mgformer.files import folder_name, write_text
from mgformer.models import import_model, model_names
from mgformer.progress import phase
from mgformer.ranking.metrics import SELECTION_K, SELECTION_METRIC
from mgformer.runs.config import (
    RunConfig,
    build_config,
    different_options,
    read_config,
    with_choices,
    with_settings,
)
from mgformer.runs.folder import Run, ensure_run, find_run
from mgformer.runs.train import prepare

DOCUMENT = "compare.md"
SHARED = ("dataset", "seed", "warm_start", "data", "split", "evaluation")
log = logging.getLogger("mgformer")


class Comparison(NamedTuple):
    """Runs of several models, the best by validation NDCG@20 first."""

    runs: dict[str, list[Run]]
    """Name → its runs, one for each seed."""
    tests: Mapping[str, Tests]
    """Name → tests against the best, over users; the best has none."""
    tuned: dict[str, TuningResult]
    """Name → the result of tuning, for models that were tuned."""

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
        models: Names of models in any case, `package.module:Class`, or TOML files of runs.
        dataset: Used instead of the dataset of the files.
        presets: A folder of TOML files; NAME.toml has the options of NAME.
        settings: Options for all models, as in `with_settings`.
    """
    mappings: dict[str, dict[str, Any]] = {}
    for model in models:
        name, raw = _name_and_mapping(model, presets)
        if name in mappings:
            raise ConfigError(f"--models: {name} is named twice; name each model once")
        mappings[name] = raw
    if not mappings:
        raise ConfigError(f"--models is empty; name some of {', '.join(sorted(model_names()))}")
    # A model without a file takes the protocol of the first file.
    protocol = next(filter(None, map(_protocol, mappings.values())), {})
    configs: dict[str, RunConfig] = {}
    for name, raw in mappings.items():
        whole = raw if _protocol(raw) else {**protocol, **raw}
        configs[name] = build_config(with_settings(with_choices(whole, dataset), settings), name)
    _check_one_protocol(configs)
    return configs


def compare(
    configs: Mapping[str, RunConfig],
    folder: Path,
    *,
    num_seeds: int = 1,
    trials: int = 0,
    fixed: Collection[str] = (),
) -> Comparison:
    """Train the runs that are missing, and compare all of them.

    Args:
        configs: Name → run, all with one protocol.
        folder: Where runs are stored.
        num_seeds: Runs of each model; the first seed is that of the configs.
        trials: Trials to tune each model with, on the validation part of the first seed.
        fixed: Options that tuning does not change, by dotted name.
    """
    first = next(iter(configs.values()))
    if trials:
        import_optuna()
    dataset = open_dataset(first.dataset, first.data)
    split = prepare(first, dataset).split
    for pairs, part in ((split.valid, "valid"), (split.test, "test")):
        if not len(pairs):
            raise DataError(
                f"{dataset.name}: the {part} part is empty, and a comparison needs one; set"
                f" split.{part} above 0"
            )
    runs: dict[str, list[Run]] = {name: [] for name in configs}
    tuned: dict[str, TuningResult] = {}
    with phase("runs", len(configs) * num_seeds) as advance:
        for name, config in configs.items():
            place = folder / folder_name(name)
            if trials and search_space(config, fixed):
                tuned[name] = tune(config, place / "tune", trials, fixed=fixed, dataset=dataset)
                found = len(tuned[name].trials)
                if found > trials:
                    raise ConfigError(
                        f"{place}: has {found} trials, but every model gets {trials}; give --tune"
                        f" {found}, or choose another --out"
                    )
                config = tuned[name].config
            for seed in range(config.seed, config.seed + num_seeds):
                if find_run(place / f"seed-{seed}") is None:
                    log.info("training %s, seed %d", name, seed)
                run = config.model_copy(update={"seed": seed})
                runs[name].append(ensure_run(run, place / f"seed-{seed}", dataset))
                advance(1)

    def value(name: str) -> float:
        return statistics.fmean(run.record.valid[SELECTION_METRIC] for run in runs[name])

    runs = {name: runs[name] for name in sorted(runs, key=value, reverse=True)}
    (_, best), *others = runs.items()
    figures = [run.per_user for run in best]
    tests = {name: paired_tests([run.per_user for run in own], figures) for name, own in others}
    return Comparison(runs, tests, tuned)


def write_document(comparison: Comparison, folder: Path, command: str) -> None:
    """Write the table as Markdown and LaTeX, and every run as a line of CSV."""
    runs, tests = comparison.runs, comparison.tests
    table = comparison_table(runs, tests)
    records = [run.record for own in runs.values() for run in own]
    seeds = sorted({record.seed for record in records})
    commits = sorted({record.commit or f"mgformer {record.library}" for record in records})
    lines = [
        f"# {len(runs)} models on {records[0].dataset}",
        "",
        f"Generated by `{command}`.",
        "",
        table.markdown(),
        explanation(comparison.best, len(seeds), tests),
        "",
        f"- data: {records[0].fingerprint}",
        f"- protocol: {records[0].protocol}",
        f"- seeds: {', '.join(map(str, seeds))}",
        f"- code: {', '.join(commits)}",
        *(f"- {name}: {result.describe_best()}" for name, result in comparison.tuned.items()),
        "",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    document = folder / DOCUMENT
    write_text(document, "\n".join(lines))
    write_text(document.with_suffix(".tex"), table.latex())
    write_text(document.with_suffix(".csv"), runs_csv(runs))


def _name_and_mapping(model: str, presets: Path | None) -> tuple[str, dict[str, Any]]:
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
        log.info("%s: %s has no %s.toml; using the default options", name, presets, name)
    return name, {"model": {"name": name}}


def _protocol(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: mapping[name] for name in SHARED if name in mapping}


def _check_one_protocol(configs: Mapping[str, RunConfig]) -> None:
    """Refuse runs that differ in anything but model, training and scores."""
    (first, config), *others = configs.items()
    expected = _protocol(config.to_mapping())
    for name, other in others:
        differences = different_options(expected, _protocol(other.to_mapping()))
        for option, (one, two) in differences.items():
            raise ConfigError(
                f"{option} is {one!r} for {first} and {two!r} for {name}; a comparison needs one"
                " protocol: set it for all with --set"
            )
    if SELECTION_K not in config.evaluation.ks:
        raise ConfigError(
            f"evaluation.ks is {list(config.evaluation.ks)}; a comparison needs the cut-off"
            f" {SELECTION_K}, as in --set evaluation.ks=[{SELECTION_K}]"
        )
