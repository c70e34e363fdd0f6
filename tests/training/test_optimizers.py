"""Which parameters an optimiser moves, and that its memory can be kept."""

import numpy as np
import pytest
import torch
from torch import nn

from mgformer.data.sampling import Batch
from mgformer.errors import ConfigError
from mgformer.models.base import TrainableModel
from mgformer.models.lightgcn import LightGCN
from mgformer.models.mgformer import MGFormer
from mgformer.training.optimizers import (
    RowAdam,
    build_optimizers,
    load_state_tensors,
    set_learning_rate,
    state_tensors,
)
from mgformer.training.options import TrainConfig


class Still(TrainableModel):
    """Parameters of every shape, and a loss that pulls at none of them."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        shapes = {"table": (5, 3), "heads": (2, 3, 4), "vector": (4,), "scalar": ()}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.full(shape, 2.0)))
        self.frozen = nn.Parameter(torch.full((2, 2), 2.0), requires_grad=False)

    def loss(self, batch, generator):
        return sum(0 * parameter.sum() for parameter in self.parameters())

    def scorer(self):
        raise NotImplementedError

    def tables(self):
        return [self.table]


def step(model, optimizers, *batches):
    for batch in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        model.loss(batch, torch.Generator().manual_seed(0)).backward()
        for optimizer in optimizers:
            optimizer.step()


def batch_of(*pairs: tuple[int, int]) -> Batch:
    users, items = zip(*pairs, strict=True)
    return Batch(torch.tensor(users), torch.tensor(items))


def test_matrices_decay_and_vectors_do_not():
    model = Still()
    optimizers = build_optimizers(model, TrainConfig(weight_decay=0.5, lr=0.1))
    step(model, optimizers, None)
    # A decay of any size is Adam's only gradient, and its first step is the learning rate.
    for name in ("table", "heads"):
        torch.testing.assert_close(
            model.get_parameter(name), torch.full_like(model.get_parameter(name), 1.9)
        )
    for name in ("vector", "scalar", "frozen"):
        assert (model.get_parameter(name) == 2).all(), name


def test_without_decay_nothing_moves_that_has_no_gradient():
    model = Still()
    step(model, build_optimizers(model, TrainConfig(lr=0.1)), None)
    assert all((parameter == 2).all() for parameter in model.parameters())


def test_rows_leaves_alone_what_the_batch_did_not_touch(random_graph):
    """And adam does not: it moves the rows of the batch before by their momentum."""
    graph = random_graph(20, 13)
    config = MGFormer.Config(dim=4, rank=4, attention_weight=0)
    first, second = batch_of((0, 1), (1, 2)), batch_of((2, 3), (3, 4))
    moved = {}
    for name in ("adam", "rows"):
        model = MGFormer(config, graph, np.random.default_rng(0))
        optimizers = build_optimizers(model, TrainConfig(optimizer=name, lr=0.1))
        before = model.tokens.detach().clone()
        step(model, optimizers, first)
        between = model.tokens.detach().clone()
        step(model, optimizers, second)
        moved[name] = [
            (a != b).any(dim=1).nonzero().flatten().tolist()
            for a, b in ((before, between), (between, model.tokens.detach()))
        ]
    nodes = [0, 1, 20 + 1, 20 + 2], [2, 3, 20 + 3, 20 + 4]
    assert moved["rows"] == [nodes[0], nodes[1]]
    assert moved["adam"] == [nodes[0], sorted(nodes[0] + nodes[1])]


def test_rows_and_adam_agree_on_the_first_step(random_graph):
    config = MGFormer.Config(dim=4, rank=4)
    graph = random_graph(20, 13)
    models = []
    for name in ("adam", "rows"):
        model = MGFormer(config, graph, np.random.default_rng(0))
        optimizers = build_optimizers(model, TrainConfig(optimizer=name, lr=0.1))
        assert len(optimizers) == (2 if name == "rows" else 1)
        start = {key: value.detach().clone() for key, value in model.named_parameters()}
        step(model, optimizers, batch_of((0, 1), (1, 2), (7, 7)))
        models.append(model)
    for key, value in models[0].named_parameters():
        assert not torch.equal(value, start[key]), key
        torch.testing.assert_close(value, models[1].get_parameter(key), rtol=1e-4, atol=1e-5)


def test_the_optimizer_sets_whether_gradients_are_sparse(random_graph):
    model = MGFormer(MGFormer.Config(dim=4, rank=4), random_graph(9, 7), np.random.default_rng(0))
    for name, sparse in (("rows", True), ("adam", False)):
        build_optimizers(model, TrainConfig(optimizer=name))
        assert model.sparse_gradients is sparse


def test_the_learning_rate_of_every_group():
    for decay, rates in (("none", [0.4, 0.4, 0.4]), ("cosine", [0.4, 0.2, 0.0])):
        options = TrainConfig(lr=0.4, decay=decay, optimizer="rows")
        model = Still()
        optimizers = build_optimizers(model, options)
        assert sum(len(optimizer.param_groups) for optimizer in optimizers) == 3
        for progress, rate in zip((0.0, 0.5, 1.0), rates, strict=True):
            set_learning_rate(optimizers, options, progress)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    assert group["lr"] == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize("name", ["adam", "rows"])
def test_the_state_of_an_optimizer_survives_a_checkpoint(name, random_graph):
    graph = random_graph(20, 13)
    config = MGFormer.Config(dim=4, rank=4)
    options = TrainConfig(optimizer=name, lr=0.1)
    batches = [batch_of((n, n), (n + 1, n), (n, n + 2)) for n in range(4)]
    models = [MGFormer(config, graph, np.random.default_rng(0)) for _ in range(3)]
    whole, resumed, forgetful = models
    optimizers = build_optimizers(whole, options)
    step(whole, optimizers, *batches[:2])
    kept = {key: value.clone() for key, value in state_tensors(optimizers).items()}
    assert all(isinstance(value, torch.Tensor) for value in kept.values())
    weights = {key: value.clone() for key, value in whole.state_dict().items()}
    step(whole, optimizers, *batches[2:])
    for model in (resumed, forgetful):
        model.load_state_dict(weights)
        again = build_optimizers(model, options)
        if model is resumed:
            load_state_tensors(again, kept)
            for key, value in state_tensors(again).items():
                assert torch.equal(value, kept[key]), key
            assert state_tensors(again).keys() == kept.keys()
        step(model, again, *batches[2:])
    for key, value in whole.named_parameters():
        assert torch.equal(value, resumed.get_parameter(key)), key
        assert not torch.equal(value, forgetful.get_parameter(key)), key


def test_an_empty_optimizer_state_survives(random_graph):
    model = MGFormer(MGFormer.Config(dim=4, rank=4), random_graph(9, 7), np.random.default_rng(0))
    optimizers = build_optimizers(model, TrainConfig())
    assert state_tensors(optimizers) == {}
    load_state_tensors(optimizers, {})
    step(model, optimizers, batch_of((0, 1), (1, 2)))
    assert state_tensors(optimizers)


def test_rows_that_are_touched_by_every_step_are_those_of_adam(rng):
    start = torch.from_numpy(rng.standard_normal((5, 3)))
    rows, adam = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizers = [RowAdam([rows], 0.1, 0.3), torch.optim.Adam([adam], lr=0.1, weight_decay=0.3)]
    order = torch.tensor([3, 0, 4, 2, 1, 3])  # one twice: its gradients add up
    for _ in range(4):
        values = torch.from_numpy(rng.standard_normal((6, 3)))
        rows.grad = torch.sparse_coo_tensor(order[None], values, (5, 3), check_invariants=True)
        adam.grad = rows.grad.to_dense()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(rows, adam, rtol=1e-12, atol=1e-12)
    assert (rows - start).abs().max() > 0.1


def test_only_rows_that_are_touched_decay():
    table = nn.Parameter(torch.ones(3, 2))
    optimizer = RowAdam([table], 0.1, 0.5)
    table.grad = torch.sparse_coo_tensor([[1]], torch.zeros(1, 2), (3, 2), check_invariants=True)
    optimizer.step()
    torch.testing.assert_close(table.detach()[:, 0], torch.tensor([1.0, 0.9, 1.0]))


def test_rows_of_a_model_that_reaches_all_are_refused(random_graph):
    model = LightGCN(LightGCN.Config(dim=4), random_graph(9, 7), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="rows: every step of LightGCN reaches all rows"):
        build_optimizers(model, TrainConfig(optimizer="rows"))
