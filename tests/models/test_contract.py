"""Every model fulfills the contract of `models.base`."""

from copy import deepcopy

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError

from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models import BUILTIN, model_class
from mgformer.models.base import TrainableModel
from mgformer.ranking.scorers import HistoryScorer
from mgformer.training import loop
from mgformer.training.loop import fit
from mgformer.training.options import TrainConfig

# Options for a checkerboard of 20 × 20, where defaults for real data do not work. Its two blocks
# have rank 2: a filter or factorization of a higher rank also fits the withheld zeros. Nodes of a
# block are equal, so a contrastive term, which pushes them apart, has to be weak.
FITTING = {
    "puresvd": {"rank": 2},
    "gfcf": {"rank": 2},
    "ials": {"rank": 4},
    "simgcl": {"contrast_weight": 0.1},
}
# Options for the test of folded-in users. GFormer ranks without its positions and its decoder. With
# uniformity they learn to cancel a direction that all embeddings share; on a few dozen nodes little
# else is left. UltraGCN's default weights are meant for sparse data. Here users have a third of all
# items, and unseen items end far below zero, but fold-in solves for a user with them at zero.
FOLDING = {"gformer": {"uniformity_weight": 0.0}, "ultragcn": {"negative_weight": 0.25}}

# Options that turn a model into another one.
OTHERS = {
    "sgl, nodes": ("sgl", {"view": "nodes"}),
    "sgl, walk": ("sgl", {"view": "walk"}),
    "simgcl, one pass": ("simgcl", {"passes": "one"}),
    "directau, free": ("directau", {"encoder": "mf"}),
    "gotnet, k-means": ("gotnet", {"clustering": "kmeans"}),
}
everywhere = pytest.mark.parametrize("name", [*BUILTIN, *OTHERS])


# Few epochs: these tests check the contract, not quality.
TRAINING = TrainConfig(epochs=30, batch_size=64, lr=1e-2)


def pairs_of(graph):
    rows, columns = graph.interactions.nonzero()
    ids = [Ids(pl.Series(range(count), dtype=pl.Int64)) for count in graph.interactions.shape]
    return Interactions.from_numbers(*ids, rows.astype(np.int32), columns.astype(np.int32))


def model_of(name, graph, rng, **options):
    name, given = OTHERS.get(name, (name, {}))
    return model_class(name)(model_class(name).Config(**given, **options), graph, rng)


def options_of(table, name):
    return table.get(name, table.get(OTHERS.get(name, (name,))[0], {}))


def is_trained(name):
    return issubclass(model_class(OTHERS.get(name, (name,))[0]), TrainableModel)


def build(name, graph, seed=0, **options):
    rng = np.random.default_rng(seed)
    model = model_of(name, graph, rng, **options)
    if isinstance(model, TrainableModel):
        fit(model, pairs_of(graph), TRAINING, rng)
    return model.scorer()


def scores_of(scorer):
    return scorer.scores(torch.arange(scorer.num_users))


def checkerboard():
    pairs = np.add.outer(np.arange(20), np.arange(20)) % 2 == 0
    np.fill_diagonal(pairs, False)
    return Graph(sp.csr_array(pairs.astype(np.float32)))


@everywhere
@pytest.mark.parametrize("size", [(1, 2), (9, 30), (30, 9)])
def test_default_config_works_on_any_size(name, size, random_graph):
    graph = random_graph(*size, density=0.4)
    scorer = build(name, graph)
    assert (scorer.num_users, scorer.num_items) == size
    scores = scores_of(scorer)
    assert scores.shape == size
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()


@everywhere
def test_isolated_user_and_item_give_finite_scores(name, random_graph):
    graph = random_graph(12, 10, isolated=True)
    assert graph.user_degrees[11] == graph.item_degrees[1] == 0
    assert scores_of(build(name, graph)).isfinite().all()


@everywhere
def test_no_pairs_at_all(name):
    graph = Graph(sp.csr_array((4, 5), dtype=np.float32))
    assert scores_of(build(name, graph)).isfinite().all()


@everywhere
def test_learns_the_checkerboard(name):
    if name == "popularity":
        pytest.skip("all items are equally popular: popularity cannot tell them apart")
    graph = checkerboard()
    scores = scores_of(build(name, graph, **options_of(FITTING, name))).numpy()
    scores[graph.interactions.toarray() > 0] = -np.inf
    np.testing.assert_array_equal(scores.argmax(axis=1), np.arange(20))
    runner_up = np.sort(scores, axis=1)[:, -2]
    assert (scores.max(axis=1) > runner_up).all()


@everywhere
def test_same_seed_same_bits(name, random_graph):
    graph = random_graph(33, 20)
    assert torch.equal(*(scores_of(build(name, graph, seed=3)) for _ in range(2)))


@everywhere
def test_fold_in_of_a_training_history(name, random_graph):
    graph = random_graph(33, 20)
    scorer = build(name, graph, **options_of(FOLDING, name))
    users = torch.tensor([3, 17, 4])
    folded = scores_of(scorer.fold_in(graph.interactions[users.numpy()]))
    trained = scorer.scores(users)
    if name == "popularity":  # a new user's scores are popularity too, on another scale
        folded = folded * (trained.sum(1) / folded.sum(1))[:, None]
    if is_trained(name):
        # Solved for, not trained: another embedding, which ranks in nearly the same way.
        for one, other in zip(folded.numpy(), trained.numpy(), strict=True):
            assert np.corrcoef(one, other)[0, 1] > 0.8
        return
    exact = isinstance(scorer, HistoryScorer)
    torch.testing.assert_close(folded, trained, rtol=0, atol=0 if exact else 1e-4)


@pytest.mark.parametrize("name", BUILTIN)
def test_unknown_options_are_refused(name):
    with pytest.raises(ValidationError):
        model_class(name).Config(no_such_option=1)


@pytest.mark.parametrize("name", BUILTIN)
def test_every_option_is_described(name):
    fields = model_class(name).Config.model_fields
    assert all(field.description for field in fields.values())


trained = pytest.mark.parametrize(
    "name", [name for name in [*BUILTIN, *OTHERS] if is_trained(name)]
)


@trained
def test_every_parameter_receives_a_gradient(name, random_graph):
    graph = random_graph(33, 20, isolated=False)
    rng = np.random.default_rng(0)
    model = model_of(name, graph, rng)
    model.on_epoch(rng)
    users, items = graph.interactions.nonzero()
    batch = Batch(torch.from_numpy(users).long(), torch.from_numpy(items).long())
    model.loss(batch, torch.Generator().manual_seed(0)).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


@trained
def test_two_steps_of_the_loop_are_two_steps_by_hand(name, random_graph):
    graph = random_graph(12, 10)
    pairs = pairs_of(graph)
    options = TrainConfig(epochs=2, batch_size=len(pairs), lr=1e-2)
    models, sources = [], []
    for _ in range(2):
        sources.append(np.random.default_rng(5))
        models.append(model_of(name, graph, sources[-1]))
    fit(models[0], pairs, options, sources[0])
    shuffling, seeding = sources[1].spawn(2)
    generator = torch.Generator().manual_seed(int(seeding.integers(2**63)))
    optimizer = torch.optim.Adam(models[1].parameters(), lr=1e-2, fused=True)
    models[1].train()
    for _ in range(2):
        models[1].on_epoch(shuffling)
        order = shuffling.permutation(len(pairs))
        users, items = (
            torch.from_numpy(side[order]).long() for side in (pairs.rows, pairs.indices)
        )
        optimizer.zero_grad()
        models[1].loss(Batch(users, items), generator).backward()
        optimizer.step()
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one, other)


@trained
def test_resumed_training_ends_with_the_same_bits(name, random_graph, monkeypatch):
    """This includes views, anchors and centroids that are drawn during training."""
    graph = random_graph(12, 10)
    pairs, options = pairs_of(graph), TrainConfig(epochs=4, batch_size=16, lr=1e-2)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    saved, ends = [], []
    for start in (None, 1):
        rng = np.random.default_rng(5)
        model = model_of(name, graph, rng)
        begin = None if start is None else saved[start]
        save = lambda kept: saved.append(deepcopy(kept))  # noqa: E731
        fit(model, pairs, options, rng, save=save, start=begin)
        ends.append(model)
    assert len(saved) == 4 + 2
    for one, other in zip(*(model.parameters() for model in ends), strict=True):
        assert torch.equal(one, other)
