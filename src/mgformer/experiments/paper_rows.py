"""Rows of tables, those of the paper among them: which run each row is, and where it is stored.

Runs are stored in `<out>/<row>/seed-<n>`. Tables share them: a run that exists is not repeated.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mgformer.data.dataset import Dataset
from mgformer.errors import ConfigError
from mgformer.files import folder_name
from mgformer.progress import phase
from mgformer.runs.config import RunConfig, build_config, read_config, with_settings
from mgformer.runs.folder import Run, check_config, ensure_run, find_run

_PACKAGED = Path(__file__).parent.parent / "configs"
PRESETS = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[3] / "configs"
"""One complete run per file, `<dataset>/<model>.toml`: in the installed package, or beside src."""
PAPER_SPLIT = {"kind": "ratio", "valid": 0.1, "test": 0.1}
"""80/10/10 per user at random."""
REFERENCE = "amazon-beauty"
"""Datasets without a preset of their own take the one of this dataset."""
SIMPLE = ("popularity", "itemknn", "rp3beta", "puresvd", "ials", "ease", "ridge", "gfcf")
PUBLISHED = (
    "bprmf", "lightgcn", "sgl", "gotnet", "simgcl", "gformer", "directau", "ultragcn", "mgformer",
)  # fmt: skip
OURS = ("directau-guide", "guided-spectral", "guided")
"""Our own rows: DirectAU with a guide in its score, and two guides of the guided transformer."""
WIDE = (
    "mgformer-wide", "directau-wide", "directau-guide-wide", "guided-spectral-wide", "guided-wide",
)  # fmt: skip
"""Presets with more channels than the paper allows, where a dataset has them."""
STATED = read_config(Path(__file__).with_name("published.toml"))
"""Figures of papers and benchmarks, kept there and nowhere else."""
TESTED_AGAINST = "guided"
"""The row of table 2 that the others are tested against."""
AS_IT_IS = "as it is"
VARIANTS: dict[str, list[str]] = read_config(Path(__file__).with_name("variants.toml"))["preset"]
"""Name in table 3 → settings, as `--set` takes them."""
log = logging.getLogger("mgformer")


class Figures(NamedTuple):
    """What a paper or a benchmark publishes for one model on one dataset."""

    recall: float
    ndcg: float
    source: str = "MGFormer paper"


class Row(NamedTuple):
    """A line of a table."""

    name: str
    folder: str
    config: RunConfig
    """Each run has its own seed."""
    paper: Figures | None = None
    against: str = ""
    """The row that it is tested against; its own name if it is not tested."""


def preset(dataset: str, name: str) -> dict[str, Any] | None:
    """Return a preset as `build_config` takes it; None if the dataset has none of this name."""
    path = PRESETS / dataset / f"{name}.toml"
    return read_config(path) if path.exists() else None


def published(table: str, dataset: str) -> dict[str, Figures]:
    """Return the figures that one of the tables of `published.toml` has for a dataset, by name."""
    found = STATED[table].get(dataset, {})
    return {name: Figures(*values) for name, values in found.items()}


def table2_rows(dataset: str, only: Collection[str] = ()) -> list[Row]:
    """Return the rows of table 2, or some of them: every model with the paper's split."""
    stated = published("table2", dataset)
    names = in_order(only, (*SIMPLE, *PUBLISHED, *OURS), "model")
    configs = {name: build_config(with_paper_split(dataset, name), name) for name in names}
    return [Row(name, name, configs[name], stated.get(name), TESTED_AGAINST) for name in names]


def wide_rows(dataset: str) -> list[Row]:
    """Return the presets with more channels than those of table 2."""
    found = {name: preset(dataset, name) for name in WIDE}
    return [
        Row(name, name, build_config(raw, name), against=WIDE[-1])
        for name, raw in found.items()
        if raw is not None
    ]


def table3_rows(dataset: str, only: Collection[str] = ()) -> list[Row]:
    """Return the rows of table 3, or some of them: MGFormer with one thing changed at a time."""
    base = with_paper_split(dataset, "mgformer")
    stated = published("table3", dataset)
    return [
        Row(
            name,
            # The preset itself is a row of table 2.
            "mgformer" if name == AS_IT_IS else f"mgformer-{folder_name(name.lower())}",
            build_config(with_settings(base, VARIANTS[name]), name),
            stated.get(name),
            against=AS_IT_IS,
        )
        for name in in_order(only, VARIANTS, "variant")
    ]


def with_paper_split(dataset: str, model: str) -> dict[str, Any]:
    """Return a model's run on a dataset with the paper's split.

    The options come from the first of these that exists: the preset of this dataset, if it has the
    paper's split or belongs to a simple model, whose options were chosen on these data; the preset
    of Beauty, if it has the paper's split; the preset of this dataset for another split; the
    defaults.
    """
    own, reference = preset(dataset, model), preset(REFERENCE, model)
    fitting = (raw for raw in (own, reference) if raw and raw["split"]["kind"] == "ratio")
    raw = own if own and model in SIMPLE else next(fitting, own)
    return {**(raw or {"model": {"name": model}}), "dataset": dataset, "split": PAPER_SPLIT}


def in_order(only: Collection[str], names: Collection[str], kind: str) -> list[str]:
    """Return the names in `only` in the order of the table, all if it is empty; refuse others."""
    for name in only:
        if name not in names:
            raise ConfigError(f"no {kind} {name!r}; choose from: {', '.join(names)}")
    return [name for name in names if not only or name in only]


def run_all(
    rows: Sequence[Row], seeds: Iterable[int], out: Path, dataset: Dataset | None = None
) -> dict[str, list[Run]]:
    """Train the runs that are missing; return the runs of every row, one for each seed.

    All rows of a seed are trained before the next seed, so that an interrupted table can be
    compared already. `dataset` is used instead of reading the dataset of the rows.
    """
    found: dict[str, list[Run]] = {row.name: [] for row in rows}
    jobs = [(row, seed) for seed in seeds for row in rows]
    with phase("runs", len(jobs)) as advance:
        for row, seed in jobs:
            folder = out / row.folder / f"seed-{seed}"
            if find_run(folder) is None:
                log.info("training %s, seed %d", row.name, seed)
            config = row.config.model_copy(update={"seed": seed})
            found[row.name].append(ensure_run(config, folder, dataset))
            advance(1)
    return found


def find_all(rows: Sequence[Row], out: Path) -> dict[str, list[Run]]:
    """Return the runs that exist, by seed, of the rows that have any; train nothing."""
    found: dict[str, list[Run]] = {}
    for row in rows:
        runs = [run for path in (out / row.folder).glob("seed-*") if (run := find_run(path))]
        for run in runs:
            wanted = row.config.model_copy(update={"seed": run.record.seed})
            check_config(run.folder, run.record.config, wanted)
        if runs:
            found[row.name] = sorted(runs, key=lambda run: run.record.seed)
    return found
