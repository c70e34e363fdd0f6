"""What a run needs: estimates beside what runs really take, and refusals."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.data.demo import demo_dataset
from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.models import BUILTIN, build_model, model_class
from mgformer.models.base import Size, TrainableModel
from mgformer.models.guided import Guided
from mgformer.models.simple.ridge import Ridge
from mgformer.runs import needs as module
from mgformer.runs.config import build_config
from mgformer.runs.needs import check_fits, needs
from mgformer.runs.train import train
from tests.command import mgformer
from tests.models.test_contract import pairs_of

ROOT = Path(__file__).parents[2]
MEASURE = """
import sys, numpy as np
from benchmarks.generated import write_generated
from mgformer.data.dataset import open_dataset
from mgformer.runs.config import build_config
from mgformer.runs.needs import needs
from mgformer.runs.train import train
from mgformer.training.memory import peak_mb, reset_peak
from pathlib import Path

path = Path(sys.argv[1])
write_generated(path, 30_000, 20_000, 300_000)
model = {"name": sys.argv[2], "dim": 64}
if sys.argv[2] == "guided":
    model |= {"num_predictors": 32, "l2": 60, "num_neighbors": 16}
options = {"optimizer": sys.argv[3], "epochs": 1, "batch_size": 8192, "validation_users": 500}
evaluation = {"memory_mb": 20, "ks": [20]}
score = {"kind": "prior", "delta": 1, "gamma": 0.1} if sys.argv[2] == "guided" else {}
config = build_config({"model": model, "train": options, "split": {"test": 0.01, "valid": 0.01},
                       "evaluation": evaluation, "score": score})
pairs = open_dataset(path).interactions
found = needs(config, pairs)
reset_peak()
before = peak_mb()
from mgformer.data.dataset import Dataset
train(config, Dataset("generated", pairs))
certain = max(need.certain for need in found.phases) / 2**20
print(certain, found.largest.expected / 2**20, peak_mb() - before)
"""


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_tables_are_not_overestimated(name, random_graph):
    graph = random_graph(40, 30)
    config = model_class(name).Config()
    size = Size(40, 30, graph.interactions.nnz)
    own = model_class(name).footprint(config, size)
    model = build_model(name, config, graph, np.random.default_rng(0))
    if isinstance(model, TrainableModel):
        assert 0 <= own.table <= sum(4 * p.numel() for p in model.parameters())
        assert model.takes_rows(config) == bool(model.tables())
    else:
        assert own.table == 0


def test_lists_of_guided_are_counted_as_if_they_were_full(random_graph):
    graph = random_graph(40, 30)
    options = {"dim": 8, "num_neighbors": 3, "num_predictors": 5, "l2": 1.0}
    model = Guided(Guided.Config(**options), graph, np.random.default_rng(0))
    weights = model.guide().weights
    entries = model.matrix.nnz + weights.nnz
    found = Guided.footprint(model.config, Size(40, 30, graph.interactions.nnz))
    # Users have 3 items; items have 3 users and 3 items; each node itself; 5 predictors.
    assert found.held == 8 * (40 * 3 + 30 * 6 + 70 + 30 * 5)
    assert 0.7 * found.held <= 8 * entries <= found.held
    assert found.table == model.tokens.numel() * 4 == 70 * 8 * 4
    ridge = Ridge.footprint(Ridge.Config(num_predictors=5), Size(40, 30, 0))
    assert (ridge.held, ridge.preparing) == (8 * 150, 20 * 150)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "optimizer"), [("guided", "rows"), ("bprmf", "adam")])
def test_what_is_certain_is_less_than_a_run_takes(name, optimizer, tmp_path):
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "a.parquet"), name, optimizer]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    certain, expected, measured = map(float, done.stdout.split())
    assert certain * 2**20 >= 0.99 * 3 * 50_000 * 64 * 4
    assert certain <= measured
    assert certain < expected


@pytest.fixture
def little(monkeypatch):
    """A computer with as many bytes of memory as the test wants."""

    def have(number):
        monkeypatch.setattr(module, "available_bytes", lambda swap: number)

    return have


def config_of(**options):
    return build_config({"dataset": "demo", "model": {"name": "guided"}, **options})


def test_a_run_that_cannot_fit_is_refused_with_advice_that_fits(little):
    pairs = demo_dataset().interactions
    table = 1200 * 128 * 4
    little(3 * table)
    check_fits(config_of(), pairs)
    little(3 * table - 1)
    with pytest.raises(ConfigError) as caught:
        check_fits(config_of(), pairs)
    message = str(caught.value)
    assert "needs at least 1.8 MB of memory, got 1.8 MB that are free" in message
    assert message.endswith("use --set train.optimizer=rows --set model.dim=64")
    check_fits(config_of(train={"optimizer": "rows"}, model={"name": "guided", "dim": 64}), pairs)
    little(0)
    with pytest.raises(ConfigError, match="a computer with more memory"):
        check_fits(config_of(), pairs)
    little(None)  # the system does not tell
    check_fits(config_of(), pairs)


@pytest.mark.parametrize(
    ("model", "advised"),
    [
        ({"name": "bprmf"}, "use --set train.optimizer=rows --set model.dim=64"),
        ({"name": "lightgcn"}, "use --set model.dim=64"),
        ({"name": "directau"}, "use --set model.dim=64"),
        ({"name": "directau", "encoder": "mf"}, "--set train.optimizer=rows --set model.dim=64"),
        ({"name": "bprmf", "dim": 24}, "or --model itemknn"),
    ],
    ids=str,
)
def test_advice_names_only_what_the_model_takes(model, advised, little):
    little(3 * 1200 * model.get("dim", 128) * 4 - 1)
    with pytest.raises(ConfigError) as caught:
        check_fits(config_of(model={"dim": 128, **model}), demo_dataset().interactions)
    assert str(caught.value).endswith(advised)


def test_advice_for_data_that_are_split_leaves_splitting_out(little):
    pairs = pairs_of(Graph(sp.csr_array(np.ones((300, 200), dtype=np.float32))))
    config = config_of(model={"name": "lightgcn", "dim": 32})
    enough = 3 * 500 * 16 * 4
    assert enough < needs(config, pairs).phases[0].certain
    little(enough)
    with pytest.raises(ConfigError, match=r"use --set model\.dim=16$"):
        check_fits(config, pairs)


def test_a_training_is_refused_before_it_starts(little, tmp_path):
    little(1000)
    with pytest.raises(ConfigError, match=r"guided: training.* needs at least"):
        train(config_of(), folder=tmp_path / "run")


def test_memory_of_another_device_is_not_checked(little, monkeypatch):
    little(0)
    monkeypatch.setattr(module, "resolve", lambda name: torch.device("meta"))
    check_fits(config_of(), demo_dataset().interactions)
    done = mgformer("train", "demo", "--model", "guided", "--dry-run")
    assert done.returncode == 0
    assert "the run may not fit" in done.stderr


def test_several_processes_are_not_checked(little, monkeypatch):
    little(0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_fits(config_of(), demo_dataset().interactions)


def test_dry_run(tmp_path, little):
    arguments = ("train", "demo", "--model", "guided", "--out", tmp_path / "run", "--dry-run")
    done = mgformer(*arguments)
    assert done.returncode == 0
    assert "guided on 800 users, 400 items and 12,260 pairs" in done.stdout
    assert re.search(r"^training, at most 60 epochs +[\d.]+ MB +1\.8 MB +\d+ s$", done.stdout, re.M)
    assert not (tmp_path / "run").exists()
    found = json.loads(mgformer(*arguments, "--json").stdout)
    assert found["fits"]
    assert found["phases"][2]["certain"] == 3 * 1200 * 128 * 4
    little(1000)
    done = mgformer(*arguments, "--json")
    assert done.returncode == 2
    assert not json.loads(done.stdout)["fits"]
    assert done.stderr.splitlines()[-1].startswith("error: guided: ")
    little(4_000_000)
    done = mgformer(*arguments)
    assert done.returncode == 0
    assert "the run may not fit" in done.stderr
    done = mgformer("train", "demo", "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "name it with --model" in done.stderr


def test_more_disk_than_there_is(monkeypatch, tmp_path):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(module, "available_bytes", lambda swap: None)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage)
    pairs = demo_dataset().interactions
    assert not needs(config_of(), pairs, tmp_path).fits
    assert needs(config_of(), pairs).fits  # nothing is saved
    with pytest.raises(ConfigError, match=r"of disk, got 0.0 MB that are free; use a computer"):
        check_fits(config_of(), pairs, tmp_path)
    usage.free = needs(config_of(), pairs, tmp_path).certain_disk - 1
    with pytest.raises(ConfigError, match=r"that are free; use --set model.dim=64$"):
        check_fits(config_of(), pairs, tmp_path)
