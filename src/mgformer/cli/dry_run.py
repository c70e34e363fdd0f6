"""mgformer train --dry-run: what a training needs, before it starts."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgformer.cli.console import err, out, print_json, print_table, working
from mgformer.errors import ConfigError

if TYPE_CHECKING:
    from mgformer.runs.config import RunConfig

UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


def dry_run(config: "RunConfig", folder: Path, *, as_json: bool) -> None:
    """Read the data, and print what the run needs; one that cannot fit is an error with advice."""
    from mgformer.data.dataset import open_dataset
    from mgformer.runs.needs import advice, in_words, is_checked, needs, refusal

    with working():
        pairs = open_dataset(config.dataset, config.data).interactions
    found = needs(config, pairs, folder)
    if as_json:
        described: dict[str, Any] = {"model": config.model_name, **asdict(found)}
        described["size"] = found.size._asdict()
        print_json({**described, "fits": found.fits, "tight": found.is_tight})
    else:
        size = found.size
        out.print(
            f"{config.model_name} on {size.num_users:,} users, {size.num_items:,} items and"
            f" {size.num_pairs:,} pairs"
        )
        rows = [
            [need.phase, in_words(need.expected), in_words(need.certain), duration(need.seconds)]
            for need in found.phases
        ]
        print_table(["phase", "memory", "at least", "time, roughly"], rows)
        if found.available is not None:
            out.print(f"free memory: {in_words(found.available)}")
        out.print(f"disk: {in_words(found.disk)}, of {in_words(found.free)} that are free")
    if not found.fits and is_checked(config):
        raise ConfigError(f"{refusal(config, found)}; {advice(config, pairs, folder)}")
    if found.is_tight:
        err.print("the run may not fit: it may need more than is free", style="yellow")


def duration(seconds: float | None) -> str:
    """Return seconds in the largest unit that they fill at least once."""
    if seconds is None:
        return "–"
    size, unit = next(((s, u) for s, u in UNITS if seconds >= s), UNITS[-1])
    return f"{seconds / size:.0f} {unit}"
