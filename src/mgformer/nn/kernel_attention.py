"""Attention over all nodes at linear cost, with the sine mask; over edges; and exact.

With positive features in logarithms, masked kernel attention, Eq. (12) of the MGFormer paper, is
two softmaxes. The keys are drawn together in a summary: for each feature r the logarithm of its
mass, L_r = logsumexp_j a_jr, and the mean of the values it stands for, V_r = Σ_j softmax_j(a_jr)
v_j. A query mixes these means: h_i = Σ_r softmax_r(b_ir + L_r) V_r. Nothing overflows, no epsilon
is needed, and summaries of disjoint sets of nodes merge in any order.

The sine mask is a feature map, Eq. (11): sin(c_i + c_j) = sin c_i cos c_j + cos c_i sin c_j, so
every feature appears twice. Angles c = πz/4 lie in [0, π/2]. Sines and cosines are kept above
zero by the least number that leaves every other value as it is, so a node of angle 0 has a finite
logarithm and the gradient of the formula. If the angles of a query and of all keys are 0, the
formula is 0/0: the result is then that of equal small angles, attention without the mask.

Shapes: n keys, q queries, m channels, F rows of the projection, R features (2F with the mask, F
without), D channels of the values, E edges.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from mgformer.nn.features import positive_log_features

T = TypeVar("T")
EDGES = 65_536
"""Edges whose features are held at a time."""
SCORES = 2**24
"""Scores of pairs that are held at a time."""


class Summary(NamedTuple):
    """What attention needs to know of the keys, whatever their number."""

    log_mass: Tensor  # [R]
    means: Tensor  # [R, D]


def summarize(log_features: Tensor, values: Tensor) -> Summary:
    """Return the summary of keys with log features [n, R] and values [n, D]."""
    return Summary(log_features.logsumexp(0), log_features.softmax(0).T @ values)


def merge(a: Summary, b: Summary) -> Summary:
    """Return the summary of the keys of both; one of them may be of no keys, not both."""
    log_mass = torch.logaddexp(a.log_mass, b.log_mass)
    of_a = (a.log_mass - log_mass).exp()[:, None]  # [R, 1]
    of_b = (b.log_mass - log_mass).exp()[:, None]
    return Summary(log_mass, of_a * a.means + of_b * b.means)


def summarize_chunked(
    keys: Tensor, values: Tensor, projection: Tensor, angles: Tensor | None, chunk: int
) -> Summary:
    """Return the summary of keys [n, m] and values [n, D], `chunk` of them at a time.

    Features are computed again in the backward pass. Beyond its inputs it keeps the summary of
    each chunk, R·D numbers, which is less than the inputs if a chunk has more than R keys.
    """

    def piece(keys: Tensor, values: Tensor, angles: Tensor | None) -> tuple[Tensor, Tensor]:
        return summarize(log_key_features(keys, projection, angles), values)

    parts = zip(
        torch.split(keys, chunk),
        torch.split(values, chunk),
        _split(angles, chunk, len(keys)),
        strict=True,
    )
    return reduce(merge, (Summary(*_recomputed(piece, *part)) for part in parts))


def attend(log_query_features: Tensor, summary: Summary) -> Tensor:
    """Return what queries with log features [q, R] read from a summary, [q, D].

    A constant added to a row of the features has no effect.
    """
    return (log_query_features + summary.log_mass).softmax(1) @ summary.means


def log_key_features(keys: Tensor, projection: Tensor, angles: Tensor | None) -> Tensor:
    """Return log features [n, R] of keys [n, m], masked by their angles [n] if given."""
    features = positive_log_features(keys, projection)
    if angles is None:
        return features
    sin, cos = _sin_cos(angles)
    return torch.cat([features + cos.log(), features + sin.log()], dim=1)


def log_query_features(queries: Tensor, projection: Tensor, angles: Tensor | None) -> Tensor:
    """Return log features [q, R] of queries [q, m], up to a constant for each query."""
    features = queries @ projection.T  # exp(-½‖q‖²) cancels
    if angles is None:
        return features
    sin, cos = _sin_cos(angles)
    return torch.cat([features + sin.log(), features + cos.log()], dim=1)


def kernel_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    projection: Tensor,
    angles: Tensor | None = None,
    *,
    query_angles: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Return masked kernel attention [q, D] of Eq. (12), finite at any scale.

    Args:
        queries: [q, m], scaled by m^(-1/4).
        keys: [n, m], scaled by m^(-1/4).
        values: [n, D].
        projection: [F, m].
        angles: Angles of the keys [n], in [0, π/2]; None: no mask.
        query_angles: Angles of the queries [q]; the keys' angles, if not given.
        chunk: Nodes to take at a time; features are then never kept, but computed again in the
            backward pass. None: all at once.
    """
    if query_angles is None:
        query_angles = angles
    if chunk is None:
        summary = summarize(log_key_features(keys, projection, angles), values)
        return attend(log_query_features(queries, projection, query_angles), summary)

    summary = summarize_chunked(keys, values, projection, angles, chunk)

    def read(queries: Tensor, angles: Tensor | None) -> Tensor:
        return attend(log_query_features(queries, projection, angles), summary)

    parts = zip(torch.split(queries, chunk), _split(query_angles, chunk, len(queries)), strict=True)
    if not torch.is_grad_enabled():
        # Into place: putting the parts together afterwards would take the memory twice.
        result = queries.new_empty(len(queries), values.shape[1])
        for rows, part in zip(torch.split(result, chunk), parts, strict=True):
            rows.copy_(read(*part))
        return result
    return torch.cat([_recomputed(read, *part) for part in parts])


def sine_mask(
    q_features: Tensor, k_features: Tensor, angles: Tensor, query_angles: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Fold the weights sin(c_i + c_j) into plain features [q, F] and [n, F]: Eq. (11), [·, 2F].

    Angles are those of the keys [n]; those of the queries [q] are the same, if not given.
    """
    sin, cos = _sin_cos(angles)
    q_sin, q_cos = (sin, cos) if query_angles is None else _sin_cos(query_angles)
    masked_q = torch.cat([q_features * q_sin, q_features * q_cos], dim=1)
    return masked_q, torch.cat([k_features * cos, k_features * sin], dim=1)


def linear_attention(
    q_features: Tensor, k_features: Tensor, values: Tensor, floor: float = 1e-3
) -> Tensor:
    """Return attention [q, D] through sums of plain features [q, R] and [n, R]: Eq. (6).

    The denominator Σ_r φ_r(q) Σ_j φ_r(k_j) of features that may be negative can vanish. Where it
    is smaller than `floor` times the sum of the magnitudes of its terms, it is set to that, with
    its sign. For features that are positive both are equal, and nothing is changed.
    """
    context = k_features.T @ values  # [R, D]
    terms = q_features * k_features.sum(0)  # [q, R]
    total, least = terms.sum(1), floor * terms.abs().sum(1)  # [q]
    least = least.clamp_min(torch.finfo(least.dtype).tiny)
    total = torch.where(total.abs() < least, torch.where(total < 0, -least, least), total)
    return q_features @ context / total[:, None]


def edge_scores(
    log_query_features: Tensor,
    log_key_features: Tensor,
    rows: Tensor,
    columns: Tensor,
    *,
    chunk: int = EDGES,
) -> Tensor:
    """Return log φ(q_i)·φ(k_j) [E] for edges from nodes `rows` to nodes `columns`, both [E].

    Features of edges are held of a chunk at a time, and computed again in the backward pass.
    """

    def piece(rows: Tensor, columns: Tensor) -> Tensor:
        return (log_query_features[rows] + log_key_features[columns]).logsumexp(1)

    parts = zip(rows.split(chunk), columns.split(chunk), strict=True)
    return torch.cat([_recomputed(piece, *part) for part in parts])


def edge_attention(
    scores: Tensor, rows: Tensor, columns: Tensor, values: Tensor, num_nodes: int
) -> Tensor:
    """Return attention [num_nodes, D] of each node over its neighbours: Eq. (8) with M = A.

    Args:
        scores: Logarithms of the weights of the edges [E].
        rows: The node of each edge that attends [E], in ascending order.
        columns: The node of each edge that is attended to [E].
        values: [n, D].
        num_nodes: Rows of the result; nodes without an edge get zeros.
    """
    peaks = scores.new_zeros(num_nodes)
    peaks = peaks.scatter_reduce(0, rows, scores.detach(), "amax", include_self=False)
    weights = (scores - peaks[rows]).exp()  # [E], 1 at the largest of each node
    total = weights.new_zeros(num_nodes).index_add(0, rows, weights)
    starts = torch.searchsorted(rows, torch.arange(num_nodes + 1))
    return functional.embedding_bag(
        columns,
        values,
        starts,
        mode="sum",
        per_sample_weights=weights / total[rows],
        include_last_offset=True,
    )


def softmax_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    angles: Tensor | None = None,
    *,
    query_angles: Tensor | None = None,
    most: int = SCORES,
) -> Tensor:
    """Return exact attention [q, D], Eq. (8) with the exponential kernel, in O(q·n).

    Arguments are those of `kernel_attention`; at most so many scores are held at a time.
    """
    if query_angles is None:
        query_angles = angles

    def piece(queries: Tensor, of_queries: Tensor | None) -> Tensor:
        scores = queries @ keys.T  # [q, n]
        if of_queries is not None and angles is not None:
            sines = (of_queries[:, None] + angles).sin()  # Eq. (10)
            scores = scores + _above_zero(sines).log()
        return scores.softmax(1) @ values

    chunk = max(1, most // max(len(keys), 1))
    if len(queries) <= chunk:
        return piece(queries, query_angles)
    parts = zip(queries.split(chunk), _split(query_angles, chunk, len(queries)), strict=True)
    return torch.cat([_recomputed(piece, *part) for part in parts])


def _above_zero(weights: Tensor) -> Tensor:
    """Add the least number to weights in [0, 1] whose products with eps are normal numbers."""
    info = torch.finfo(weights.dtype)
    return weights.clamp_min(0) + info.tiny / info.eps


def _sin_cos(angles: Tensor) -> tuple[Tensor, Tensor]:
    """Return sines and cosines above zero of angles [n], [n, 1] each."""
    return _above_zero(angles.sin())[:, None], _above_zero(angles.cos())[:, None]


def _split(angles: Tensor | None, chunk: int, count: int) -> Sequence[Tensor | None]:
    """Return the angles of each chunk of `count` nodes; no nodes make one chunk."""
    return (
        [None] * max(math.ceil(count / chunk), 1) if angles is None else torch.split(angles, chunk)
    )


def _recomputed(function: Callable[..., T], *arguments: Tensor | None) -> T:
    """Call a function and keep none of its steps: the backward pass takes them again."""
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
