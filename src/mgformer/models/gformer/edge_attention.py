"""Multi-head attention along the edges of a graph, as in GFormer (arXiv:2306.02330).

For an edge from row r to column c and a head, a = clip(q_r · k_c, ±10) and
α = exp(a) / (Σ exp(a) over the edges of r + 1e-8); a row receives Σ α v_c. Scores are not divided
by the root of the channels. No [E, d] tensor is ever held: each edge needs one number per head,
and the gradients are again sums along edges, in one direction or the other.

Shapes: N nodes, E edges, H heads, d channels of all heads together, d/H of one.
"""

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mgformer.device import on_host
from mgformer.graph.sparse import row_numbers
from mgformer.nn.embeddings import rows_at, xavier_matrices
from mgformer.nn.kernel_attention import EDGES

LIMIT = 10.0
"""Bound on the magnitude of scores; their exponentials then need no shift."""
EPSILON = 1e-8
"""Term added to the sums of exponentials, as in the authors' code."""


class EdgePattern(nn.Module):
    """The edges of a CSR matrix [N, N], by row and by column; its values do not matter."""

    def __init__(self, matrix: sp.csr_array) -> None:
        super().__init__()
        indices, indptr = matrix.indices, matrix.indptr
        self.shape: tuple[int, int] = matrix.shape
        places = np.arange(len(indices), dtype=np.int32)
        by_column = sp.csr_array((places, indices, indptr), shape=matrix.shape).tocsc()
        self.rows = _buffer(row_numbers(matrix))  # [E]
        self.columns, self.starts = _buffer(indices), _buffer(indptr)
        self.order = _buffer(by_column.data)  # [E], edges by column
        self.rows_by_column = _buffer(by_column.indices)  # [E]
        self.column_starts = _buffer(by_column.indptr)  # [N + 1]

    def dots(self, left: Tensor, right: Tensor, num_heads: int) -> Tensor:
        """Return left_r · right_c of every edge and head [E, H], for left, right [N, d]."""
        if not on_host(left):
            # The sampled product of torch has no fixed size elsewhere: gather a part at a time.
            parts = zip(self.rows.split(EDGES), self.columns.split(EDGES), strict=True)
            found = [
                (rows_at(left, rows) * rows_at(right, columns))
                .view(len(rows), num_heads, -1)
                .sum(2)
                for rows, columns in parts
            ]
            return torch.cat(found)
        unused = left.new_zeros(len(self.columns))
        with warnings.catch_warnings():
            # torch warns that these tensors are in beta; tests compare the product with a loop.
            warnings.simplefilter("ignore", UserWarning)
            pattern = torch.sparse_csr_tensor(
                self.starts,
                self.columns,
                unused,
                self.shape,
                device=left.device,
                check_invariants=False,
            )
        heads = zip(left.chunk(num_heads, dim=1), right.chunk(num_heads, dim=1), strict=True)
        products = [
            torch.sparse.sampled_addmm(pattern, rows.contiguous(), columns.T, beta=0.0).values()
            for rows, columns in heads
        ]
        return torch.stack(products, dim=1)

    def sums_of_rows(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return Σ w_e x_c over the edges of every row [N, d], for w [E, H] and x [N, d]."""
        return _sums(self.columns, self.starts, weights, values)

    def sums_of_columns(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return Σ w_e x_r over the edges of every column [N, d], for w [E, H] and x [N, d]."""
        by_column = weights.index_select(0, self.order)
        return _sums(self.rows_by_column, self.column_starts, by_column, values)


def _buffer(values: NDArray[np.integer]) -> nn.Buffer:
    return nn.Buffer(torch.from_numpy(values), persistent=False)


class EdgeAttention(nn.Module):
    """Attention with learned queries, keys and values; heads are concatenated without a map."""

    def __init__(self, channels: int, num_heads: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.num_heads = num_heads
        w_query, w_key, w_value = xavier_matrices(3, channels, rng)
        self.w_query, self.w_key = nn.Parameter(w_query.clone()), nn.Parameter(w_key.clone())
        self.w_value = nn.Parameter(w_value.clone())

    def forward(self, edges: EdgePattern, x: Tensor) -> Tensor:
        """Return the attention [N, d] of every node along its edges, from x [N, d]."""
        inputs = (x @ self.w_query, x @ self.w_key, x @ self.w_value)
        result: Tensor = _Attention.apply(*inputs, edges, self.num_heads)  # type: ignore[no-untyped-call]
        return result

    def shares(self, edges: EdgePattern, x: Tensor) -> Tensor:
        """Return α of every edge and head [E, H], without gradients."""
        with torch.no_grad():
            return _shares(edges, edges.dots(x @ self.w_query, x @ self.w_key, self.num_heads))


class _Attention(torch.autograd.Function):
    """Attention and its gradients.

    dα_e = g_r · v_c. As ∂α_e/∂a_f = α_e (δ_ef − α_f) within a row, also with epsilon,
    da_e = α_e (dα_e − Σ_f α_f dα_f), and the sum is g_r · out_r.
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, edges: EdgePattern, num_heads: int
    ) -> Tensor:
        scores = edges.dots(queries, keys, num_heads)  # [E, H]
        shares = _shares(edges, scores)
        result = edges.sums_of_rows(shares, values)
        ctx.save_for_backward(queries, keys, values, shares, scores.abs() <= LIMIT, result)
        ctx.edges, ctx.num_heads = edges, num_heads
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        queries, keys, values, shares, free, result = ctx.saved_tensors
        edges, num_heads = ctx.edges, ctx.num_heads
        gradient = gradient.contiguous()
        means = (gradient * result).view(len(result), num_heads, -1).sum(2)  # [N, H]
        of_scores = edges.dots(gradient, values, num_heads)
        of_scores -= means.index_select(0, edges.rows)
        of_scores *= shares * free
        return (
            edges.sums_of_rows(of_scores, keys),
            edges.sums_of_columns(of_scores, queries),
            edges.sums_of_columns(shares, gradient),
            None,
            None,
        )


def _shares(edges: EdgePattern, scores: Tensor) -> Tensor:
    weights = scores.clamp(-LIMIT, LIMIT).exp_()
    totals = torch.segment_reduce(weights, "sum", offsets=edges.starts.long(), axis=0)  # [N, H]
    weights /= (totals + EPSILON).index_select(0, edges.rows)
    return weights


def _sums(indices: Tensor, starts: Tensor, weights: Tensor, values: Tensor) -> Tensor:
    """Sum values [N, d] of indices [E] with weights [E, H] from each start to the next [N, d]."""
    num_heads = weights.shape[1]
    # One head at a time: embedding_bag takes one weight for all channels of a value.
    heads = [
        functional.embedding_bag(
            indices,
            of_head.contiguous(),
            starts,
            mode="sum",
            per_sample_weights=weight,
            include_last_offset=True,
        )
        for weight, of_head in zip(
            weights.T.contiguous(), values.chunk(num_heads, dim=1), strict=True
        )
    ]
    return torch.cat(heads, dim=1)
