"""The option --shard: one of several calls makes the lists of its part of the users."""

import re
from pathlib import Path
from typing import NamedTuple

from mgformer.errors import ConfigError


class Shard(NamedTuple):
    """A part of the users; parts are numbered from 1."""

    part: int
    parts: int

    def slice_of(self, count: int) -> slice:
        """Return the users of this part among `count`; parts differ by one user at most."""
        return slice(count * (self.part - 1) // self.parts, count * self.part // self.parts)

    def name_of(self, target: Path) -> Path:
        """Return the file of this part: `lists-3-of-8.parquet` for `lists.parquet`."""
        number = f"{self.part:0{len(str(self.parts))}d}"
        return target.with_name(f"{target.stem}-{number}-of-{self.parts}{target.suffix}")


def read_shard(text: str) -> Shard:
    """Return the part that a text such as "3/8" names."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    shard = Shard(*map(int, found.groups())) if found else None
    if shard is None or not 1 <= shard.part <= shard.parts:
        raise ConfigError(
            f"--shard {text}: expected PART/PARTS with a part from 1 to PARTS, such as 3/8 for the"
            " third of eight"
        )
    return shard
