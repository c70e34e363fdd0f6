"""Models on a device: nothing in a step touches the memory of the processor.

There is no GPU here. Tensors on the `meta` device have shapes and no values, so any code that looks
at a value fails; and a dispatch mode refuses tensors on the processor.
"""

import contextlib

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mgformer import device
from mgformer.data.sampling import Batch
from mgformer.errors import ConfigError
from mgformer.models import BUILTIN, model_class
from mgformer.models.base import TrainableModel
from mgformer.ranking import topk
from mgformer.ranking.score import Ingredients, Weights
from mgformer.ranking.scorers import vectors_of
from mgformer.training.loop import check_precision, step_on
from mgformer.training.optimizers import build_optimizers
from mgformer.training.options import TrainConfig

META = torch.device("meta")
TRAINABLE = [name for name in BUILTIN if issubclass(model_class(name), TrainableModel)]
FORMS = {
    **{name: (name, {}) for name in TRAINABLE},
    "guided, one hop": ("guided", {"graph_weight": 0.5}),
    "guided, spectral": ("guided", {"guide": "spectral", "rank": 4}),
    "mgformer, two layers": ("mgformer", {"num_layers": 2, "num_heads": 2}),
    "mgformer, paper": ("mgformer", {"residual": 0, "num_heads": 2, "features": "fourier"}),
    "mgformer, all keys": ("mgformer", {"key_sample": None}),
    "directau, free": ("directau", {"encoder": "mf"}),
    "sgl, batch": ("sgl", {"candidates": "batch"}),
    "simgcl, one pass": ("simgcl", {"passes": "one"}),
    "ultragcn, batch": ("ultragcn", {"draw": "batch"}),
    "gotnet, k-means": ("gotnet", {"clustering": "kmeans", "matrices": True}),
}
SMALL = {"dim": 8, "rank": 8, "key_sample": 10, "num_negatives": 4, "num_neighbors": 3}
DRAWS_ON_HOST = {"gformer"}
"""Draws its random graphs in the memory of the processor, every ten steps."""


class OnlyOn(TorchDispatchMode):
    """Refuses operations on tensors elsewhere; single numbers may be anywhere."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor) and leaf.ndim:
                assert leaf.device.type == self.kind, f"{func}: {leaf.device} {list(leaf.shape)}"
        return result


def built(form: str, graph, **more) -> TrainableModel:
    name, options = FORMS[form]
    config = model_class(name).Config
    small = {key: value for key, value in SMALL.items() if key in config.model_fields}
    if name == "guided":
        small.pop("rank")
    model = model_class(name)(
        config(**{**small, **options, **more}), graph, np.random.default_rng(0)
    )
    assert isinstance(model, TrainableModel)
    return model


def prepared(form: str, graph, where: torch.device) -> TrainableModel:
    """A model on a device, at the beginning of an epoch."""
    model = built(form, graph)
    model.train()
    if FORMS[form][0] in DRAWS_ON_HOST:
        graphs = model.drawn_graphs(torch.Generator().manual_seed(0))
        model.on(where)
        moved_graphs = [
            type(part)(*(inner.to(where) for inner in part))
            if isinstance(part, tuple)
            else part.to(where)
            for part in graphs
        ]
        model.graphs = type(graphs)(*moved_graphs)
        return model
    model.on(where)
    model.on_epoch(np.random.default_rng(1))
    return model


def batch_on(where: torch.device, graph) -> Batch:
    rows, columns = graph.interactions.nonzero()
    # Some users and items stand in a batch more than once.
    sides = (torch.from_numpy(np.tile(side[:20], 2)).long() for side in (rows, columns))
    return Batch(*(side.to(where) for side in sides))


@pytest.mark.parametrize("form", FORMS)
def test_a_step_never_touches_the_host(form, random_graph):
    graph = random_graph(33, 20)
    model, batch = prepared(form, graph, META), batch_on(META, graph)
    optimizers = build_optimizers(model, TrainConfig())
    before = [p.detach().clone() for p in model.parameters()]
    with OnlyOn("meta"):
        loss = step_on(batch, model, optimizers, device.generator_on(META, 0))
    assert (loss.device, loss.shape) == (META, ())
    assert all(p.grad is not None for p in model.parameters())
    assert len(before) > 0


@pytest.mark.parametrize("form", FORMS)
def test_a_tile_is_ranked_without_touching_the_host(form, random_graph):
    graph = random_graph(33, 20)
    model = prepared(form, graph, META)
    with OnlyOn("meta"):
        scorer = model.scorer()
    assert scorer.items.device == META
    degrees = torch.from_numpy(graph.item_degrees)
    composed = (
        Ingredients(degrees, model.guide()).compose(scorer, Weights("prior", 0.1, 2.0)).scorer
    )
    vectors, history = vectors_of(composed), getattr(composed, "history", None)
    assert (history is not None) == (model.guide() is not None)
    task = topk._Task(np.arange(7), 5, graph.interactions, None, np.zeros(1, int), 10**6)
    (found,) = topk._dot_tiles(vectors, vectors.items.float(), None, history, task)
    for part, shape in ((found.best, (7, 5)), (found.exact, (7, 5)), (found.is_unsure, (7,))):
        assert (part.device, tuple(part.shape)) == (META, shape)


def same_draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("form", FORMS)
def test_the_form_for_devices_is_the_form_of_the_host(form, random_graph, monkeypatch):
    """Value and gradients in float64: fixed sizes and padded lists change nothing."""
    graph = random_graph(33, 20)
    if FORMS[form][0] == "simgcl":  # the noise of rows depends on how many rows there are
        form, FORMS["without noise"] = "without noise", ("simgcl", {**FORMS[form][1], "noise": 0})
    host = prepared(form, graph, device.HOST).double()
    batch = batch_on(device.HOST, graph)
    expected = host.loss(batch, same_draws(3))
    expected.backward()
    with as_on_a_device(monkeypatch):
        other = prepared(form, graph, device.HOST)
        other.fix_sizes()
        other = other.double()
        found = other.loss(batch, same_draws(3))
        found.backward()
        vectors = other.scorer()
    assert expected.item() == pytest.approx(found.item(), rel=1e-12, abs=1e-12)
    for name, value in host.named_parameters():
        other_grad = other.get_parameter(name).grad
        assert value.grad.abs().max() > 0, name
        torch.testing.assert_close(other_grad, value.grad, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(vectors.users, host.scorer().users, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(vectors.items, host.scorer().items, rtol=1e-9, atol=1e-12)


@contextlib.contextmanager
def as_on_a_device(monkeypatch):
    """Make all code take the forms for devices, on the processor."""
    import sys

    with monkeypatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("mgformer.") and hasattr(module, "on_host"):
                patch.setattr(module, "on_host", lambda tensor: False)
        yield


@pytest.mark.parametrize("form", FORMS)
def test_the_default_device_does_not_matter(form, random_graph):
    graph = random_graph(12, 10)

    def trained(where: str) -> list[torch.Tensor]:
        with torch.device(where):
            model = built(form, graph)
            optimizers = build_optimizers(model, TrainConfig(lr=1e-2))
            model.on_epoch(np.random.default_rng(0))
            for _ in range(2):
                step_on(batch_on(device.HOST, graph), model, optimizers, same_draws(0))
            scorer = model.scorer()
            return [scorer.users, scorer.items]

    for one, other in zip(trained("cpu"), trained("meta"), strict=True):
        assert other.device == device.HOST
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", [name for name in TRAINABLE if not model_class(name).bf16])
def test_bf16_is_refused_where_it_saves_nothing(name, random_graph):
    with pytest.raises(ConfigError, match=r"train.precision: got bf16, but \w+ has no products"):
        check_precision(built(name, random_graph(12, 10)), TrainConfig(precision="bf16"))
