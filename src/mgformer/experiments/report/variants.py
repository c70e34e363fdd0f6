"""Runs that can be compared with each other, as variants.

Figures can be compared between runs on one dataset (by fingerprint) under one protocol. Such runs
are a set. Runs of a set that differ only in the seed are one variant, which is shown by its mean.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mgformer.errors import MgformerError
from mgformer.experiments.summary import Summary, summarize
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.config import flat_options
from mgformer.runs.folder import Run
from mgformer.runs.record import Record


class Variant(NamedTuple):
    """Runs that differ only in the seed."""

    label: str
    runs: list[Run]

    @property
    def summary(self) -> Summary:
        """Means over the seeds."""
        return summarize([run.record for run in self.runs])


def comparable_sets(runs: Sequence[Run], root: Path) -> list[list[Variant]]:
    """Return the sets of comparable runs as variants, the best on validation first."""
    sets: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in runs:
        key = (run.record.fingerprint, run.record.protocol)
        sets.setdefault(key, {}).setdefault(_options(run.record), []).append(run)
    return [_variants(list(by_options.values()), root) for by_options in sets.values()]


def _options(record: Record) -> str:
    """Return all options of a run except the seed, and what was measured."""
    described = record.config
    with suppress(MgformerError):  # fills in options that are newer than the record
        described = record.run_config().to_mapping()
    options = {n: v for n, v in flat_options(described).items() if n not in ("seed", "dataset")}
    named = sorted((name, repr(value)) for name, value in options.items())
    return repr((named, sorted(record.test), sorted(record.valid), sorted(record.groups)))


def _variants(groups: list[list[Run]], root: Path) -> list[Variant]:
    """Name the variants after their folders."""
    found: dict[str, Variant] = {}
    for runs in groups:
        by_folder: dict[str, list[Run]] = {}
        for run in runs:
            by_folder.setdefault(_place(run.folder.relative_to(root)), []).append(run)
        if len({run.record.seed for run in runs}) == len(runs):
            by_folder = {next(iter(by_folder)): runs}
        # Otherwise the same run is there twice, and a mean would count it twice.
        for place, own in by_folder.items():
            label, again = place, 2
            while label in found:
                label, again = f"{place} ({again})", again + 1
            found[label] = Variant(label, sorted(own, key=lambda run: run.record.seed))
    return sorted(found.values(), key=_validation, reverse=True)


def _validation(variant: Variant) -> float:
    figure = variant.summary.valid.get(SELECTION_METRIC)
    return figure.mean if figure else 0.0


def _place(folder: Path) -> str:
    """Return the folder of a run without a last part such as seed-3."""
    is_seed = re.fullmatch(r"seed[-_]?\d+", folder.name) and len(folder.parts) > 1
    return str(folder.parent if is_seed else folder)
