"""Write a trained recommender as files for other programs.

    parquet   user_vectors.parquet and item_vectors.parquet, with ids
    npz       vectors.npz: users, items, user_ids, item_ids
    faiss     items.faiss, an index of the item vectors; its recall is measured
    onnx      fold_in.onnx, a model that computes the vector of a new user from a history
    card      MODEL_CARD.md: data, protocol, figures, config

The first four need a model with vectors. The product of the vectors of a user and of an item is the
score by which the library ranks. The vectors of cold users are solved for from their items.

A guide adds to this score what the items of the user give to the item. The first four therefore
have its weights too: guide.parquet, guide.npz (a matrix for scipy.sparse.load_npz), or a second
output of the ONNX model. An index finds the nearest vectors. With a guide, the items that the guide
scores highest are candidates too, and all candidates are ordered by the sum.

Shapes: I items, D channels, n items of a history, N predictors of an item.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.errors import BundleError, ConfigError
from mgformer.files import replacing
from mgformer.graph.sparse import row_numbers, top_per_row
from mgformer.locks import locked
from mgformer.ranking.scorers import DotScorer, SumScorer, vectors_of
from mgformer.ranking.topk import top_k
from mgformer.recommend.lists import as_rows, items_of
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import check_folder
from mgformer.runs.record import Refreshed

Files = dict[str, Callable[[Path], object]]
"""Names of files, and what writes them."""
Export = tuple[Files, dict[str, float]]
"""The files of a form, and what was measured."""
RECALL_USERS, RECALL_K = 1_000, 20
"""How many users, and how long lists, are used to compare an index with exact search."""
PROPOSED = 5
"""With a guide, an index and the guide each propose so many times k items."""
MOST_DIFFERENCE = 1e-3
"""Largest allowed difference between a vector of the ONNX model and the same vector computed by the
library, relative to the largest entry of the vector."""


def check_form(form: str) -> None:
    """Refuse an unknown form."""
    if form not in FORMS:
        raise ConfigError(f"--format {form}: expected one of {', '.join(FORMS)}")


def export(bundle: Bundle, form: str, folder: Path) -> dict[str, Any]:
    """Write one form of the recommender to a folder; return the files and what was measured."""
    check_form(form)
    check_folder(folder)
    with locked(folder):
        files, measured = FORMS[form](bundle)
        for name, write in files.items():
            with replacing(folder / name) as draft:
                write(draft)
    return {"files": [*files], **measured}


def _vectors(bundle: Bundle) -> DotScorer:
    scorer = vectors_of(bundle.complete_scorer)
    if scorer is None:
        raise ConfigError(
            f"{bundle.record.model} has no vectors to export because it compares items with items;"
            " use --format card, or train a model with embeddings, such as mgformer"
        )
    return scorer


def _guide(bundle: Bundle) -> sp.csr_array | None:
    """Return the weights [I, I] by which histories add to scores, or None without a guide."""
    if not isinstance(bundle.scorer, SumScorer):
        return None
    history = bundle.scorer.history
    if not isinstance(history.weights, sp.csr_array) or history.through is not None:
        raise ConfigError(
            f"{bundle.record.model}: only the guide ridge can be exported; train with"
            " --set score.guide=ridge or --set score.guide=none, or use --format card"
        )
    return history.weights


def _to_parquet(bundle: Bundle) -> Export:
    scorer, files = _vectors(bundle), Files()
    sides = {"user": (bundle.users, scorer.users), "item": (bundle.items, scorer.items)}
    for side, (ids, vectors) in sides.items():
        array = pl.Series(vectors.numpy(), dtype=pl.Array(pl.Float32, vectors.shape[1]))
        table = pl.DataFrame({"id": ids.values, "vector": array})
        if side == "item" and bundle.item_names is not None:
            table = table.with_columns(bundle.item_names.rename("name"))
        files[f"{side}_vectors.parquet"] = table.write_parquet
    if (guide := _guide(bundle)) is not None:
        weights = {
            "item": bundle.items.decode(row_numbers(guide)),
            "adds_to": bundle.items.decode(guide.indices),
            "weight": guide.data,
        }
        files["guide.parquet"] = pl.DataFrame(weights).write_parquet
    return files, {}


def _to_npz(bundle: Bundle) -> Export:
    scorer = _vectors(bundle)
    # Ids are integers or text of fixed width; reading objects would need pickle.
    user_ids, item_ids = (np.array(ids.values.to_list()) for ids in (bundle.users, bundle.items))
    users, items = scorer.users.numpy(), scorer.items.numpy()

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            kappa = bundle.record.kappa or 0.0
            np.savez(
                file, users=users, items=items, user_ids=user_ids, item_ids=item_ids, kappa=kappa
            )

    return {"vectors.npz": write} | _guide_file(_guide(bundle)), {}


def _guide_file(guide: sp.csr_array | None) -> Files:
    """Return the file of the guide's weights, which scipy.sparse.load_npz reads."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            sp.save_npz(file, guide)

    return {} if guide is None else {"guide.npz": write}


def _to_faiss(bundle: Bundle) -> Export:
    try:
        import faiss
    except ImportError:
        raise ConfigError("--format faiss needs an extra: pip install 'mgformer[ann]'") from None
    scorer = _vectors(bundle)
    items = np.ascontiguousarray(scorer.items.numpy())
    index = faiss.IndexHNSWFlat(items.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 200, 128
    index.add(items)
    users = np.linspace(0, scorer.num_users - 1, min(RECALL_USERS, scorer.num_users)).astype(int)
    k = min(RECALL_K, scorer.num_items)
    exact = top_k(bundle.complete_scorer, users, k).items
    guide, vectors = _guide(bundle), np.ascontiguousarray(scorer.users[users].numpy())
    if guide is None:
        _, found = index.search(vectors, k)
    else:
        proposed = min(PROPOSED * k, scorer.num_items)
        _, near = index.search(vectors, proposed)
        assert isinstance(bundle.scorer, SumScorer)
        added = sp.csr_array(bundle.scorer.history.histories[users] @ guide)
        found = reranked(vectors, items, near, added, k)
    hits = [len(np.intersect1d(one, other)) for one, other in zip(exact, found, strict=True)]
    measured = {f"recall@{k}": float(np.mean(hits)) / k, "compared_users": len(users)}
    files = {"items.faiss": lambda draft: faiss.write_index(index, str(draft))}
    return files | _item_ids(bundle) | _guide_file(guide), measured


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


def to_onnx(bundle: Bundle, rounds: int = 40) -> Export:
    """Export the fold-in of new users, solved by `rounds` steps of conjugate gradients."""
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("--format onnx needs an extra: pip install 'mgformer[onnx]'") from None
    scorer = _vectors(bundle)
    guide = _guide(bundle)
    model = fold_in_graph(scorer, rounds, guide, bundle.record.kappa or 0.0)
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    users = range(0, len(bundle.users), max(1, len(bundle.users) // 100))
    items = [own for user in users if len(own := items_of(bundle, user))]
    histories = as_rows(bundle, items, bundle.record.kappa)
    expected = scorer.fold_in(histories).users.numpy()
    if guide is not None:
        expected = np.hstack([expected, (histories @ guide).toarray()])
    asked = ({"history": own.astype(np.int64)} for own in items)
    found = [np.concatenate(session.run(None, history)) for history in asked]
    differences = np.abs(np.reshape(found, expected.shape) - expected).max(1)
    share = np.max(differences / np.maximum(np.abs(expected).max(1), 1e-12))
    if not share <= MOST_DIFFERENCE:  # NaN fails too
        raise BundleError(
            f"fold_in.onnx: its vectors differ from those of the library by {share:.2g} (relative),"
            f" expected at most {MOST_DIFFERENCE:g}; nothing was written; use --format parquet"
        )
    files: Files = {"fold_in.onnx": lambda draft: draft.write_bytes(data)}
    return files | _item_ids(bundle), {"largest_difference": float(differences.max())}


def fold_in_graph(
    scorer: DotScorer, rounds: int, guide: sp.csr_array | None = None, kappa: float = 0.0
) -> Any:
    """Return the ONNX model, which maps `history` [n] (item numbers) to `user` [D].

    With a guide it has a second output, `guide` [I]: what the history adds to the score of each
    item. The k-th of n items counts c = exp(−κ (1 − k/n)).

    With y = √c and the vectors of the items times y as O, it solves (S + ridge + OᵀO) w = Oᵀ y by
    conjugate gradients, because ONNX has no solver. In the
    eigenbasis of S everything except OᵀO is diagonal. This diagonal is the preconditioner, which
    leaves at most n eigenvalues that differ from one.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    spectrum, basis = scorer.solver
    varying = scorer.items[:, : scorer.num_varying].double()
    constants = {
        "items": (varying @ basis).float().numpy(),
        "spectrum": spectrum.float().numpy(),
        "basis": basis.T.float().contiguous().numpy(),
        "l2": np.float32(scorer.l2),
        "unseen": np.float32(scorer.unobserved_weight * scorer.num_items),
        "tiny": np.float32(1e-20),
        "constant": np.ones(scorer.constant, np.float32),
        "column": np.array([-1, 1], np.int64),
        "single": np.float32(1),
        "kappa": np.float32(kappa),
        "half": np.float32(0.5),
        "start": np.int64(1),
        "next": np.int64(1),
    }
    nodes: list[onnx.NodeProto] = []

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def dot(a: str, b: str) -> str:
        return add("ReduceSum", add("Mul", a, b), keepdims=0)

    size = add("Size", "history")
    places = add("Range", "start", add("Add", size, "next"), "next")  # 1 … n
    share = add("Div", *(add("Cast", one, to=TensorProto.FLOAT) for one in (places, size)))
    age = add("Mul", "kappa", add("Sub", "single", share))
    counts = add("Exp", add("Neg", age))  # c [n]
    wanted = add("Exp", add("Neg", add("Mul", "half", age)))  # y [n]
    gathered = add("Gather", "items", "history")
    own = add("Mul", gathered, add("Reshape", wanted, "column"))  # O [n, D]
    total = add("ReduceSum", counts, keepdims=0)
    ridge = add("Mul", "l2", add("Add", total, "unseen"))
    diagonal = add("Add", "spectrum", ridge)  # [D]
    residual = add("MatMul", wanted, own)  # Oᵀ y
    step = add("Div", residual, diagonal)
    solution, direction = add("Sub", residual, residual), step
    strength = dot(residual, step)
    for _ in range(rounds):
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
    outputs = {"user": scorer.items.shape[1]}
    if guide is not None:
        # Every item looks up which of its N predictors are in the history.
        constants |= _padded_columns(guide)
        constants["nobody"] = np.zeros(scorer.num_items + 1, np.float32)
        owned = add("ScatterElements", "nobody", "history", counts, axis=0)
        products = add("Mul", add("Gather", owned, "predictors"), "weights")
        nodes.append(helper.make_node("ReduceSum", [products, "second"], ["guide"], keepdims=0))
        outputs["guide"] = scorer.num_items
    graph = helper.make_graph(
        nodes,
        "fold_in",
        [helper.make_tensor_value_info("history", TensorProto.INT64, ["n"])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
            for name, size in outputs.items()
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _padded_columns(guide: sp.csr_array) -> dict[str, NDArray[Any]]:
    """Return predictors [I, N] and weights [I, N] of every item; places left over read a zero."""
    columns = guide.T.tocsr()
    counts = np.diff(columns.indptr)
    filled = np.arange(max(1, counts.max())) < counts[:, None]
    predictors = np.full(filled.shape, guide.shape[0], dtype=np.int64)
    weights = np.zeros(filled.shape, dtype=np.float32)
    predictors[filled], weights[filled] = columns.indices, columns.data
    return {"predictors": predictors, "weights": weights, "second": np.array([1], np.int64)}


def model_card(bundle: Bundle) -> str:
    """Return a description of the recommender for its users, in Markdown."""
    record = bundle.record
    ks = record.config.get("evaluation", {}).get("ks", [20])
    names = [f"{metric}@{k}" for metric in ("recall", "ndcg", "coverage") for k in ks]
    parts = {"test": record.test, "popularity, test": record.popularity, "validation": record.valid}
    rows = [
        [name, *(f"{part[name]:.4f}" if name in part else "–" for part in parts.values())]
        for name in names
        if name in record.test
    ]
    table = [["metric", *parts], ["---"] * (1 + len(parts)), *rows]
    facts = {
        "model": record.model,
        "dataset": f"{record.dataset} ({record.fingerprint})",
        "size": f"{len(bundle.users):,} users, {len(bundle.items):,} items,"
        f" {len(bundle.train):,} interactions in the training set",
        "protocol": record.protocol,
        "trained on": "all pairs, after these figures were measured" if record.refit else None,
        "refreshed": _refreshed_text(record.refreshed),
        "seed": record.seed,
        "epochs": record.epochs or None,  # 0 if the model is not trained step by step
        "library, commit": f"{record.library}, {record.commit}",
    }
    template = Path(__file__).with_name("model_card.md").read_text(encoding="utf-8")
    return template.format(
        title=f"{record.model} on {record.dataset}",
        facts="\n".join(f"- {name}: {value}" for name, value in facts.items() if value is not None),
        table="\n".join(f"| {' | '.join(cells)} |" for cells in table),
        config=json.dumps(record.config, indent=2),
    )


def _refreshed_text(done: Refreshed | None) -> str | None:
    if done is None:
        return None
    return (
        f"{done.pairs - done.trained_pairs:,} of {done.pairs:,} interactions were added without"
        " training, after these figures were measured"
    )


def _to_card(bundle: Bundle) -> Export:
    card = model_card(bundle)
    return {"MODEL_CARD.md": lambda draft: draft.write_text(card, encoding="utf-8")}, {}


def _item_ids(bundle: Bundle) -> Files:
    """Return a file with the id of each item number."""
    table = pl.DataFrame({"number": np.arange(len(bundle.items)), "id": bundle.items.values})
    return {"item_ids.parquet": table.write_parquet}


FORMS: dict[str, Callable[[Bundle], Export]] = {
    "parquet": _to_parquet,
    "npz": _to_npz,
    "faiss": _to_faiss,
    "onnx": to_onnx,
    "card": _to_card,
}
