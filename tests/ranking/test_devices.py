"""Scorers on a device score, fold in and rank as on the processor.

`here` makes their forms for devices run on the processor, where values can be compared.
"""

import sys
from dataclasses import fields

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.device import HOST
from mgformer.ranking.devices import DeviceDotScorer, DeviceHistoryScorer, device_of, moved
from mgformer.ranking.scorers import DotScorer, HistoryScorer, SumScorer
from mgformer.ranking.topk import top_k

USERS, ITEMS = 30, 200


def sparse(rng, shape, density=0.1):
    dense = rng.standard_normal(shape) * (rng.random(shape) < density)
    return sp.csr_array(dense.astype(np.float32))


def histories_of(rng, num_users=USERS, density=0.1):
    return sp.csr_array((rng.random((num_users, ITEMS)) < density).astype(np.float32))


def history_scorer(form, rng) -> HistoryScorer:
    square = (ITEMS, ITEMS)
    parts = {
        "sparse": {"weights": sparse(rng, square)},
        "dense": {"weights": torch.from_numpy(rng.standard_normal(square)).float()},
        "through": {"through": sparse(rng, (50, ITEMS))},
        "factors": {
            side: torch.from_numpy(rng.standard_normal((ITEMS, 6))).float()
            for side in ("left", "right")
        },
    }
    if form == "all":
        parts["all"] = {**parts["sparse"], **parts["through"], **parts["factors"]}
        parts["all"]["item_factors"] = torch.from_numpy(rng.random(ITEMS)).float()
    return HistoryScorer(histories_of(rng), **parts[form])


def dot_scorer(rng, **more) -> DotScorer:
    sides = (torch.from_numpy(rng.standard_normal((n, 8))).float() for n in (USERS, ITEMS))
    return DotScorer(*sides, **more)


def on_device(scorer):
    """The class for devices, with its tensors on the processor."""
    if isinstance(scorer, SumScorer):
        return SumScorer(on_device(scorer.vectors), on_device(scorer.history))
    values = {own.name: getattr(scorer, own.name) for own in fields(scorer)}
    kind = DeviceDotScorer if isinstance(scorer, DotScorer) else DeviceHistoryScorer
    return kind(**values)


@pytest.fixture
def here(monkeypatch):
    for name, module in list(sys.modules.items()):
        if name.startswith("mgformer.") and hasattr(module, "on_host"):
            monkeypatch.setattr(module, "on_host", lambda tensor: False)


@pytest.mark.parametrize("form", ["sparse", "dense", "through", "factors", "all"])
def test_histories_are_multiplied_as_on_the_host(form, rng):
    scorer = history_scorer(form, rng)
    users = torch.tensor([3, 0, 17, 3])
    expected = scorer.scores(users)
    assert expected.abs().max() > 0.1
    found = on_device(scorer).scores(users)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    # A row does not depend on the batch: to the bit.
    assert torch.equal(on_device(scorer).scores(users[2:3])[0], found[2])


@pytest.mark.parametrize(("unit", "constant"), [(False, 0), (True, 1)])
def test_new_users_are_folded_in_as_on_the_host(unit, constant, rng, monkeypatch):
    scorer = dot_scorer(rng, unit=unit, constant=constant)
    histories = histories_of(rng, 40)
    histories.data[:] = rng.random(histories.nnz).astype(np.float32) + 0.1
    expected = scorer.fold_in(histories).users
    for entries in (1, 1 << 24):  # one user at a time, and all at once
        monkeypatch.setattr("mgformer.ranking.devices.FOLDED_ENTRIES", entries)
        found = on_device(scorer).fold_in(histories).users
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    empty = on_device(scorer).fold_in(sp.csr_array((2, ITEMS), dtype=np.float32)).users
    expected = scorer.fold_in(sp.csr_array((2, ITEMS), dtype=np.float32)).users
    torch.testing.assert_close(empty, expected)


@pytest.mark.parametrize("kind", ["dot", "history", "sum"])
@pytest.mark.parametrize("few", [True, False])
def test_lists_are_those_of_the_host(kind, few, rng, here):
    vectors, history = dot_scorer(rng), history_scorer("sparse", rng)
    scorer = {"dot": vectors, "history": history, "sum": SumScorer(vectors, history)}[kind]
    if kind == "dot":  # equal scores, so that rows are uncertain and sorted in full
        scorer.items[20:] = scorer.items[20]
    users = np.arange(3 if few else USERS)
    options = {"seen": histories_of(rng), "exclude": [5, 6], "memory_mb": 1}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("mgformer.") and hasattr(module, "on_host"):
                patch.setattr(module, "on_host", lambda tensor: True)
        expected = top_k(scorer, users, 10, **options)
    found = top_k(on_device(scorer), users, 10, **options)
    np.testing.assert_array_equal(found.items, expected.items)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


def test_scorers_come_back_from_a_device(rng):
    """What is saved in a bundle is plain, wherever it was computed."""
    meta = torch.device("meta")
    vectors, history = dot_scorer(rng), history_scorer("all", rng)
    there = moved(SumScorer(vectors, history), meta)
    assert device_of(there) == device_of(there.history) == meta
    assert moved(there.vectors, meta) is there.vectors
    back = moved(SumScorer(on_device(vectors), on_device(history)), HOST)
    assert (type(back.vectors), type(back.history)) == (DotScorer, HistoryScorer)
    assert torch.equal(back.vectors.items, vectors.items)
    assert back.history.weights is history.weights
    assert device_of(back.history) == HOST
    assert moved(vectors, HOST) is vectors
