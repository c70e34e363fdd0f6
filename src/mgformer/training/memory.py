"""Memory that a step frees is kept for the next one."""

import ctypes
import sys

# Names and numbers of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell the C library not to give large arrays back to the system; return whether it heard.

    A step makes arrays as large as the tables of embeddings. By default each is fetched from the
    system, page by page, and given back: on gowalla (36 MB a gradient) that takes longer than
    computing with them, 24 ms of a backward pass instead of 5.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library than glibc
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, LARGEST))
