"""How much memory there is."""

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where a container says how much it may use in all."""


def available_bytes(*, swap: bool = False) -> int | None:
    """Return the memory that is free, or None if the system does not tell.

    With `swap`, the free place for swapping is added.
    """
    try:
        found = {line.split()[0]: int(line.split()[1]) * 1024 for line in _lines(MEMINFO)}
        added = found.get("SwapFree:", 0) if swap else 0
        return min([found["MemAvailable:"] + added, *_limits()])
    except (OSError, KeyError, IndexError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if len(line.split()) > 1]


def _limits() -> list[int]:
    """Return the limits of the container; one without a limit has none or a huge one."""
    found = []
    for path in LIMITS:
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    return found
