"""The loop: when it ends, which weights it keeps, and that a run resumes exactly."""

import math
from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from mgformer.errors import BundleError, ConfigError
from mgformer.models.base import TrainableModel
from mgformer.models.mgformer import MGFormer
from mgformer.ranking.scorers import DotScorer, Scorer
from mgformer.training import loop
from mgformer.training.checkpoint import load_checkpoint, save_checkpoint
from mgformer.training.log import Entry
from mgformer.training.loop import Fit, fit
from mgformer.training.options import TrainConfig
from tests.models.test_contract import checkerboard, pairs_of


class Slope(TrainableModel):
    """The loss is `weight` times p: where its gradient is constant, Adam moves p by the rate."""

    def __init__(self, weight: float = 1.0) -> None:
        nn.Module.__init__(self)
        self.weight = weight
        self.p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.places: list[float] = []
        self.visited: list[list[tuple[int, int]]] = []

    def loss(self, batch, generator):
        self.places.append(self.p.item())
        self.visited.append(list(zip(batch.users.tolist(), batch.items.tolist(), strict=True)))
        return self.weight * self.p.sum()

    def scorer(self):
        return DotScorer(torch.zeros(1, 1), torch.zeros(1, 1))


class Scripted:
    """Validation that returns values from a list, and keeps the weights and entries it saw."""

    def __init__(self, model: TrainableModel, *values: float) -> None:
        self.model, self.values, self.weights, self.before = model, values, [], []

    def __call__(self, scorer: Scorer, before: Sequence[Entry]) -> Entry:
        self.before.append([entry["ndcg@20"] for entry in before])
        model = self.model
        assert not model.training
        assert not torch.is_grad_enabled()
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})
        return {"ndcg@20": self.values[len(self.weights) - 1]}


@pytest.fixture
def graph(random_graph):
    return random_graph(33, 20)


@pytest.fixture
def pairs(graph):
    return pairs_of(graph)


def former(graph, rng, **options) -> MGFormer:
    defaults = {"dim": 4, "rank": 4, "key_sample": 10}
    return MGFormer(MGFormer.Config(**{**defaults, **options}), graph, rng)


def options(**given) -> TrainConfig:
    return TrainConfig(**{"epochs": 6, "batch_size": 64, "lr": 1e-2, **given})


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def differ(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(value, other[name]) for name, value in one.items())


def timeless(history: list[dict]) -> list[dict]:
    return [{name: v for name, v in entry.items() if "seconds" not in name} for entry in history]


@pytest.mark.parametrize(
    ("values", "every", "patience", "epochs", "best"),
    [
        ((0.1, 0.3, 0.2, 0.2, 0.9), 1, 2, 4, 2),  # two in a row that are no better
        ((0.1, 0.3, 0.2, 0.4, 0.3, 0.3, 0.9), 1, 2, 6, 4),  # a better one starts the count again
        ((0.3, 0.2, 0.1, 0.9), 2, 2, 6, 2),  # counted in validations, not in epochs
        ((0.3, 0.3, 0.9), 1, 1, 2, 1),  # as good is not better
        ((0.0, 0.0, 0.0), 1, 2, 3, 1),  # the first is the best until another is
        ((0.1, 0.2, 0.3), 3, 1, 9, 9),  # the epochs run out first
        ((), 10, 1, 9, 9),  # never validated: the last weights
    ],
)
def test_patience_and_the_best_weights(pairs, rng, values, every, patience, epochs, best):
    model = Slope()
    validate = Scripted(model, *values, *[0.0] * 9)
    seen = []
    done = fit(
        model,
        pairs,
        options(epochs=9, evaluate_every=every, patience=patience),
        rng,
        validate=validate,
        write=seen.append,
    )
    assert (done.epochs, done.best_epoch) == (epochs, best)
    assert [entry["epoch"] for entry in seen] == [*range(1, epochs + 1)]
    assert seen == done.history
    at = [entry["epoch"] for entry in done.history if "ndcg@20" in entry]
    assert at == [*range(every, epochs + 1, every)]
    assert [entry["ndcg@20"] for entry in done.history if "ndcg@20" in entry] == [
        validate.values[n] for n in range(len(at))
    ]
    steps = loop.num_batches(pairs, 64)
    assert model.p.item() == pytest.approx(-1e-2 * steps * best, rel=1e-6)
    if at:
        assert done.best_value == max(validate.values[: len(at)])
        assert_same_bits(dict(model.state_dict()), validate.weights[best // every - 1])
        # Each validation gets the entries of earlier ones.
        assert validate.before == [list(validate.values[:n]) for n in range(len(at))]
    assert not model.training


def test_without_validation_all_epochs_and_the_last_weights(pairs, rng):
    model = Slope()
    done = fit(model, pairs, options(patience=1), rng)
    assert (done.epochs, done.best_epoch) == (6, 6)
    assert model.p.item() == pytest.approx(-1e-2 * 6 * loop.num_batches(pairs, 64), rel=1e-6)
    assert all(entry.keys() == {"epoch", "loss", "seconds"} for entry in done.history)


class Redrawn(MGFormer):
    """Draws new random features for every epoch."""

    def on_epoch(self, rng):
        projections = self.layers[0].projections
        projections.copy_(torch.from_numpy(rng.standard_normal(projections.shape)))


def test_the_best_buffers_come_back_with_the_best_weights(graph, pairs, rng):
    """Random features are no parameters, and yet part of what was best."""
    model = Redrawn(MGFormer.Config(dim=4, rank=4), graph, rng)
    validate = Scripted(model, 0.1, 0.9, 0.2, 0.3)
    fit(model, pairs, options(epochs=4), rng, validate=validate)
    assert_same_bits(dict(model.state_dict()), validate.weights[1])
    name = "layers.0.projections"
    assert not torch.equal(validate.weights[1][name], validate.weights[3][name])


def test_the_rate_falls_along_a_cosine_also_when_stopped_earlier(pairs):
    config = options(epochs=5, decay="cosine", lr=0.1)
    whole, part, flat = Slope(), Slope(), Slope()
    done = fit(whole, pairs, config, np.random.default_rng(0))
    stopped = fit(part, pairs, config, np.random.default_rng(0), epochs=2)
    fit(flat, pairs, options(epochs=5, lr=0.1), np.random.default_rng(0))
    assert (done.epochs, stopped.epochs) == (5, 2)
    steps = loop.num_batches(pairs, 64)
    moves = -np.diff([*whole.places, whole.p.item()])
    expected = [0.05 * (1 + math.cos(math.pi * n / (5 * steps))) for n in range(5 * steps)]
    np.testing.assert_allclose(moves, expected, rtol=1e-6)
    np.testing.assert_array_equal(part.places, whole.places[: 2 * steps])
    np.testing.assert_allclose(-np.diff(flat.places), 0.1, rtol=1e-6)


def test_every_pair_once_per_epoch_in_an_order_of_its_own(pairs, rng):
    model = Slope()
    fit(model, pairs, options(epochs=3, batch_size=17), rng)
    steps = -(-len(pairs) // 17)
    assert [len(batch) for batch in model.visited[:steps]][:-1] == [17] * (steps - 1)
    everything = list(zip(pairs.rows.tolist(), pairs.indices.tolist(), strict=True))
    orders = []
    for epoch in range(3):
        visited = [
            pair for batch in model.visited[epoch * steps : (epoch + 1) * steps] for pair in batch
        ]
        assert sorted(visited) == everything
        orders.append(visited)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert everything not in orders


class Replayed(MGFormer):
    """Keeps the batches it is given."""

    def loss(self, batch, generator):
        self.__dict__.setdefault("batches", []).append(batch)
        return super().loss(batch, generator)


def test_the_steps_are_those_of_adam_by_hand(graph, pairs, rng):
    """Also the second one, which a gradient left over from the first would change."""
    config = MGFormer.Config(dim=4, rank=4, key_sample=None)
    model = Replayed(config, graph, np.random.default_rng(0))
    by_hand = MGFormer(config, graph, np.random.default_rng(0))
    done = fit(model, pairs, options(epochs=2), rng)
    adam = torch.optim.Adam(by_hand.parameters(), lr=1e-2)
    losses = []
    for batch in model.batches:
        adam.zero_grad()
        loss = by_hand.loss(batch, torch.Generator())
        loss.backward()
        adam.step()
        losses.append(loss.item() * len(batch.users))
    assert len(losses) == 2 * loop.num_batches(pairs, 64) > 4
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, by_hand.get_parameter(name), rtol=1e-4, atol=1e-6)
    means = np.array(losses).reshape(2, -1).sum(1) / len(pairs)
    np.testing.assert_allclose([entry["loss"] for entry in done.history], means, rtol=1e-5)


def test_the_loss_goes_down_on_what_can_be_learned(rng):
    graph = checkerboard()
    done = fit(former(graph, rng), pairs_of(graph), options(epochs=20), rng)
    losses = [entry["loss"] for entry in done.history]
    assert losses[-1] < losses[4] < losses[0] - 0.1


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(graph, pairs):
    def weights(seed: int) -> dict[str, torch.Tensor]:
        model = former(graph, np.random.default_rng(0))
        fit(model, pairs, options(epochs=2), np.random.default_rng(seed))
        return dict(model.state_dict())

    assert_same_bits(weights(5), weights(5))
    assert differ(weights(5), weights(6))


def test_divergence_is_one_line_that_names_the_rate(pairs, rng):
    seen = []
    with pytest.raises(ConfigError) as caught:
        fit(Slope(math.nan), pairs, options(lr=0.25), rng, write=seen.append)
    message = str(caught.value)
    assert message.startswith("training diverged: the loss is nan in epoch 1; lower train.lr")
    assert message.endswith("which is 0.25")
    assert "\n" not in message
    assert seen == []


def test_nothing_to_learn_from(pairs, rng):
    model = Slope()
    done = fit(model, pairs.subset(np.zeros(len(pairs), dtype=bool)), options(), rng)
    assert done == Fit()
    assert model.p.item() == 0


def test_checkpoints_are_not_written_for_every_short_epoch(pairs, rng, monkeypatch):
    kept = []
    fit(Slope(), pairs, options(), rng, save=kept.append)
    assert kept == []
    now = iter(range(100))  # a second passes from one look at the clock to the next
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 2)
    fit(Slope(), pairs, options(epochs=7), rng, save=kept.append)
    assert [checkpoint.state["epochs"] for checkpoint in kept] == [2, 4, 6]


PAPER = {"residual": 0, "normalized": False, "sharpness": None, "num_heads": 2}
# Options of the model and of training, and the epoch that is best on validation, if there is one.
RESUMED = {
    "default": ({}, {}, None),
    "rows": ({}, {"optimizer": "rows"}, 5),
    "attention off, cosine": ({"attention_weight": 0}, {"decay": "cosine"}, 2),
    "paper": (PAPER, {"weight_decay": 1e-3}, 2),
    "paper, cosine": (PAPER, {"decay": "cosine"}, 5),
    "paper, rows, cosine": (PAPER, {"optimizer": "rows", "decay": "cosine"}, None),
}


@pytest.mark.parametrize("form", RESUMED)
def test_a_resumed_run_is_the_same_run(form, graph, pairs, tmp_path, monkeypatch):
    """To the bit, and in all that the last checkpoint holds: also the optimisers' memory."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    of_model, of_training, best = RESUMED[form]

    def run(name, start=None):
        draw = np.random.default_rng(7)
        model = former(graph, draw, **of_model)
        values = [0.9 if epoch == best else 0.1 for epoch in range(1, 7)]
        done_before = start.state["epochs"] if start else 0
        done = fit(
            model,
            pairs,
            options(**of_training),
            draw,
            validate=Scripted(model, *values[done_before:]) if best else None,
            save=lambda kept: save_checkpoint(tmp_path / f"{name}-{kept.state['epochs']}", kept),
            start=start,
        )
        return dict(model.state_dict()), done, load_checkpoint(tmp_path / f"{name}-6")

    weights, done, last = run("whole")
    start = load_checkpoint(tmp_path / "whole-3")
    assert (start.state["epochs"], len(start.state["history"])) == (3, 3)
    weights_again, done_again, last_again = run("resumed", start)
    assert not (tmp_path / "resumed-3").exists()
    assert_same_bits(weights, weights_again)
    assert_same_bits(last.tensors, last_again.tensors)
    assert timeless(done.history) == timeless(done_again.history)
    assert done_again.epochs == 6
    assert done_again.best_epoch == done.best_epoch == (best or 6)
    assert done_again.best_value == done.best_value
    assert last_again.state["shuffling"] == last.state["shuffling"]
    # Something was still to be learned after the third epoch.
    assert differ(
        {name: value for name, value in start.tensors.items() if name.startswith("model/")},
        last.tensors,
    )


def test_a_run_that_was_out_of_patience_is_not_trained_further(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)

    def run(model, values, **more):
        return fit(
            model,
            pairs,
            options(patience=2),
            np.random.default_rng(0),
            validate=Scripted(model, *values),
            **more,
        )

    model, again = Slope(), Slope()
    done = run(model, [0.5, 0.2, 0.1], save=lambda kept: save_checkpoint(tmp_path, kept))
    assert (done.epochs, done.best_epoch) == (3, 1)
    resumed = run(again, [], start=load_checkpoint(tmp_path))
    assert resumed == done
    assert again.places == []
    assert torch.equal(model.p, again.p)


def test_a_finished_run_keeps_the_weights_of_its_checkpoint(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    model, again = Slope(), Slope()
    fit(
        model,
        pairs,
        options(epochs=2),
        np.random.default_rng(0),
        save=lambda kept: save_checkpoint(tmp_path, kept),
    )
    start = load_checkpoint(tmp_path)
    done = fit(again, pairs, options(epochs=2), np.random.default_rng(0), start=start)
    assert (done.epochs, done.best_epoch, again.places) == (2, 2, [])
    assert torch.equal(model.p, again.p)


def changed_tensor(name, change):
    return lambda state, tensors: tensors.update({name: change(tensors[name])})


class Tied(Slope):
    """A model with two names for one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.again = self.p


def test_tied_weights_can_be_written(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    model = Tied()
    save = lambda kept: save_checkpoint(tmp_path, kept)  # noqa: E731
    fit(model, pairs, options(epochs=2), np.random.default_rng(0), save=save)
    safetensors.torch.save_file(loop.weights_of(model), tmp_path / "weights")
    kept = load_checkpoint(tmp_path).tensors
    assert kept["model/p"] == kept["model/again"] == model.p != 0
    again = Tied()
    fit(again, pairs, options(epochs=2), np.random.default_rng(0), start=load_checkpoint(tmp_path))
    assert_same_bits(again.state_dict(), model.state_dict())


CRAFTED = {
    "no generator": lambda state, tensors: tensors.pop("generator"),
    "short generator": changed_tensor("generator", lambda t: t[:7]),
    "float generator": changed_tensor("generator", lambda t: t.float()),
    "unknown part": lambda state, tensors: tensors.update({"x/y": torch.zeros(1)}),
    "no weights": lambda state, tensors: tensors.pop("model/p"),
    "no best": lambda state, tensors: tensors.pop("best/p"),
    "other shape": changed_tensor("best/p", lambda t: torch.zeros(7, 3)),
    "other type": changed_tensor("model/p", lambda t: t.float()),
    "optimizer shape": changed_tensor("optimizer/0.0.exp_avg", lambda t: torch.zeros(9, 9)),
    "optimizer place": lambda state, tensors: tensors.update(
        {"optimizer/0.9.step": torch.ones(())}
    ),
    "optimizer name": lambda state, tensors: tensors.update({"optimizer/a": torch.ones(())}),
    "optimizer part": lambda state, tensors: tensors.pop("optimizer/0.0.exp_avg_sq"),
    "no epochs": lambda state, tensors: state.pop("epochs"),
    "text epochs": lambda state, tensors: state.update(epochs="2"),
    "negative epochs": lambda state, tensors: state.update(epochs=-1, history=[]),
    "other history": lambda state, tensors: state.update(history=[{}]),
    "best to come": lambda state, tensors: state.update(best_epoch=9),
    "no shuffling": lambda state, tensors: state.pop("shuffling"),
    "other shuffling": lambda state, tensors: state.update(shuffling={"bit_generator": "MT19937"}),
    "huge shuffling": lambda state, tensors: state["shuffling"]["state"].update(state=10**400),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_checkpoint_that_does_not_fit_is_one_line(name, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    model = Slope()
    fit(
        model,
        pairs,
        options(epochs=2),
        np.random.default_rng(0),
        validate=Scripted(model, 0.2, 0.1),
        save=lambda kept: save_checkpoint(tmp_path, kept),
    )
    kept = load_checkpoint(tmp_path)
    CRAFTED[name](kept.state, kept.tensors)
    save_checkpoint(tmp_path, kept)
    start = load_checkpoint(tmp_path)
    with pytest.raises(BundleError) as caught:
        fit(Slope(), pairs, options(epochs=3), np.random.default_rng(0), start=start)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/checkpoint.safetensors: not a usable checkpoint (")
    assert message.isprintable()


def test_training_ends_at_a_time_with_the_best_weights_so_far(pairs, monkeypatch):
    """The epoch that is interrupted leaves no trace, and the epochs before it are as always."""
    clock = iter(range(1000))  # one tick for each batch
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(clock)))
    small = options(epochs=9, batch_size=16)
    steps = -(-len(pairs) // small.batch_size)
    assert steps > 1
    values = iter([0.2, 0.3, 0.1])
    early, whole = Slope(), Slope()
    ticks = 2 * steps + 1 + 1  # two epochs, the tick before them, and one batch of the third
    done = fit(
        early,
        pairs,
        small,
        np.random.default_rng(0),
        validate=lambda scorer, before: {"ndcg@20": next(values)},
        until=ticks,
    )
    fit(whole, pairs, small, np.random.default_rng(0), epochs=2)
    assert (done.epochs, done.best_epoch, len(done.history)) == (2, 2, 2)
    assert len(early.places) == 2 * steps + 1
    assert early.p.item() == whole.p.item() != 0
    at_once = fit(Slope(), pairs, small, np.random.default_rng(0), until=-math.inf)
    assert (at_once.epochs, at_once.best_epoch) == (0, 0)


def test_a_run_resumes_on_another_device(graph, pairs, monkeypatch):
    """Its generator cannot go on there with the same numbers, but the run can."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    kept = []
    fit(former(graph, np.random.default_rng(0)), pairs, options(epochs=2), np.random.default_rng(0),
        save=lambda checkpoint: kept.append(deepcopy(checkpoint)))  # fmt: skip
    assert kept[0].state["device"] == "cpu"
    elsewhere = kept[0]._replace(
        state={**kept[0].state, "device": "cuda"},
        tensors={**kept[0].tensors, "generator": torch.zeros(16, dtype=torch.uint8)},
    )
    done = [
        fit(former(graph, np.random.default_rng(0)), pairs, options(epochs=2),
            np.random.default_rng(0), start=start)
        for start in (kept[0], elsewhere)
    ]  # fmt: skip
    assert [one.epochs for one in done] == [2, 2]
    assert done[0].history[1]["loss"] != done[1].history[1]["loss"]
