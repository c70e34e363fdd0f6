"""A proposal depends only on the earlier trials and the seed."""

import builtins
from typing import Any

import pytest

from mgformer.errors import ConfigError
from mgformer.experiments.search import FIRST_JUDGED, NEVER_PRUNED, Trial, propose, search_space
from mgformer.models.space import Choice, Float, Int
from mgformer.runs.config import build_config

SPACE = {"a": Float(1e-3, 1.0, log=True), "b": Int(1, 9), "c": Choice(("x", "y"))}


def made(number: int, value: float, **options: Any) -> Trial:
    options = options or {"a": 0.01 * (number + 1), "b": number % 9 + 1, "c": "x"}
    curve = {epoch: value * epoch / 10 for epoch in range(1, 11)}
    return Trial(
        state="complete", options=options, seconds=1.0, curve=curve, valid={"ndcg@20": value}
    )


def test_the_first_proposal_is_the_given_run() -> None:
    assert propose(SPACE, {"a": 0.5, "b": 2, "c": "y"}, 0, []).params == {
        "a": 0.5, "b": 2, "c": "y",
    }  # fmt: skip
    # Options outside the space are not proposed, and stay as they are.
    assert propose(SPACE, {"a": 0.0, "b": 99, "c": "x"}, 0, []).params == {"c": "x"}


def test_proposals_lie_in_the_space_and_are_reproducible() -> None:
    past = [made(0, 0.1, c="x"), *(made(n, 0.1 + n / 100) for n in range(1, 15))]
    found = [propose(SPACE, {}, 3, past[:n]).params for n in range(1, 16)]
    assert found == [propose(SPACE, {}, 3, past[:n]).params for n in range(1, 16)]
    assert found != [propose(SPACE, {}, 4, past[:n]).params for n in range(1, 16)]
    assert all(value in SPACE[name] for options in found for name, value in options.items())
    assert len({options["a"] for options in found}) == len(found)


def test_the_search_learns_from_good_trials() -> None:
    good = [made(n, 0.9, a=0.002, b=9, c="y") for n in range(6)]
    bad = [made(n, 0.1, a=0.5, b=1, c="x") for n in range(54)]
    proposed = [propose(SPACE, {}, seed, [*bad, *good]).params for seed in range(20)]
    assert sum(options["c"] == "y" for options in proposed) > 14  # by chance 10
    assert sum(options["a"] < 0.03 for options in proposed) > 14


def test_trials_below_the_median_are_pruned() -> None:
    past = [made(n, 0.5) for n in range(NEVER_PRUNED)]
    attempt = propose(SPACE, {}, 0, past)
    for epoch in range(1, FIRST_JUDGED):
        attempt.report(0.0, epoch)
        assert not attempt.should_prune()
    attempt.report(0.01, FIRST_JUDGED)
    assert attempt.should_prune()
    fine = propose(SPACE, {}, 0, past)
    for epoch in range(1, 20):
        fine.report(0.9, epoch)
        assert not fine.should_prune()
    early = propose(SPACE, {}, 0, past[1:])
    for epoch in range(1, 20):
        early.report(0.0, epoch)
        assert not early.should_prune()  # too few trials to compare with


def test_search_space() -> None:
    run = build_config({"model": {"name": "lightgcn"}})
    assert set(search_space(run)) == {
        "model.dim", "model.num_layers", "model.l2", "train.lr", "train.batch_size",
    }  # fmt: skip
    assert "model.dim" not in search_space(run, {"model.dim", "split.kind"})
    free = build_config({"model": {"name": "directau", "encoder": "mf"}})
    assert "train.weight_decay" in search_space(free)  # it has no penalty of its own
    assert "model.num_layers" not in search_space(free)
    assert set(search_space(build_config({"model": {"name": "ease"}}))) == {"model.l2"}
    assert not search_space(build_config({"model": {"name": "popularity"}}))


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ConfigError, match=r"pip install 'mgformer\[tune\]'"):
        propose(SPACE, {}, 0, [])
