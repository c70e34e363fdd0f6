"""Memory of the process: keep what a step frees for the next step, and measure the peak."""

import ctypes
import gc
import os
import sys
from pathlib import Path

# Names and numbers of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 2**31 - 1
PROCESS = Path("/proc/self")


def keep_freed_memory() -> bool:
    """Tell the C library not to return large arrays to the system; return whether that worked.

    A step allocates arrays as large as the embedding tables. By default the system maps each of
    them anew, page by page. On gowalla (36 MB per gradient) that takes longer than the computation:
    24 ms for a backward pass instead of 5.
    """
    libc = _glibc()
    if libc is None:
        return False
    return bool(libc.mallopt(M_MMAP_THRESHOLD, LARGEST) and libc.mallopt(M_TRIM_THRESHOLD, LARGEST))


def use_large_pages() -> None:
    """Make torch use large pages. Call it before torch allocates its first large array.

    A step gathers rows from all over a table. With small pages the processor looks up a page for
    almost every row, and a step of MGFormer on Beauty takes a tenth longer.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def return_freed_memory() -> None:
    """Give the system what the process has freed."""
    gc.collect()
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def reset_peak() -> bool:
    """Restart the measurement of the peak; return whether the system supports it."""
    return_freed_memory()
    try:
        (PROCESS / "clear_refs").write_text("5")  # proc(5): the peak becomes what is held now
    except OSError:
        return False
    return True


def peak_mb() -> int | None:
    """Return the peak memory of the process in megabytes; None if the system does not count it."""
    try:
        status = (PROCESS / "status").read_text()
    except OSError:
        return None
    held = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return round(int(held[0]) / 1024) if held else None


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:  # another C library than glibc
        return None
    return libc if hasattr(libc, "mallopt") else None
