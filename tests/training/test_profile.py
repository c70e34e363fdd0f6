"""A profile names the stages of a step and the operators in it, and trains nothing on disk."""

import json
from pathlib import Path

import numpy as np

from mgformer.models.bprmf import BPRMF
from mgformer.training.options import TrainConfig
from mgformer.training.profile import STAGES, profile
from tests.command import assert_one_line, mgformer, succeed
from tests.models.test_contract import pairs_of


def test_stages_and_operators_have_their_times(random_graph):
    graph = random_graph(33, 20)
    rng = np.random.default_rng(0)
    model = BPRMF(BPRMF.Config(), graph, rng)
    before = model.embeddings.detach().clone()
    found = profile(model, pairs_of(graph), TrainConfig(batch_size=64), rng, steps=4)
    assert tuple(found.stages) == STAGES
    assert all(ms > 0 for ms in found.stages.values())
    assert found.steps_per_epoch == -(-len(pairs_of(graph)) // 64)
    times = [ms for ms, _ in found.operators.values()]
    assert times == sorted(times, reverse=True)
    assert found.operators["aten::_fused_adam_"][1] == 1  # once in every step
    assert not np.array_equal(before, model.embeddings.detach())


def test_on_the_command_line(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = succeed("train", "demo", "--model", "bprmf", "--profile")
    assert "one step takes" in shown
    assert "gradient" in shown
    found = json.loads(succeed("train", "demo", "--model", "bprmf", "--profile", "--json"))
    assert set(found["stages"]) == set(STAGES)
    assert not list(tmp_path.iterdir())
    done = mgformer("train", "demo", "--model", "ease", "--profile", "--set", "split.kind=ratio")
    assert_one_line(done, "ease is not trained step by step")
