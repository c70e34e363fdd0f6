"""A trained recommender in forms that other programs read.

    parquet   user_vectors.parquet and item_vectors.parquet, with ids
    npz       vectors.npz: users, items, user_ids, item_ids
    faiss     items.faiss, an index of the item vectors, with its measured recall
    onnx      fold_in.onnx: the items of a history in, a user's vector out
    card      MODEL_CARD.md: data, protocol, figures, config

Only models with vectors have the first four. The product of a user's and an item's vector is the
score by which the library ranks; users who were not trained are solved for from their items.

Shapes: I items, D channels, n items of a history.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.errors import BundleError, ConfigError
from mgformer.ranking.scorers import DotScorer
from mgformer.ranking.topk import top_k
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import check_folder

RECALL_USERS, RECALL_K = 1_000, 20
"""Users, evenly spaced, and length of list by whom an index is compared with exact search."""
CG_ROUNDS = 40
"""Steps of conjugate gradients in the exported fold-in: ONNX has no operator that solves."""
MOST_DIFFERENCE = 1e-3
"""Between a vector of the exported fold-in and the library's, as a share of its largest entry."""


def export(bundle: Bundle, form: str, folder: Path) -> dict[str, Any]:
    """Write a form of the recommender to a folder; return what was written, and what measured."""
    if form not in FORMS:
        raise ConfigError(f"--format {form}: expected one of {', '.join(FORMS)}")
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return FORMS[form](bundle, folder)


def _vectors(bundle: Bundle) -> DotScorer:
    if not isinstance(bundle.scorer, DotScorer):
        raise ConfigError(
            f"{bundle.record.model} has no vectors to export: it compares items with items;"
            " export --format card, or train a model with embeddings, such as mgformer"
        )
    scorer = bundle.complete_scorer
    assert isinstance(scorer, DotScorer)
    return scorer


def _to_parquet(bundle: Bundle, folder: Path) -> dict[str, Any]:
    scorer = _vectors(bundle)
    sides = {"user": (bundle.users, scorer.users), "item": (bundle.items, scorer.items)}
    for side, (ids, vectors) in sides.items():
        array = pl.Series(vectors.numpy(), dtype=pl.Array(pl.Float32, vectors.shape[1]))
        table = pl.DataFrame({"id": ids.values, "vector": array})
        if side == "item" and bundle.item_names is not None:
            table = table.with_columns(bundle.item_names.rename("name"))
        _whole(folder / f"{side}_vectors.parquet", table.write_parquet)
    return {"files": ["user_vectors.parquet", "item_vectors.parquet"]}


def _to_npz(bundle: Bundle, folder: Path) -> dict[str, Any]:
    scorer = _vectors(bundle)
    arrays = {
        "users": scorer.users.numpy(),
        "items": scorer.items.numpy(),
        "user_ids": _array_of(bundle.users.values),
        "item_ids": _array_of(bundle.items.values),
    }

    def write(path: Path) -> None:
        with path.open("wb") as file:  # a name without .npz would be changed
            np.savez(file, **arrays)  # type: ignore[arg-type]

    _whole(folder / "vectors.npz", write)
    return {"files": ["vectors.npz"]}


def _array_of(ids: pl.Series) -> NDArray[Any]:
    """Return ids as numbers or as text of fixed width: an array of objects would need pickle."""
    return np.array(ids.to_list()) if ids.dtype == pl.String else ids.to_numpy()


def _to_faiss(bundle: Bundle, folder: Path) -> dict[str, Any]:
    try:
        import faiss
    except ImportError:
        raise ConfigError("a faiss index needs an extra: pip install 'mgformer[ann]'") from None
    scorer = _vectors(bundle)
    items = np.ascontiguousarray(scorer.items.numpy())
    index = faiss.IndexHNSWFlat(items.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 200, 128
    index.add(items)
    users = np.linspace(0, scorer.num_users - 1, min(RECALL_USERS, scorer.num_users)).astype(int)
    k = min(RECALL_K, scorer.num_items)
    exact = top_k(scorer, users, k).items
    _, found = index.search(np.ascontiguousarray(scorer.users[users].numpy()), k)
    hits = [len(np.intersect1d(one, other)) for one, other in zip(exact, found, strict=True)]
    recall = float(np.mean(hits)) / k
    _whole(folder / "items.faiss", lambda path: faiss.write_index(index, str(path)))
    _write_ids(bundle, folder)
    files = ["items.faiss", "item_ids.parquet"]
    return {"files": files, f"recall@{k}": recall, "compared_users": len(users)}


def _to_onnx(bundle: Bundle, folder: Path) -> dict[str, Any]:
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("ONNX needs an extra: pip install 'mgformer[onnx]'") from None
    scorer = _vectors(bundle)
    model = fold_in_graph(scorer)
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    worst = _checked_difference(
        lambda history: session.run(None, {"history": history})[0],
        scorer,
        bundle.known[:: max(1, bundle.known.shape[0] // 100)],
    )
    _whole(folder / "fold_in.onnx", lambda path: path.write_bytes(data))
    _write_ids(bundle, folder)
    return {"files": ["fold_in.onnx", "item_ids.parquet"], "largest_difference": worst}


def _checked_difference(
    solve: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    scorer: DotScorer,
    histories: sp.csr_array,
) -> float:
    """Return by how much an exported fold-in differs at most from the library's, if by little."""
    expected = scorer.fold_in(histories).users.numpy()
    differences, shares = [0.0], [0.0]
    for user, (start, stop) in zip(expected, pairwise(histories.indptr), strict=True):
        if start < stop:
            vector = solve(histories.indices[start:stop].astype(np.int64))
            differences.append(float(np.abs(vector - user).max()))
            shares.append(differences[-1] / max(float(np.abs(user).max()), 1e-12))
    share = float(np.max(shares))
    if not share <= MOST_DIFFERENCE:  # nor is NaN
        raise BundleError(
            f"fold_in.onnx: its users differ from the library's by {share:.2g} of their size,"
            f" expected at most {MOST_DIFFERENCE:g}; nothing was written, export vectors instead"
        )
    return float(np.max(differences))


def fold_in_graph(scorer: DotScorer) -> Any:
    """Return the ONNX model: `history` [n] item numbers in, `user` [D] out.

    Solves (S + ridge + OᵀO) w = Oᵀ 1 by conjugate gradients in the eigenbasis of S, where all but
    OᵀO is diagonal and serves as preconditioner; only n of its eigenvalues differ from one.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    spectrum, basis = scorer.solver
    varying = scorer.items[:, : scorer.items.shape[1] - scorer.constant].double()
    constants = {
        "items": (varying @ basis).float().numpy(),
        "spectrum": spectrum.float().numpy(),
        "basis": basis.T.float().contiguous().numpy(),
        "l2": np.float32(scorer.l2),
        "unseen": np.float32(scorer.unobserved_weight * scorer.num_items),
        "tiny": np.float32(1e-20),
        "constant": np.ones(scorer.constant, np.float32),
        "first": np.array([0], np.int64),
    }
    nodes: list[onnx.NodeProto] = []

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def dot(a: str, b: str) -> str:
        return add("ReduceSum", add("Mul", a, b), keepdims=0)

    own = add("Gather", "items", "history")  # O [n, D]
    count = add("Cast", add("Size", "history"), to=TensorProto.FLOAT)
    ridge = add("Mul", "l2", add("Add", count, "unseen"))
    diagonal = add("Add", "spectrum", ridge)  # [D]
    residual = add("ReduceSum", own, "first", keepdims=0)  # Oᵀ 1
    step = add("Div", residual, diagonal)
    solution, direction = add("Sub", residual, residual), step
    strength = dot(residual, step)
    for _ in range(CG_ROUNDS):
        seen = add("MatMul", add("MatMul", own, direction), own)  # Oᵀ O direction
        product = add("Add", add("Mul", diagonal, direction), seen)
        length = add("Div", strength, add("Max", dot(direction, product), "tiny"))
        solution = add("Add", solution, add("Mul", length, direction))
        residual = add("Sub", residual, add("Mul", length, product))
        step = add("Div", residual, diagonal)
        renewed = dot(residual, step)
        turn = add("Div", renewed, add("Max", strength, "tiny"))
        direction, strength = add("Add", step, add("Mul", turn, direction)), renewed
    user = add("MatMul", solution, "basis")
    if scorer.unit:
        user = add("Div", user, add("Max", add("Sqrt", dot(user, user)), "tiny"))
    nodes.append(helper.make_node("Concat", [user, "constant"], ["user"], axis=0))
    graph = helper.make_graph(
        nodes,
        "fold_in",
        [helper.make_tensor_value_info("history", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("user", TensorProto.FLOAT, [scorer.items.shape[1]])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _to_card(bundle: Bundle, folder: Path) -> dict[str, Any]:
    _whole(folder / "MODEL_CARD.md", lambda path: path.write_text(model_card(bundle)))
    return {"files": ["MODEL_CARD.md"]}


def model_card(bundle: Bundle) -> str:
    """Return what somebody who is to use the recommender must know, in Markdown."""
    record = bundle.record
    config = record.config
    ks = config.get("evaluation", {}).get("ks", [20])
    names = [f"{metric}@{k}" for metric in ("recall", "ndcg", "coverage") for k in ks]
    parts = {
        "test": record.test,
        "popularity, test": record.popularity,
        "validation": record.valid,
    }
    known = [name for name in names if name in record.test]
    rows = [
        f"| {name} | " + " | ".join(_figure(part.get(name)) for part in parts.values()) + " |"
        for name in known
    ]
    facts = {
        "model": record.model,
        "dataset": f"{record.dataset} ({record.fingerprint})",
        "size": f"{len(bundle.users):,} users, {len(bundle.items):,} items,"
        f" {len(bundle.train):,} interactions trained on",
        "protocol": record.protocol,
        "trained on": "everything, after these figures were measured" if record.refit else None,
        "seed": record.seed,
        "epochs": record.epochs or None,  # none where nothing is trained step by step
        "library, commit": f"{record.library}, {record.commit}",
    }
    return "\n".join(
        [
            f"# {record.model} on {record.dataset}",
            "",
            *(f"- {name}: {value}" for name, value in facts.items() if value is not None),
            "",
            "| metric | " + " | ".join(parts) + " |",
            "|---|" + "---|" * len(parts),
            *rows,
            "",
            "It recommends from who interacted with what, and knows nothing else of people or",
            "items. People whom it was not trained on are known by their items; items that it was",
            "not trained on cannot be recommended. It favours what is popular among similar",
            "people: look at coverage before it decides what anybody sees.",
            "",
            "## Config",
            "",
            "```json",
            json.dumps(config, indent=2),
            "```",
            "",
        ]
    )


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _write_ids(bundle: Bundle, folder: Path) -> None:
    """Write which item each number is."""
    table = pl.DataFrame({"number": np.arange(len(bundle.items)), "id": bundle.items.values})
    _whole(folder / "item_ids.parquet", table.write_parquet)


def _whole(target: Path, write: Callable[[Path], object]) -> None:
    """Write to a draft and rename it: nobody ever sees half a file."""
    draft = target.with_name(f".{target.name}.tmp")
    try:
        write(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


FORMS: dict[str, Callable[[Bundle, Path], dict[str, Any]]] = {
    "parquet": _to_parquet,
    "npz": _to_npz,
    "faiss": _to_faiss,
    "onnx": _to_onnx,
    "card": _to_card,
}
