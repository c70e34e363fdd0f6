"""An index of item vectors for approximate search, with the recall and the time that it has.

Shapes: I items, D channels.
"""

import logging
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.errors import ConfigError
from mgformer.graph.sparse import top_per_row
from mgformer.ranking.scorers import SumScorer
from mgformer.ranking.topk import top_k
from mgformer.recommend.export.parts import (
    Export,
    Files,
    ItemWeights,
    guide_of,
    item_ids,
    vectors_to_export,
    weights_file,
)
from mgformer.runs.bundle import Bundle

RECALL_USERS, RECALL_K = 1_000, 20
"""How many users, and how long lists, are used to compare an index with exact search."""
TIMED_USERS = 100
PROPOSED = 5
"""With a guide, an index and the guide each propose so many times k items."""
MOST_EXACT = 20_000_000
"""A flat index of at most so many numbers answers in a few milliseconds, and exactly."""
ENOUGH_RECALL = 0.95
BREADTHS = (128, 256, 512, 1024)
"""Candidates that a search of the graph keeps; it takes the first with enough recall."""
log = logging.getLogger("mgformer")


def to_faiss(bundle: Bundle, most_exact: int = MOST_EXACT) -> Export:
    """Return an index: flat, which is exact, or a graph of neighbors for more numbers."""
    try:
        import faiss
    except ImportError:
        raise ConfigError("--format faiss needs an extra: pip install 'mgformer[ann]'") from None
    scorer, guide = vectors_to_export(bundle), guide_of(bundle)
    items = np.ascontiguousarray(scorer.items.numpy())
    users = np.linspace(0, scorer.num_users - 1, min(RECALL_USERS, scorer.num_users)).astype(int)
    vectors = np.ascontiguousarray(scorer.users[users].numpy())
    k = min(RECALL_K, scorer.num_items)
    exact = top_k(bundle.complete_scorer, users, k).items

    def recall(index: Any) -> float:
        found = _searched(bundle, index, users, vectors, k, guide)
        hits = [len(np.intersect1d(one, other)) for one, other in zip(exact, found, strict=True)]
        return float(np.mean(hits)) / k

    index: Any
    if items.size <= most_exact:
        index, kind = faiss.IndexFlatIP(items.shape[1]), "flat, exact"
        index.add(items)
        reached = recall(index)
    else:
        index = faiss.IndexHNSWFlat(items.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 200
        index.add(items)
        for breadth in BREADTHS:
            index.hnsw.efSearch = breadth  # is kept in the file
            reached = recall(index)
            if reached >= ENOUGH_RECALL:
                break
        kind = f"HNSW, efSearch {breadth}"
    if reached < ENOUGH_RECALL:
        log.warning(
            "items.faiss finds only %.1f%% of the exact top %d; its lists will differ from those of"
            " recommend and serve, which search exactly",
            100 * reached,
            k,
        )
    measured: dict[str, float | str] = {
        "index": kind,
        f"recall@{k}": reached,
        "compared_users": len(users),
        "milliseconds_per_search": _milliseconds(index, vectors[:TIMED_USERS], k),
    }
    files: Files = {"items.faiss": lambda draft: _write(index, draft)}
    return files | item_ids(bundle) | weights_file("guide", guide), measured


def _write(index: Any, draft: Path) -> None:
    import faiss

    faiss.write_index(index, str(draft))


def _milliseconds(index: Any, vectors: NDArray[np.float32], k: int) -> float:
    """Return the median time of a search for one user."""
    seconds = []
    for vector in vectors:
        start = time.perf_counter()
        index.search(vector[None], k)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def _searched(
    bundle: Bundle,
    index: Any,
    users: NDArray[np.int64],
    vectors: NDArray[np.float32],
    k: int,
    guide: ItemWeights | None,
) -> NDArray[np.int64]:
    """Return the k best items [n, k] of users by the index, and by the guide if there is one."""
    if guide is None:
        found: NDArray[np.int64] = index.search(vectors, k)[1]
        return found
    assert isinstance(bundle.scorer, SumScorer)
    items = bundle.scorer.vectors.items.numpy()
    _, near = index.search(vectors, min(PROPOSED * k, len(items)))
    added = sp.csr_array(bundle.scorer.history.histories[users] @ guide)
    return reranked(vectors, items, near, added, k)


def reranked(
    vectors: NDArray[np.float32],
    items: NDArray[np.float32],
    near: NDArray[np.int64],
    added: sp.csr_array,
    k: int,
) -> NDArray[np.int64]:
    """Return the k best items [n, k] of users among the proposals of an index and of a guide.

    Args:
        vectors: Vectors of the users [n, D].
        items: Vectors of all items [I, D].
        near: Items that the index proposes [n, m]; -1 for none.
        added: What the guide adds to the scores of all items [n, I].
        k: Length of a list.
    """
    best = top_per_row(added, near.shape[1])
    lists = []
    for row, vector in enumerate(vectors):
        guided = best.indices[best.indptr[row] : best.indptr[row + 1]]
        candidates = np.union1d(near[row][near[row] >= 0], guided)
        scores = items[candidates] @ vector + added[[row]].toarray()[0, candidates]
        lists.append(candidates[np.argsort(-scores, kind="stable")[:k]])
    return np.stack(lists)
