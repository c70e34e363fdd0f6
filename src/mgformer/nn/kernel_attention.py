"""Masked kernel attention at linear cost: Eq. (6) to (12) of the MGFormer paper, in their order.

`naive_attention.py` states the same equations over all pairs. It is the specification.
The random features φ, Eq. (7), are in `nn.features`.

With positive features in logarithms, Eq. (12) is two softmaxes. The first one summarizes the keys:
each feature r keeps the logarithm of its mass, L_r = logsumexp_j a_jr, and a mean of the values,
V_r = Σ_j softmax_j(a_jr) v_j. The second one mixes these means for each query:
h_i = Σ_r softmax_r(b_ir + L_r) V_r. Nothing overflows, no epsilon is needed, and summaries of
disjoint sets of nodes can be merged in any order. Processes that own parts of the keys merge theirs
by one maximum and one sum over processes: messages have R (1 + D) numbers, whatever n is.

The sine mask doubles the features: sin(c_i + c_j) = sin c_i cos c_j + cos c_i sin c_j. Angles
c = πz/4 lie in [0, π/2]. Sines and cosines are kept above zero by the smallest number that does not
change other values, so that a node of angle 0 has a finite logarithm and the correct gradient. If
the angles of a query and of all its keys are 0, the formula is 0/0; the result is then attention
without the mask, the limit of equal small angles.

Shapes: n keys, q queries, m channels, F rows of the projection, R features (2F with the mask, F
without), D channels of the values, E edges.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from mgformer.nn.embeddings import rows_at
from mgformer.nn.features import positive_log_features
from mgformer.world import ALONE, World

T = TypeVar("T")
NO_WEIGHT = -1e30
"""Logarithm of the weight of a key that does not count: finite, so that sums of such keys are."""
EDGES = 65_536
"""Edges whose features are held at a time."""
SCORES = 2**24
"""Scores of pairs that are held at a time."""


def linear_attention(
    q_features: Tensor,
    k_features: Tensor,
    values: Tensor,
    floor: float = 1e-3,
    *,
    world: World = ALONE,
) -> Tensor:
    """Return attention [q, D] from plain features [q, R] and [n, R]: Eq. (6).

    The denominator Σ_r φ_r(q) Σ_j φ_r(k_j) can vanish if features may be negative. Its magnitude is
    kept at `floor` times the sum of the magnitudes of its terms or above. The bound has no effect
    on positive features, where the two are equal. In a world of several processes, each has a part
    of the keys.
    """
    mass, context = k_features.sum(0), k_features.T @ values  # [R], [R, D]
    if world.size > 1:
        together = world.total(torch.cat([mass[:, None], context], dim=1))
        mass, context = together[:, 0], together[:, 1:]
    terms = q_features * mass  # [q, R]
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

    The features of one chunk of edges are held at a time. The backward pass computes them again.
    """

    def piece(rows: Tensor, columns: Tensor) -> Tensor:
        return (rows_at(log_query_features, rows) + rows_at(log_key_features, columns)).logsumexp(1)

    return torch.cat(list(_recomputed(piece, chunk, rows, columns)))


def edge_attention(
    scores: Tensor, rows: Tensor, columns: Tensor, values: Tensor, num_nodes: int
) -> Tensor:
    """Return attention [num_nodes, D] of each node over its neighbors: Eq. (8) with M = A.

    Edges [E] lead from ascending `rows` to `columns`, the nodes of the values [n, D]. `scores` are
    the logarithms of their weights. Nodes without an edge get zeros.
    """
    peaks = scores.new_zeros(num_nodes)
    peaks = peaks.scatter_reduce(0, rows, scores.detach(), "amax", include_self=False)
    weights = (scores - peaks[rows]).exp()  # [E], 1 at the largest of each node
    total = weights.new_zeros(num_nodes).index_add(0, rows, weights)
    starts = torch.searchsorted(rows, torch.arange(num_nodes + 1, device=rows.device))
    return functional.embedding_bag(
        columns,
        values,
        starts,
        mode="sum",
        per_sample_weights=weights / total.index_select(0, rows),
        include_last_offset=True,
    )


def softmax_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    angles: Tensor | None = None,
    *,
    query_angles: Tensor | None = None,
    max_scores: int = SCORES,
) -> Tensor:
    """Return exact attention [q, D], Eq. (8) with the exponential kernel, in O(q·n).

    At most `max_scores` scores are held at a time; the other arguments are those of
    `kernel_attention`.
    """
    if query_angles is None:
        query_angles = angles

    def piece(queries: Tensor, of_queries: Tensor | None) -> Tensor:
        scores = queries @ keys.T  # [q, n]
        if of_queries is not None and angles is not None:
            sines = (of_queries[:, None] + angles).sin()  # Eq. (10)
            scores = scores + _above_zero(sines).log()
        return scores.softmax(1) @ values

    chunk = max(1, max_scores // max(len(keys), 1))
    return torch.cat(list(_recomputed(piece, chunk, queries, query_angles)))


def sine_mask(
    q_features: Tensor, k_features: Tensor, angles: Tensor, query_angles: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Multiply the weights sin(c_i + c_j) into plain features [q, F] and [n, F]: Eq. (11), [·, 2F].

    `angles` [n] belong to the keys, `query_angles` [q] to the queries; the same if not given.
    """
    sin, cos = _sin_cos(angles)
    q_sin, q_cos = (sin, cos) if query_angles is None else _sin_cos(query_angles)
    masked_q = torch.cat([q_features * q_sin, q_features * q_cos], dim=1)
    return masked_q, torch.cat([k_features * cos, k_features * sin], dim=1)


def log_key_features(
    keys: Tensor, projection: Tensor, angles: Tensor | None, counted: Tensor | None = None
) -> Tensor:
    """Return log features [n, R] of keys [n, m], with the sine mask if angles [n] are given.

    With a mask `counted` [n], other keys get no weight.
    """
    features = positive_log_features(keys, projection)
    if counted is not None:
        features = features + torch.where(counted, 0.0, NO_WEIGHT)[:, None]
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


class Summary(NamedTuple):
    """Everything that attention needs to know about the keys, whatever their number."""

    log_mass: Tensor  # L [R]
    means: Tensor  # V [R, D]


def summarize(log_features: Tensor, values: Tensor) -> Summary:
    """Return the summary of keys with log features [n, R] and values [n, D]."""
    return Summary(log_features.logsumexp(0), log_features.softmax(0).T @ values)


def merge(a: Summary, b: Summary) -> Summary:
    """Return the summary of the keys of both; at least one of them must have keys."""
    log_mass = torch.logaddexp(a.log_mass, b.log_mass)
    of_a = (a.log_mass - log_mass).exp()[:, None]  # [R, 1]
    of_b = (b.log_mass - log_mass).exp()[:, None]
    return Summary(log_mass, of_a * a.means + of_b * b.means)


def merge_all(own: Summary, world: World) -> Summary:
    """Return the summary of the keys of all processes; at least one of them must have keys.

    A process without keys has masses of log 0. The peaks cancel, so they need no gradient.
    """
    if world.size == 1:
        return own
    peaks = world.largest(own.log_mass)
    mass = (own.log_mass - peaks).exp()[:, None]  # [R, 1], at most 1
    together = world.total(torch.cat([mass, mass * own.means], dim=1))
    mass = together[:, :1]
    return Summary(peaks + mass[:, 0].log(), together[:, 1:] / mass)


def summarize_chunked(
    keys: Tensor,
    values: Tensor,
    projection: Tensor,
    angles: Tensor | None,
    chunk: int,
    counted: Tensor | None = None,
) -> Summary:
    """Return the summary of keys [n, m] and values [n, D], `chunk` of them at a time.

    The backward pass computes the features again. Besides the inputs it keeps the summary of each
    chunk, R·D numbers, which is less than the inputs if a chunk has more than R keys.
    """

    def piece(
        keys: Tensor, values: Tensor, angles: Tensor | None, counted: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return summarize(log_key_features(keys, projection, angles, counted), values)

    parts = _recomputed(piece, chunk, keys, values, angles, counted)
    return reduce(merge, (Summary(*part) for part in parts))


def attend(log_query_features: Tensor, summary: Summary) -> Tensor:
    """Return the attention [q, D] of queries with log features [q, R] to a summary.

    A constant added to a row of the features has no effect.
    """
    return (log_query_features + summary.log_mass).softmax(1) @ summary.means


def kernel_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    projection: Tensor,
    angles: Tensor | None = None,
    *,
    query_angles: Tensor | None = None,
    counted: Tensor | None = None,
    chunk: int | None = None,
    world: World = ALONE,
) -> Tensor:
    """Return masked kernel attention [q, D] with positive features: Eq. (12), finite at any scale.

    Queries [q, m] and keys [n, m] are scaled by m^(-1/4). `angles` [n] of the keys lie in [0, π/2];
    None means no mask. `query_angles` [q] are those of the keys if not given. Only keys of a mask
    `counted` [n] count, by default all. With a `chunk`, so many nodes are processed at a time:
    features are not kept, and the backward pass computes them again. In a world of several
    processes, each has a part of the keys and its own queries.
    """
    if query_angles is None:
        query_angles = angles
    chunk = chunk or max(len(keys), len(queries), 1)
    summary = summarize_chunked(keys, values, projection, angles, chunk, counted)
    summary = merge_all(summary, world)

    def read(queries: Tensor, angles: Tensor | None) -> Tensor:
        return attend(log_query_features(queries, projection, angles), summary)

    parts = _recomputed(read, chunk, queries, query_angles)
    if torch.is_grad_enabled():
        return torch.cat(list(parts))
    # Write into the result: concatenating the parts would need the memory twice.
    result = queries.new_empty(len(queries), values.shape[1])
    for rows, part in zip(result.split(chunk), parts, strict=True):
        rows.copy_(part)
    return result


def _above_zero(weights: Tensor) -> Tensor:
    """Add the smallest number to weights in [0, 1] whose products with eps are normal numbers."""
    info = torch.finfo(weights.dtype)
    return weights.clamp_min(0) + info.tiny / info.eps


def _sin_cos(angles: Tensor) -> tuple[Tensor, Tensor]:
    """Return sines and cosines of angles [n], both [n, 1] and above zero."""
    return _above_zero(angles.sin())[:, None], _above_zero(angles.cos())[:, None]


def _recomputed(
    function: Callable[..., T], chunk: int, first: Tensor, *others: Tensor | None
) -> Iterator[T]:
    """Call a function on each chunk of tensors with the same number of rows.

    If there are several chunks, intermediate results are not kept: the backward pass computes them
    again.
    """
    if len(first) <= chunk:
        yield function(first, *others)
        return
    chunks = first.split(chunk)
    columns = [[None] * len(chunks) if part is None else part.split(chunk) for part in others]
    for arguments in zip(chunks, *columns, strict=True):
        yield checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
