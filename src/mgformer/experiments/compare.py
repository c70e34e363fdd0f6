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
from mgformer.experiments import tables
from mgformer.experiments.paper_rows import Row, run_all
from mgformer.experiments.search import import_optuna, search_space
from mgformer.experiments.tune import TuningResult, option_list, tune
from mgformer.files import folder_name
from mgformer.models import import_model, model_names
from mgformer.ranking.metrics import SELECTION_K, SELECTION_METRIC
from mgformer.runs import config as run_config
from mgformer.runs.config import RunConfig, read_config
from mgformer.runs.folder import Run
from mgformer.runs.train import prepare

DOCUMENT = "compare.md"
SHARED = ("dataset", "seed", "warm_start", "data", "split", "evaluation")
log = logging.getLogger("mgformer")


class Comparison(NamedTuple):
    """Runs of several models, the best by validation NDCG@20 first."""

    runs: dict[str, list[Run]]
    """Name → its runs, one for each seed."""
    tests: Mapping[str, tables.Tests]
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
        presets: A folder where NAME.toml has the options of the model NAME.
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
        chosen = run_config.with_choices(whole, dataset)
        configs[name] = run_config.build_config(run_config.with_settings(chosen, settings), name)
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
    """Tune the models, train the runs that are missing, and compare all of them.

    Each model is tuned with this many trials on the validation part of the first seed, which is
    that of the configs. Tuning does not change the options in `fixed`.
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
    rows, tuned = [], {}
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
        rows.append(Row(name, place.name, config))
    runs = run_all(rows, range(first.seed, first.seed + num_seeds), folder, dataset)
    valid = {
        name: statistics.fmean(run.record.valid[SELECTION_METRIC] for run in own)
        for name, own in runs.items()
    }
    best, *others = sorted(runs, key=valid.__getitem__, reverse=True)
    tests = tables.row_tests(runs, dict.fromkeys(others, best))
    return Comparison({name: runs[name] for name in (best, *others)}, tests, tuned)


def write_document(comparison: Comparison, folder: Path, command: str) -> None:
    """Write the table as Markdown and LaTeX, and every run as a line of CSV."""
    runs, tests = comparison.runs, comparison.tests
    table = tables.comparison_table(runs, tests)
    records = [run.record for own in runs.values() for run in own]
    seeds = sorted({record.seed for record in records})
    commits = sorted({record.commit or f"mgformer {record.library}" for record in records})
    lines = [
        f"# {len(runs)} models on {records[0].dataset}",
        "",
        f"Generated by `{command}`.",
        "",
        table.markdown(),
        tables.explanation(comparison.best, len(seeds), tests),
        "",
        f"- data: {records[0].fingerprint}",
        f"- protocol: {records[0].protocol}",
        f"- seeds: {', '.join(map(str, seeds))}",
        f"- code: {', '.join(commits)}",
        *(
            f"- {name}: {result.counts()};"
            f" {option_list(result.changes(result.best)) or 'the given options'}"
            for name, result in comparison.tuned.items()
        ),
        "",
    ]
    note = tables.explanation(comparison.best, len(seeds), tests)
    csv = tables.runs_csv(runs)
    table.write(folder / DOCUMENT, "\n".join(lines), csv, tables.RANKED, note)


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
        differences = run_config.different_options(expected, _protocol(other.to_mapping()))
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
