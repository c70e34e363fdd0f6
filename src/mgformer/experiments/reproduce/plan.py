"""Which runs a table consists of."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mgformer.errors import ConfigError
from mgformer.experiments import paper
from mgformer.experiments.presets import preset
from mgformer.experiments.variants import AS_IT_IS, VARIANTS, start_of
from mgformer.progress import phase
from mgformer.runs.config import build_config, with_settings
from mgformer.runs.folder import Run, check_config, ensure_run, find_run

PAPER_SPLIT = {"kind": "ratio", "valid": 0.1, "test": 0.1}
"""80/10/10 per user at random."""
REFERENCE = "amazon-beauty"
"""Whose presets serve datasets that have none of their own."""
SIMPLE = ("popularity", "itemknn", "rp3beta", "puresvd", "ials", "ease", "gfcf")
PUBLISHED = (
    "bprmf", "lightgcn", "sgl", "gotnet", "simgcl", "gformer", "directau", "ultragcn", "mgformer",
)  # fmt: skip
TABLE2_MODELS = (*SIMPLE, *PUBLISHED)
FIGURE2_MODELS = ("lightgcn", "directau", "mgformer")


class Row(NamedTuple):
    """A line of a table."""

    name: str
    folder: str
    raw: Mapping[str, Any]
    """The run, as `build_config` takes it; the seed is set for each run."""
    paper: paper.Figures | None
    against: str
    """The row that it is tested against; itself: none."""


def table2_rows(dataset: str, models: Sequence[str] = TABLE2_MODELS) -> list[Row]:
    """Return the rows of table 2: every model with the paper's split."""
    stated = paper.TABLE2.get(dataset, {})
    return [
        Row(name, name, with_paper_split(dataset, name), stated.get(name), "mgformer")
        for name in known(models, TABLE2_MODELS, "model")
    ]


def table3_rows(dataset: str, variants: Sequence[str] = tuple(VARIANTS)) -> list[Row]:
    """Return the rows of table 3: MGFormer with one thing changed at a time."""
    base = with_paper_split(dataset, "mgformer")
    stated = paper.TABLE3 if dataset == REFERENCE else {}
    return [
        Row(
            name,
            variant_folder(name),
            with_settings(base, VARIANTS[name]),
            stated.get(name),
            start_of(name),
        )
        for name in known(variants, tuple(VARIANTS), "variant")
    ]


def with_paper_split(dataset: str, model: str) -> dict[str, Any]:
    """Return a model's run on a dataset with the paper's split.

    Options are those of the dataset's preset if it has this split, or was chosen on these data as
    the simple models' are; else of Beauty's, which has; else those of the dataset's preset for
    another split, else the defaults.
    """
    own, reference = preset(dataset, model), preset(REFERENCE, model)
    if own and (model in SIMPLE or _has_paper_split(own)):
        raw = own
    elif reference and _has_paper_split(reference):
        raw = reference
    else:
        raw = own or {"model": {"name": model}}
    return {**raw, "dataset": dataset, "split": PAPER_SPLIT}


def _has_paper_split(raw: Mapping[str, Any]) -> bool:
    return raw.get("split", {}).get("kind") == PAPER_SPLIT["kind"]


def variant_folder(name: str) -> str:
    """Return where runs of a variant lie; the preset's are those of table 2."""
    if name == AS_IT_IS:
        return "mgformer"
    return "mgformer-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def known(wanted: Sequence[str], names: Sequence[str], kind: str) -> Iterable[str]:
    """Return the names wanted, in the order of the table; refuse others."""
    for name in wanted:
        if name not in names:
            raise ConfigError(f"no {kind} {name!r}; choose from: {', '.join(names)}")
    return [name for name in names if name in wanted]


def run_all(rows: Sequence[Row], seeds: Sequence[int], out: Path) -> dict[str, list[Run]]:
    """Train what is missing; return the runs of every row, one for each seed.

    All rows of a seed come before those of the next: what is interrupted can be compared.
    """
    found: dict[str, list[Run]] = {row.name: [] for row in rows}
    jobs = [(row, seed) for seed in seeds for row in rows]
    with phase("runs", len(jobs)) as advance:
        for row, seed in jobs:
            config = build_config({**row.raw, "seed": seed}, row.name)
            found[row.name].append(ensure_run(config, out / row.folder / f"seed-{seed}"))
            advance(1)
    return found


def find_all(rows: Sequence[Row], out: Path) -> dict[str, list[Run]]:
    """Return the runs that are there, by seed, of the rows that have any; nothing is trained."""
    found: dict[str, list[Run]] = {}
    for row in rows:
        runs = [run for path in (out / row.folder).glob("seed-*") if (run := find_run(path))]
        for run in runs:
            wanted = build_config({**row.raw, "seed": run.record.seed}, row.name)
            check_config(run.folder, run.record.config, wanted)
        if runs:
            found[row.name] = sorted(runs, key=lambda run: run.record.seed)
    return found
