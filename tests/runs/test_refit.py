"""A recommender trained once more on everything, after its test."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mgformer.errors import ConfigError
from mgformer.ranking.score import rescored
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle_files import load_bundle
from mgformer.runs.config import build_config
from mgformer.runs.fit import fit
from mgformer.runs.refit import refit
from mgformer.runs.train import streams_of, untrained_model
from mgformer.training.log import read_log
from tests.command import assert_one_line, mgformer, succeed
from tests.runs.test_resume import TINY, described, interrupted

SHORT = {
    "train": {"epochs": 4, "evaluate_every": 2},
    "evaluation": {"ks": [20]},
    "split": {"kind": "ratio"},
}


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tested") / "run"
    succeed(*described({**TINY, "model.key_sample": 64}, "--out", folder))
    return folder


@pytest.mark.parametrize("split", ["ratio", "users"])
@pytest.mark.parametrize("model", ["ease", "itemknn", "bprmf"])
def test_a_refit_trains_on_everything_with_the_chosen_epochs_and_score(
    model: str, split: str
) -> None:
    options = SHORT if model == "bprmf" else {}
    before = Recommender.fit("demo", model, **{**options, "split": {"kind": split}}).bundle
    after = Recommender(before).refit().bundle
    assert (after.train.matrix != before.known).nnz == 0
    assert len(after.train) > len(before.train)
    assert (len(after.valid), len(after.test), after.history) == (0, 0, None)
    config, record = build_config(before.record.config), before.record
    rng = streams_of(config.seed).whole
    wanted = fit(config, after.train, rng, chosen=record.chosen).scorer
    users = torch.arange(5)
    np.testing.assert_array_equal(after.scorer.scores(users), wanted.scores(users))
    assert not torch.equal(after.scorer.scores(users), before.scorer.scores(users))


def test_a_refit_keeps_the_figures_of_the_test() -> None:
    before = Recommender.fit("demo", "bprmf", **SHORT).bundle
    after = refit(before)
    for name in ("test", "valid", "groups", "popularity", "epochs", "score", "config"):
        assert getattr(after.record, name) == getattr(before.record, name)
    assert after.per_user is before.per_user
    assert after.record.protocol.startswith(before.record.protocol)
    assert "trained again on everything" in after.record.protocol
    assert after.record.refit.pairs == len(before.train) + len(before.valid) + len(before.test)


def test_streams_of_the_runs_before_are_what_they_were() -> None:
    split, model = np.random.default_rng(3).spawn(2)
    streams = streams_of(3)
    for own, wanted in zip(streams, (split, *model.spawn(2)), strict=False):
        assert own.random() == wanted.random()


def test_a_refit_of_a_warm_started_run_starts_from_its_own_weights(tmp_path: Path) -> None:
    Recommender.fit("demo", "bprmf", **SHORT).save(tmp_path / "first")
    config = {**SHORT, "warm_start": str(tmp_path / "first"), "split": {"kind": "ratio"}}
    second = Recommender.fit("demo", "bprmf", train={"epochs": 4, "lr": 1e-12})
    described = build_config({**second.bundle.record.config, **config})
    record = second.bundle.record.model_copy(update={"config": described.to_mapping()})
    third = refit(replace(second.bundle, record=record))
    start = untrained_model(third)
    names = [name for name, _ in start.named_parameters()]
    assert names
    for name in names:  # its own start is where it began, but for a few steps
        near = (third.weights[name] - second.bundle.weights[name]).abs().mean()
        far = (third.weights[name] - start.state_dict()[name]).abs().mean()
        assert near < far


def test_a_rebuilt_model_with_its_weights_equals_the_saved_one() -> None:
    options = {"dim": 8, "rank": 8, "residual": 0, "num_heads": 4, "key_sample": 64}
    bundle = refit(Recommender.fit("demo", "mgformer", options=options, **SHORT).bundle)
    model = untrained_model(bundle)
    model.load_state_dict(dict(bundle.weights))
    record, degrees = bundle.record, torch.from_numpy(bundle.item_degrees)
    again = rescored(model.eval().scorer(), record.score, record.gamma, degrees)
    assert torch.equal(again.items, bundle.scorer.items)


def test_nothing_held_out_is_refused() -> None:
    done = refit(Recommender.fit("demo", "itemknn").bundle)
    with pytest.raises(ConfigError, match="nothing was held out of the"):
        refit(done)


def test_the_command(tested: Path) -> None:
    folder = tested.with_name("run-refit")
    shown = succeed("refit", tested)
    before, after = load_bundle(tested), load_bundle(folder)
    held_out = len(before.valid) + len(before.test)
    assert f"trained on {len(after.train):,} pairs, {held_out:,} of them held out" in shown
    assert f"{before.record.test['recall@20']:.4f}" in shown
    entries = read_log(folder)
    assert [entry["epoch"] for entry in entries] == list(range(1, before.record.epochs + 1))
    again = json.loads(succeed("evaluate", folder, "--json"))
    assert again["test"] == before.record.test
    succeed("export", folder, "--format", "card")
    assert "all pairs, after these figures" in (folder / "export/MODEL_CARD.md").read_text()
    assert_one_line(mgformer("refit", folder), "nothing was held out")
    assert_one_line(mgformer("refit", tested / "nowhere"), "nowhere")


def test_an_interrupted_refit_ends_as_if_it_had_never_stopped(tested: Path, tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "run"
    succeed("refit", tested, "--out", whole)
    stopped = interrupted("refit", 3, "refit", tested, "--out", folder)
    assert stopped.returncode == 130
    assert_one_line(mgformer("train", "--resume", "--out", folder), "use mgformer refit")
    hint = stopped.stderr.splitlines()[-1].rpartition("continue with: mgformer ")[2]
    succeed(*shlex.split(hint))
    one, other = load_bundle(whole), load_bundle(folder)
    assert torch.equal(one.scorer.users, other.scorer.users)
    assert torch.equal(one.scorer.items, other.scorer.items)
