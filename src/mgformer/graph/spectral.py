"""Truncated singular value decomposition of a large sparse matrix, and encodings of nodes from it.

The method is randomized block Krylov iteration (Musco & Musco, NIPS 2015, arXiv:1504.05477). The
span of Ω, AᵀA Ω, (AᵀA)² Ω, … contains the leading singular vectors to high accuracy after a few
steps. The block is at least as wide as the rank: a graph in several pieces has repeated singular
values, and a narrower block would miss some of them.

Shapes: A is [U, I], k the rank, w the width of the Krylov basis.
"""

import logging
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from scipy.linalg import eigh
from torch import Tensor
from torch.nn import functional

from mgformer.device import HOST
from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import csr_matmul
from mgformer.progress import phase

MAX_PASSES = 8
"""Most repetitions of the orthogonalization. Most blocks need one; nearly dependent ones two."""

_log = logging.getLogger("mgformer")


class TruncatedSVD(NamedTuple):
    """A ≈ left diag(values) rightᵀ; the entry of largest magnitude of a right vector is > 0."""

    left: Tensor  # [U, k] float32, orthonormal columns
    values: Tensor  # [k] float32, descending
    right: Tensor  # [I, k] float32, orthonormal columns


def truncated_svd(
    matrix: sp.csr_array,
    rank: int,
    rng: np.random.Generator,
    *,
    iterations: int = 8,
    oversampling: int = 8,
) -> TruncatedSVD:
    """Return the `rank` ≤ min(U, I) largest singular values of a float32 matrix, with vectors.

    `iterations` applications of AᵀA need (U + I)(rank + oversampling)(iterations + 1) numbers.
    `oversampling` columns of the block beyond the rank make it converge faster.
    """
    if not 1 <= rank <= min(matrix.shape):
        raise ConfigError(
            f"rank: got {rank}, expected 1 to {min(matrix.shape)} for a "
            f"{matrix.shape[0]} × {matrix.shape[1]} matrix; choose a smaller rank"
        )
    # The basis lives on the shorter side, which is cheaper to keep orthogonal.
    turned = matrix.shape[0] < matrix.shape[1]
    tall, wide = (matrix.T.tocsr(), matrix) if turned else (matrix, matrix.T.tocsr())
    width = (rank + oversampling) * (iterations + 1)
    if width >= tall.shape[1]:
        near, far, values = _exact(tall, wide, rank)
    else:
        near, far, values = _krylov(tall, wide, rank, rng, iterations, oversampling)
    near, far = _orthonormal(near), _orthonormal(far)
    left, right = (near, far) if turned else (far, near)
    peaks = right.gather(0, right.abs().argmax(0, keepdim=True))
    signs = torch.where(peaks < 0, -1.0, 1.0)
    return TruncatedSVD((left * signs).float(), values.float(), (right * signs).float())


def feasible_rank(rank: int, matrix: sp.csr_array) -> int:
    """Return `rank`, or the largest rank that the matrix can have, with a warning in the log."""
    largest = int(min(matrix.shape))
    if rank <= largest:
        return rank
    _log.warning("rank %d is too large for %d × %d data; using %d", rank, *matrix.shape, largest)
    return largest


def encodings_of(graph: Graph, rank: int, rng: np.random.Generator, *, normalized: bool) -> Tensor:
    """Return [U√Σ; V√Σ] [N, rank], users before items: Eq. (3) of the MGFormer paper.

    R or, if `normalized`, D_u^(-1/2) R D_i^(-1/2) is decomposed. If it has fewer singular vectors
    than `rank`, the last columns are zero.
    """
    matrix = graph.normalized if normalized else graph.interactions
    svd = truncated_svd(matrix, min(rank, *matrix.shape), rng)
    encodings = torch.cat([svd.left, svd.right]) * svd.values.sqrt()
    # Rounding errors in the rows of isolated nodes would become directions when normalized.
    encodings *= torch.from_numpy(graph.degrees > 0)[:, None]
    return functional.pad(encodings, (0, rank - encodings.shape[1]))


def _exact(tall: sp.csr_array, wide: sp.csr_array, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return vectors of the short side, their images and the values, from a dense Gram matrix."""
    with phase("svd", 1) as advance:
        gram = (wide.astype(np.float64) @ tall.astype(np.float64)).toarray()
        vectors, values = _leading(torch.from_numpy(gram), rank)
        advance(1)
    return vectors, csr_matmul(tall, vectors), values


def _krylov(
    tall: sp.csr_array,
    wide: sp.csr_array,
    rank: int,
    rng: np.random.Generator,
    iterations: int,
    oversampling: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return vectors of the short side, their images and the values, from a Krylov space."""
    length, size = tall.shape[1], rank + oversampling
    basis = torch.empty(length, size * (iterations + 1), device=HOST)
    images = torch.empty(tall.shape[0], basis.shape[1], device=HOST)
    block = torch.from_numpy(rng.standard_normal((length, size), dtype=np.float32))
    gram = torch.zeros(basis.shape[1], basis.shape[1], dtype=torch.float64, device=HOST)
    with phase("svd", iterations + 2) as advance:
        for step in range(iterations + 1):
            start, stop = step * size, (step + 1) * size
            recent = max(0, start - 2 * size)
            # Apart from rounding errors, a new block overlaps with the last two only.
            block, _ = _outside(basis[:, recent:start], block)
            for _ in range(MAX_PASSES):
                block, kept = _outside(basis[:, :start], block)
                # Columns that lost most of their length are mostly noise: repeat for them.
                if kept.diagonal().abs().min() > 0.5:
                    break
            basis[:, start:stop] = block
            images[:, start:stop] = csr_matmul(tall, block)
            image = images[:, start:stop].contiguous()
            block = csr_matmul(wide, image)
            # Squaring loses half the digits; half of float64 is still float32. Entries far from
            # the diagonal are nearly zero, so float32 is enough for them.
            gram[:recent, start:stop] = images[:, :recent].T @ image
            for near, new in zip(
                torch.split(images[:, recent:stop], 4096), torch.split(image, 4096), strict=True
            ):
                gram[recent:stop, start:stop].addmm_(near.double().T, new.double())
            advance(1)
        mixture, values = _leading(gram, rank)
        advance(1)
    return basis @ mixture.float(), images @ mixture.float(), values


def _outside(done: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
    """Return the QR factors of the part of `block` outside the span of `done`."""
    directions, sizes = torch.linalg.qr(block - done @ (done.T @ block))
    return directions, sizes


def _orthonormal(columns: Tensor) -> Tensor:
    """Make nearly orthogonal columns orthonormal, also columns of zeros."""
    factors = torch.linalg.qr(columns.double())
    signs: Tensor = torch.where(factors.R.diagonal() < 0, -1.0, 1.0)
    return factors.Q * signs


def _leading(gram: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the leading eigenvectors of a Gram matrix and the roots of their eigenvalues."""
    largest = (len(gram) - rank, len(gram) - 1)
    # Only the upper triangle is read.
    squares, vectors = eigh(gram.numpy(), lower=False, subset_by_index=largest)
    values = np.sqrt(np.maximum(squares[::-1], 0))
    return torch.from_numpy(vectors[:, ::-1].copy()), torch.from_numpy(values)
