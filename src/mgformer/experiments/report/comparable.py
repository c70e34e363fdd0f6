"""Which runs can be compared, and which are the same run with another seed.

Figures can be compared between runs of one dataset (by fingerprint) and one protocol: such runs are
a set. Runs of a set that differ in nothing but the seed are one variant, of which there are means.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mgformer.errors import MgformerError
from mgformer.experiments.report.measured import shown_k
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.config import build_config, flat_options
from mgformer.runs.folder import Run
from mgformer.runs.record import Part, Record

_SEED_FOLDER = re.compile(r"seed[-_]?\d+")


class Variant(NamedTuple):
    """Runs that differ in nothing but the seed."""

    label: str
    runs: list[Run]

    def values(self, part: Part, name: str) -> list[float]:
        """Return a figure of every run that has it."""
        found = [run.record.figures(part).get(name) for run in self.runs]
        return [value for value in found if value is not None]

    def mean(self, part: Part, name: str) -> float | None:
        """Return the mean of a figure over seeds."""
        values = self.values(part, name)
        return float(np.mean(values)) if values else None


class Comparable(NamedTuple):
    """Runs of one dataset and one protocol."""

    variants: list[Variant]

    @property
    def runs(self) -> list[Run]:
        return [run for variant in self.variants for run in variant.runs]

    @property
    def k(self) -> int:
        return shown_k(self.runs[0].record)


def comparable_sets(runs: Sequence[Run], root: Path) -> list[Comparable]:
    """Return runs by dataset and protocol, those of a set by variant."""
    sets: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in runs:
        key = (run.record.fingerprint, run.record.protocol)
        sets.setdefault(key, {}).setdefault(_but_for_the_seed(run.record), []).append(run)
    return [Comparable(_labelled(list(variants.values()), root)) for variants in sets.values()]


def _but_for_the_seed(record: Record) -> str:
    """Return what tells a run from all that are not the same run with another seed."""
    described = record.config
    with suppress(MgformerError):  # an older library did not write options that have come since
        described = build_config(described).to_mapping()
    options = {n: v for n, v in flat_options(described).items() if n not in ("seed", "dataset")}
    return repr(sorted((name, repr(value)) for name, value in options.items()))


def _labelled(groups: list[list[Run]], root: Path) -> list[Variant]:
    """Call variants by their folders, the best on validation first."""
    labelled: dict[str, Variant] = {}
    for runs in groups:
        for place, own in _once_each(runs, root).items():
            label, again = place, 2
            while label in labelled:
                label, again = f"{place} ({again})", again + 1
            labelled[label] = Variant(label, sorted(own, key=lambda run: run.record.seed))
    return sorted(labelled.values(), key=lambda v: -(v.mean("valid", SELECTION_METRIC) or 0.0))


def _once_each(runs: list[Run], root: Path) -> dict[str, list[Run]]:
    """Return runs by place; as one unless a seed is there twice, and would count twice in means."""
    places: dict[str, list[Run]] = {}
    for run in runs:
        places.setdefault(_place(run.folder.relative_to(root)), []).append(run)
    if len({run.record.seed for run in runs}) == len(runs):
        return {next(iter(places)): runs}
    return places


def _place(folder: Path) -> str:
    """Return the folder without that of the seed."""
    of_seed = _SEED_FOLDER.fullmatch(folder.name) and len(folder.parts) > 1
    return str(folder.parent if of_seed else folder)
