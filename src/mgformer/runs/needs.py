"""What a run needs in memory, time and disk, worked out from counts before it starts.

There are two figures for memory. The expected one counts all large arrays that a phase holds at
once, with every list full. The certain one leaves out what may be smaller, such as lists of items
with few neighbors. A run is refused only if the certain figure does not fit, so a run that fits is
never refused.

Shapes: U users, I items, N nodes, E pairs.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mgformer.data.interactions import Interactions
from mgformer.device import HOST, resolve
from mgformer.errors import ConfigError
from mgformer.memory import available_bytes
from mgformer.models.base import Footprint, Size, TrainableModel
from mgformer.runs.config import RunConfig, build_config, with_settings
from mgformer.runs.cost import epoch_seconds, guess_seconds
from mgformer.training.memory import return_freed_memory
from mgformer.training.options import TrainConfig
from mgformer.world import is_launched

SMALLEST_DIM = 16
RANKING_BYTES = 16
"""Bytes for each item while a user is ranked: scores, and what histories add."""


@dataclass(frozen=True)
class Need:
    """What a phase needs beyond what the process holds already."""

    phase: str
    expected: int
    """Bytes of memory."""
    certain: int
    """Bytes of memory that it cannot do without."""
    seconds: float | None = None
    """A rough guess; None if there is none."""


@dataclass(frozen=True)
class Needs:
    """What a run needs, and what there is."""

    size: Size
    phases: tuple[Need, ...]
    disk: int
    """Bytes of the trained recommender and of a checkpoint, if every list is full."""
    certain_disk: int
    available: int | None
    """Bytes of memory that are free; None if the system does not tell."""
    free: int
    """Bytes on the disk that are free."""

    @property
    def largest(self) -> Need:
        """The phase that is expected to need most memory."""
        return max(self.phases, key=lambda need: need.expected)

    @property
    def fits(self) -> bool:
        """Whether there is enough for what the run cannot do without."""
        certain = max(need.certain for need in self.phases)
        enough = self.available is None or certain <= self.available
        return enough and self.certain_disk <= self.free

    @property
    def is_tight(self) -> bool:
        """Whether more is expected than there is."""
        too_much = self.available is not None and self.largest.expected > self.available
        return too_much or self.disk > self.free


def needs(
    config: RunConfig, pairs: Interactions, folder: Path | None = None, *, is_split: bool = False
) -> Needs:
    """Return what a run needs on some data that were read.

    Args:
        config: The run.
        pairs: All pairs of the data.
        folder: Where the recommender is saved.
        is_split: Whether the data are split already.
    """
    size = Size(pairs.num_users, pairs.num_items, len(pairs))
    own = config.model_class.footprint(config.model, size)
    arrays = [a for a in (pairs.times, pairs.places, pairs.weights) if a is not None]
    values, guess = sum(a.itemsize for a in arrays), guess_seconds(pairs).get(config.model_name)
    phases = tuple(phases_of(config, size, own, values=values, guess=guess))
    disk, certain_disk = _disk(own, size, is_trained=config.trainable)
    place = Path() if folder is None else folder.absolute()
    while not place.exists():
        place = place.parent
    return Needs(
        size,
        phases[1:] if is_split else phases,
        disk,
        0 if folder is None else certain_disk,
        available_bytes(swap=True),
        shutil.disk_usage(place).free,
    )


def check_fits(config: RunConfig, pairs: Interactions, folder: Path | None = None) -> None:
    """Refuse a run that cannot fit, with advice in one line; its data are split."""
    if not is_checked(config):
        return
    if not needs(config, pairs, folder, is_split=True).fits:
        return_freed_memory()  # what an earlier run of this process has freed can be used again
        found = needs(config, pairs, folder, is_split=True)
        if not found.fits:
            advised = advice(config, pairs, folder, is_split=True)
            raise ConfigError(f"{refusal(config, found)}; {advised}")


def is_checked(config: RunConfig) -> bool:
    """Return whether a run is refused if it cannot fit.

    Runs of several processes, and those on another device than the processor, are not.
    """
    return not is_launched() and resolve(config.train.device) == HOST


def refusal(config: RunConfig, found: Needs) -> str:
    """Return what does not fit."""
    need = max(found.phases, key=lambda one: one.certain)
    if found.available is not None and need.certain > found.available:
        return (
            f"{config.model_name}: {need.phase} needs at least {in_words(need.certain)} of memory,"
            f" got {in_words(found.available)} that are free"
        )
    return (
        f"{config.model_name}: the recommender needs at least {in_words(found.certain_disk)} of"
        f" disk, got {in_words(found.free)} that are free"
    )


def advice(
    config: RunConfig, pairs: Interactions, folder: Path | None = None, *, is_split: bool = False
) -> str:
    """Return what would fit; the arguments are those of `needs`."""

    def fits(settings: list[str], place: Path | None = folder) -> bool:
        try:
            changed = build_config(with_settings(config.to_mapping(), settings))
        except ConfigError:  # the model does not take them
            return False
        return needs(changed, pairs, place, is_split=is_split).fits

    if issubclass(config.model_class, TrainableModel):
        rows: list[str] = []
        is_dense = config.train.optimizer != "rows" and config.model_class.takes_rows(config.model)
        if is_dense and not fits([], None):  # it saves memory, but no disk
            rows = ["train.optimizer=rows"]
        dim = getattr(config.model, "dim", None)
        while isinstance(dim, int) and dim >= 2 * SMALLEST_DIM:
            dim //= 2
            settings = [*rows, f"model.dim={dim}"]
            if fits(settings):
                return f"use {' '.join(f'--set {setting}' for setting in settings)}"
    return (
        "use a computer with more memory or disk, or fewer items and users"
        " (--set data.k_core=5), or --model itemknn"
    )


def in_words(number: int) -> str:
    """Return a number of bytes for people."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e8 else f"{number / 1e6:,.1f} MB"


def phases_of(
    config: RunConfig,
    size: Size,
    own: Footprint,
    *,
    values: int = 0,
    guess: float | None = None,
) -> Iterator[Need]:
    """Yield the phases after reading, which has been done: the process holds the pairs.

    Args:
        config: The run.
        size: Counts of its data.
        own: What the model needs.
        values: Bytes of the time, place and weight of a pair.
        guess: Seconds of preparing; for guided, those of an epoch too.
    """
    num_pairs, num_nodes = size.num_pairs, size.num_nodes
    parts = (4 + values) * num_pairs + 24 * size.num_users
    # Keys of pairs and their order, while they are sorted within users.
    yield Need("splitting", parts + 24 * num_pairs, parts)
    # Users of training pairs, and the ones of their matrix.
    held = parts + 8 * num_pairs
    preparing = guess
    dim = getattr(config.model, "dim", 0)
    epoch = epoch_seconds(num_nodes, num_pairs, dim, rows=config.train.optimizer == "rows")
    if guess is not None and config.model_name == "guided":
        preparing = guess - epoch_seconds(num_nodes, num_pairs, 128)
    yield Need("preparing", held + own.preparing, 0, preparing)
    if config.trainable:
        copies = _copies(config.train)
        batches = (8 + 8) * num_pairs  # the order of pairs of an epoch
        seconds = config.train.epochs * epoch if config.model_name == "guided" else None
        yield Need(
            f"training, at most {config.train.epochs} epochs",
            held + own.held + copies * own.table + batches,
            3 * own.table,  # the weights, and two means of Adam
            seconds,
        )
    ranking = RANKING_BYTES * size.num_items + 1_000_000 * config.evaluation.memory_mb
    # With the training still there: its tables, the best weights, and vectors in two forms.
    tables = (4 + 2) * own.table if config.trainable else 0
    least = 3 * own.table if config.trainable else 0
    yield Need("ranking", held + own.held + tables + ranking, least)


def _copies(options: TrainConfig) -> int:
    """Return how many tables are held: the weights, Adam's two means, the best, and a gradient."""
    return 4 if options.optimizer == "rows" else 5


def _disk(own: Footprint, size: Size, *, is_trained: bool) -> tuple[int, int]:
    """Return the bytes of the files: expected, and those that must be written."""
    pairs = 4 * size.num_pairs + 8 * size.num_nodes
    histories = 8 * size.num_pairs
    tables = 2 * own.table  # weights, and vectors that rank
    checkpoint = 4 * own.table if is_trained else 0
    return pairs + histories + tables + own.held + checkpoint, pairs + tables
