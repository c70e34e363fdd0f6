"""Several processes train as one: the same losses, the same metrics, and few bytes."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from mgformer.errors import ConfigError
from mgformer.models import BUILTIN, model_class
from mgformer.models.base import TrainableModel
from mgformer.world import Shards, World, bounds, current
from tests import ranks
from tests.command import succeed
from tests.nn.test_kernel_attention import Nodes
from tests.runs.test_killed_rank import environment


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return ranks.everything()


@pytest.fixture(scope="module", params=[2, 4])
def several(request, tmp_path_factory):
    return ranks.run(request.param, ranks.everything, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
def test_ranks_train_as_one_process_does(alone, several):
    for form, one in alone["steps"].items():
        of_ranks = [rank["steps"][form] for rank in several]
        assert np.ptp(one["losses"]) > 1e-2, form
        owned = [rank["own"] for rank in of_ranks]
        assert sum(owned) == one["own"]
        assert max(owned) < 1.3 * one["own"] / len(several)
        exact = form in ranks.FORMS  # in float64
        loss_error, vector_error = (1e-9, 1e-8) if exact else (1e-5, 1e-4)
        for rank in of_ranks:
            np.testing.assert_allclose(rank["losses"], one["losses"], rtol=loss_error, err_msg=form)
            np.testing.assert_allclose(
                rank["vectors"], one["vectors"], rtol=0, atol=vector_error, err_msg=form
            )
            assert rank["vectors"] == of_ranks[0]["vectors"]  # to the bit
            assert rank["sent"] > 0


@pytest.mark.slow
def test_evaluate_divides_its_users(tmp_path):
    command = ["evaluate", tmp_path / "run", "--json", "--device", "cpu"]
    succeed("train", "demo", "--model", "itemknn", "--out", tmp_path / "run")
    settings = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ranks.free_port()}
    each = [
        subprocess.Popen(
            [sys.executable, "-m", "mgformer", *map(str, command)],
            env=environment(RANK=rank, **settings),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (process.communicate(timeout=600)[0] for process in each)
    assert json.loads(first) == json.loads(succeed(*command))
    assert second == ""


@pytest.mark.slow
def test_lists_and_regressions_are_those_of_one_process(alone, several):
    expected = alone["structure"]["parts"]
    assert len(expected["regression.data"][1]) > 100
    for rank in several:
        assert rank["structure"]["sent"] > 0
        assert rank["structure"]["parts"] == expected  # to the bit


@pytest.mark.slow
def test_metrics_are_those_of_one_process(alone, several):
    assert alone["run"]["test"]["ndcg@20"] > 2 * alone["run"]["popularity"]["ndcg@20"]
    for rank in several:
        assert rank["run"] == alone["run"]


@pytest.mark.slow
def test_attention_over_the_keys_of_all_ranks_is_that_over_all_keys(tmp_path):
    found = ranks.run(3, ranks.merged_attention, tmp_path)
    for scale in ("1", "4"):
        nodes = Nodes(np.random.default_rng(3), 12, zero=1, scale=float(scale))
        expected = nodes.slow()
        (expected * nodes.direction).sum().backward()
        rows = [np.reshape(rank[scale][0], (-1, 3)) for rank in found]
        np.testing.assert_allclose(np.concatenate(rows), expected.detach(), rtol=0, atol=1e-12)
        for place, part in enumerate(nodes.inputs(), start=1):
            gradient = sum(np.array(rank[scale][place]) for rank in found)
            assert part.grad.abs().max() > 1e-3
            np.testing.assert_allclose(gradient, part.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_the_bytes_of_a_step_do_not_depend_on_the_graph(tmp_path):
    sent = ranks.run(2, ranks.bytes_of_steps, tmp_path)[0]
    small, large = sent.pop("lightgcn")
    assert large > 5 * small > 0
    for form, (small, large) in sent.items():
        assert small == large > 0, form


@pytest.mark.parametrize(("users", "items", "size"), [(7, 5, 1), (7, 5, 3), (2, 9, 4), (64, 64, 4)])
def test_every_node_has_one_owner(users, items, size):
    owned = np.concatenate(Shards(World(0, size), users, items).nodes_of)
    np.testing.assert_array_equal(np.sort(owned), np.arange(users + items))
    for rank in range(size):
        shards = Shards(World(rank, size), users, items)
        assert shards.own.tolist() == sorted(shards.own.tolist())
        assert len(shards.own) <= shards.longest
        nodes = torch.arange(users + items).flip(0)
        mine, rows = shards.places(nodes)
        assert torch.equal(shards.own[rows], nodes[mine])
        assert len(mine) == len(shards.own)


def test_every_pair_of_a_batch_is_in_one_share():
    for batch in (1, 3, 8, 33):
        parts = [Shards(World(rank, 4), 1, 1).part(batch) for rank in range(4)]
        assert [n for part in parts for n in range(batch)[part]] == [*range(batch)]
    assert bounds(10, 4) == [0, 2, 5, 7, 10]


SHARDED = {name for name, _ in ranks.FORMS.values()}


@pytest.mark.parametrize(
    "name", [n for n in BUILTIN if issubclass(model_class(n), TrainableModel) and n not in SHARDED]
)
def test_other_models_say_that_they_do_not(name, random_graph):
    rng = np.random.default_rng(0)
    model = model_class(name)(model_class(name).Config(), random_graph(9, 8), rng)
    with pytest.raises(ConfigError, match="does not train on several processes"):
        model.shard(World(0, 2))


def test_a_process_alone_is_a_world():
    assert current() == World(0, 1)
    assert current().leads
    assert current().agreed(3.5) == 3.5
