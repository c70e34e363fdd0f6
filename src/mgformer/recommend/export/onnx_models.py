"""ONNX models of scoring: the vector of a new user, or the scores of all items, from a history.

Both take `history` [n], the numbers of the items, the latest last. The k-th of n items counts
c = exp(−κ (1 − k/n)).

Shapes: I items, D channels, F factors, n items of a history, N predictors of an item.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray

from mgformer.errors import BundleError, ConfigError
from mgformer.ranking.scorers import DotScorer, HistoryScorer
from mgformer.recommend.export.parts import (
    Export,
    Files,
    ItemWeights,
    guide_of,
    item_ids,
    summed,
    vectors_to_export,
)
from mgformer.recommend.lists import as_rows, items_of
from mgformer.runs.bundle import Bundle

MOST_DIFFERENCE = 1e-3
"""Largest allowed difference between what the ONNX model and the library compute, relative to the
largest entry."""
COMPARED_USERS = 100


class GraphBuilder:
    """The nodes and constants of an ONNX graph with the input `history` [n]."""

    def __init__(self, kappa: float) -> None:
        """Start with the counts c [n] of the items of the history."""
        self.constants: dict[str, NDArray[Any]] = {}
        self.nodes: list[Any] = []
        from onnx import TensorProto

        one = self.constant("one", np.int64(1))
        size = self.add("Size", "history")
        places = self.add("Range", one, self.add("Add", size, one), one)  # 1 … n
        share = self.add(
            "Div", *(self.add("Cast", number, to=TensorProto.FLOAT) for number in (places, size))
        )
        missing = self.add("Sub", self.constant("single", np.float32(1)), share)
        self.age = self.add("Mul", self.constant("kappa", np.float32(kappa)), missing)
        self.counts = self.add("Exp", self.add("Neg", self.age))  # c [n]

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        from onnx import helper

        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, name: str, value: ArrayLike) -> str:
        """Add a constant; return its name."""
        self.constants[name] = np.asarray(value)
        return name

    def dot(self, a: str, b: str) -> str:
        """Add a dot product of two vectors."""
        return self.add("ReduceSum", self.add("Mul", a, b), keepdims=0)

    def given(self, weights: ItemWeights) -> str:
        """Add what a history gives to the score of each item [I], by weights [I, I]."""
        if isinstance(weights, sp.csr_array):
            return self.looked_up(weights)
        return self.add("MatMul", self.counts, self.rows("matrix", weights))

    def rows(self, name: str, matrix: NDArray[np.float32]) -> str:
        """Add the rows [n, any] of the items of the history."""
        return self.add("Gather", self.constant(name, matrix), "history")

    def looked_up(self, weights: sp.csr_array) -> str:
        """Add what a history gives to the score of each item [I], by sparse weights [I, I].

        Every item looks up which of its N predictors are in the history.
        """
        columns = weights.T.tocsr()
        counts = np.diff(columns.indptr)
        filled = np.arange(max(1, counts.max(initial=0))) < counts[:, None]
        predictors = np.full(filled.shape, weights.shape[0], dtype=np.int64)  # reads a zero
        values = np.zeros(filled.shape, dtype=np.float32)
        predictors[filled], values[filled] = columns.indices, columns.data
        nobody = self.constant("nobody", np.zeros(weights.shape[0] + 1, np.float32))
        owned = self.add("ScatterElements", nobody, "history", self.counts, axis=0)
        found = self.add("Gather", owned, self.constant("predictors", predictors))
        products = self.add("Mul", found, self.constant("weights", values))
        return self.add(
            "ReduceSum", products, self.constant("second", np.array([1], np.int64)), keepdims=0
        )

    def model(self, name: str, outputs: dict[str, tuple[str, int]]) -> Any:
        """Return the model, given the node and the size of each output by its name."""
        from onnx import TensorProto, helper, numpy_helper

        for output, (node, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [node], [output]))
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("history", TensorProto.INT64, ["n"])],
            [
                helper.make_tensor_value_info(output, TensorProto.FLOAT, [size])
                for output, (_, size) in outputs.items()
            ],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        opset = helper.make_opsetid("", 17)
        return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def to_onnx(bundle: Bundle, rounds: int = 40) -> Export:
    """Return a model of scoring, which gives what the library gives.

    For models with vectors it is the fold-in of new users, solved by `rounds` steps of conjugate
    gradients.
    """
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("--format onnx needs an extra: pip install 'mgformer[onnx]'") from None
    kappa = bundle.record.kappa or 0.0
    users = range(0, len(bundle.users), max(1, len(bundle.users) // COMPARED_USERS))
    items = [own for user in users if len(own := items_of(bundle, user))]
    histories = as_rows(bundle, items, kappa)
    if isinstance(bundle.scorer, HistoryScorer):
        name, model = "scores.onnx", scores_graph(bundle, bundle.scorer, kappa)
        expected = bundle.scorer.fold_in(histories).scores(torch.arange(len(items))).numpy()
    else:
        scorer, guide = vectors_to_export(bundle), guide_of(bundle)
        name, model = "fold_in.onnx", fold_in_graph(scorer, rounds, guide, kappa)
        expected = scorer.fold_in(histories).users.numpy()
        if guide is not None:
            added = sp.csr_array(histories @ guide).toarray()
            expected = np.hstack([expected, added])
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    asked = ({"history": own.astype(np.int64)} for own in items)
    found = [np.concatenate(session.run(None, history)) for history in asked]
    differences = np.abs(np.reshape(found, expected.shape) - expected).max(1)
    share = np.max(differences / np.maximum(np.abs(expected).max(1), 1e-12))
    if not share <= MOST_DIFFERENCE:  # NaN fails too
        raise BundleError(
            f"{name}: it differs from the library by {share:.2g} (relative), expected at most"
            f" {MOST_DIFFERENCE:g}; nothing was written; use --format parquet"
        )
    files: Files = {name: lambda draft: draft.write_bytes(data)}
    return files | item_ids(bundle), {"largest_difference": float(differences.max())}


def scores_graph(bundle: Bundle, scorer: HistoryScorer, kappa: float) -> Any:
    """Return the ONNX model that maps `history` [n] to `scores` [I]: c (W + TᵀT + L Rᵀ) f."""
    graph, parts = GraphBuilder(kappa), []
    if (weights := summed(bundle, scorer)) is not None:
        parts.append(graph.given(weights))
    if scorer.left is not None and scorer.right is not None:
        own = graph.add("MatMul", graph.counts, graph.rows("left", scorer.left.float().numpy()))
        right = graph.constant("right", np.ascontiguousarray(scorer.right.float().numpy().T))
        parts.append(graph.add("MatMul", own, right))
    scores = graph.add("Sum", *parts)
    if scorer.item_factors is not None:
        factors = graph.constant("factors", scorer.item_factors.float().numpy())
        scores = graph.add("Mul", scores, factors)
    return graph.model("scores", {"scores": (scores, scorer.num_items)})


def fold_in_graph(
    scorer: DotScorer, rounds: int, guide: ItemWeights | None = None, kappa: float = 0.0
) -> Any:
    """Return the ONNX model, which maps `history` [n] (item numbers) to `user` [D].

    With a guide it has a second output, `guide` [I]: what the history adds to the score of each
    item.

    With y = √c and the vectors of the items times y as O, it solves (S + ridge + OᵀO) w = Oᵀ y by
    conjugate gradients, because ONNX has no solver. In the
    eigenbasis of S everything except OᵀO is diagonal. This diagonal is the preconditioner, which
    leaves at most n eigenvalues that differ from one.
    """
    spectrum, basis = scorer.solver
    varying = scorer.items[:, : scorer.num_varying].double()
    graph = GraphBuilder(kappa)
    add, dot = graph.add, graph.dot
    constants: dict[str, ArrayLike] = {
        "items": (varying @ basis).float().numpy(),
        "spectrum": spectrum.float().numpy(),
        "basis": basis.T.float().contiguous().numpy(),
        "l2": np.float32(scorer.l2),
        "unseen": np.float32(scorer.unobserved_weight * scorer.num_items),
        "tiny": np.float32(1e-20),
        "constant": np.ones(scorer.constant, np.float32),
        "column": np.array([-1, 1], np.int64),
        "half": np.float32(0.5),
    }
    for name, value in constants.items():
        graph.constant(name, value)
    wanted = add("Exp", add("Neg", add("Mul", "half", graph.age)))  # y [n]
    gathered = add("Gather", "items", "history")
    own = add("Mul", gathered, add("Reshape", wanted, "column"))  # O [n, D]
    total = add("ReduceSum", graph.counts, keepdims=0)
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
    whole = add("Concat", user, "constant", axis=0)
    outputs = {"user": (whole, scorer.items.shape[1])}
    if guide is not None:
        outputs["guide"] = (graph.given(guide), scorer.num_items)
    return graph.model("fold_in", outputs)
