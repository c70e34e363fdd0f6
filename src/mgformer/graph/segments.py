"""Cut histories into short segments, so that items that follow each other count more.

A closed-form model counts in how many histories two items occur together. A segment is a few
successive items of a history. If segments count as histories too, items that follow each other
are counted together more often than the first and the last item of a long history.

Shapes: U users, I items, E pairs, S segments.
"""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.graph.sparse import row_numbers

LENGTH = 4
"""Items of a segment. Segments overlap by half, so two successive items share at least one."""


def with_segments(
    r: sp.csr_array, positions: NDArray[np.float32] | None, weight: float
) -> sp.csr_array:
    """Return the histories and, below them, their segments, [U + S, I].

    Two items share `weight` in each segment that has both: the entries of segments are those of the
    histories times √weight.

    Args:
        r: Histories [U, I].
        positions: [E] the share of the user's items that are not later. Without them, there are no
            segments.
        weight: What a segment counts, beside 1 for a history.
    """
    if positions is None or not weight or not r.nnz:
        return r
    counts = np.diff(r.indptr).astype(np.int64)
    rows = row_numbers(r)
    # Items of the same moment have the place of the last of them.
    places = np.rint(positions.astype(np.float64) * counts[rows]).astype(np.int64) - 1
    places = np.maximum(places, 0)
    kept = [r]
    values = (r.data * np.sqrt(np.float32(weight))).astype(np.float32)
    for shift in (0, LENGTH // 2):
        segments = -(-(counts + shift) // LENGTH)  # of each user
        first = np.cumsum(segments) - segments
        numbers = first[rows] + (places + shift) // LENGTH
        order = np.argsort(numbers, kind="stable")  # columns of a row stay ascending
        sizes = np.bincount(numbers, minlength=int(segments.sum()))
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(r.indptr.dtype)
        parts = (values[order], r.indices[order], starts)
        kept.append(sp.csr_array(parts, shape=(len(sizes), r.shape[1])))
    return sp.csr_array(sp.vstack(kept, format="csr"))
