"""Memory of the process: what a step frees is kept for the next one, and the peak is measured."""

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
    """Tell the C library not to give large arrays back to the system; return whether it heard.

    A step makes arrays as large as the tables of embeddings. By default each is fetched from the
    system, page by page, and given back: on gowalla (36 MB a gradient) that takes longer than
    computing with them, 24 ms of a backward pass instead of 5.
    """
    libc = _glibc()
    if libc is None:
        return False
    return bool(libc.mallopt(M_MMAP_THRESHOLD, LARGEST) and libc.mallopt(M_TRIM_THRESHOLD, LARGEST))


def use_large_pages() -> None:
    """Have torch ask for large pages; of use only before its first large array of the process.

    Rows of a table are gathered from all over it, and with small pages the processor looks up a
    page for almost each of them: without, a step of MGFormer on Beauty takes a tenth longer.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def reset_peak() -> bool:
    """Begin to measure the peak anew, without what others left behind; return whether it can be."""
    gc.collect()
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)
    try:
        (PROCESS / "clear_refs").write_text("5")  # proc(5): the peak becomes what is held now
    except OSError:
        return False
    return True


def peak_mb() -> int | None:
    """Return the most megabytes that the process held at once; None where that is not counted."""
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
