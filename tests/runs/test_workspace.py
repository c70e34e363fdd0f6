"""The folder of an unfinished run: its log, and which run it may go on as."""

import json
import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from mgformer.errors import BundleError, ConfigError
from mgformer.runs import workspace
from mgformer.runs.config import build_config
from mgformer.runs.workspace import Workspace
from mgformer.training.checkpoint import NAME, Checkpoint, load_checkpoint, save_checkpoint
from tests.command import assert_one_line, mgformer


def config_of(**sections):
    return build_config({"model": {"name": "mgformer"}, **sections}).to_mapping()


def entries(*epochs):
    return [{"epoch": epoch, "loss": 1 / epoch, "seconds": 0.5} for epoch in epochs]


def logged(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert all(line.pop("stage") == "select" for line in lines)
    return lines


def interrupted(
    folder, epochs=2, written=3, fingerprint="data", stage="select", results=None, **given
):
    """Leave behind what a run does that is stopped some epochs after its last checkpoint."""
    workspace = Workspace(folder, config_of(**given), resume=False)
    workspace.begin(fingerprint)
    workspace.results = results or {}
    hooks = workspace.hooks(stage)
    for number, entry in enumerate(entries(*range(1, written + 1)), start=1):
        hooks["write"](entry)
        if number == epochs:
            state = {"epochs": epochs, "history": entries(*range(1, epochs + 1))}
            hooks["save"](Checkpoint(state, {"w": torch.arange(epochs)}))


def test_an_epoch_is_a_line_of_json_as_soon_as_it_ends(tmp_path):
    folder = tmp_path / "not" / "yet"
    workspace = Workspace(folder, config_of(), resume=False)
    workspace.begin("data")
    assert logged(folder) == []
    for entry in entries(1, 2):
        workspace.hooks("select")["write"](entry)
        assert logged(folder)[-1] == entry
    workspace.close()
    assert logged(folder) == entries(1, 2)
    assert workspace.hooks("select")["start"] is None


def test_resuming_rewrites_the_log_up_to_the_checkpoint(tmp_path):
    """Epochs after the checkpoint are trained again, and stand there once."""
    interrupted(tmp_path, epochs=2, written=4)
    assert logged(tmp_path) == entries(1, 2, 3, 4)
    workspace = Workspace(tmp_path, config_of(), resume=True)
    workspace.begin("data")
    assert logged(tmp_path) == entries(1, 2)
    hooks = workspace.hooks("select")
    assert hooks["start"].state["epochs"] == 2
    assert torch.equal(hooks["start"].tensors["w"], torch.arange(2))
    for entry in entries(3, 4):
        hooks["write"](entry)
    assert logged(tmp_path) == entries(1, 2, 3, 4)


def test_a_checkpoint_names_its_stage_and_carries_earlier_results(tmp_path):
    results = {"valid": {"ndcg@20": 0.1 + 0.2}, "choice": {"epochs": 3, "gamma": 0.25}}
    interrupted(tmp_path, stage="refit", results=results)
    workspace = Workspace(tmp_path, config_of(), resume=True)
    workspace.begin("data")
    assert workspace.results == results
    assert workspace.hooks("select")["start"] is None  # the stage before this one
    assert workspace.hooks("refit")["start"].state["epochs"] == 2


def test_the_stage_after_the_checkpoint_starts_at_its_beginning(tmp_path):
    interrupted(tmp_path)
    workspace = Workspace(tmp_path, config_of(), resume=True)
    assert workspace.results == {}
    assert workspace.hooks("refit")["start"] is None


@pytest.mark.parametrize(
    ("sections", "difference"),
    [
        ({"seed": 1}, "seed was 0, now 1"),
        ({"train": {"lr": 0.5}}, "train.lr was 0.002, now 0.5"),
        ({"train": {"lr": 0.5}, "seed": 1}, "seed was 0, now 1"),
        ({"model": {"name": "mgformer", "dim": 7}}, "model.dim was 128, now 7"),
        (
            {"model": {"name": "mgformer", "key_sample": None}},
            "model.key_sample was 1024, now 'none'",
        ),
        ({"model": {"name": "ease"}}, "model.attention_weight was 1.0, now None"),
        ({"dataset": "mine.csv"}, "dataset was 'demo', now 'mine.csv'"),
    ],
)
def test_other_options_are_refused_by_name(tmp_path, sections, difference):
    interrupted(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError) as caught:
        Workspace(tmp_path, config_of(**sections), resume=True)
    assert str(caught.value) == (
        f"{tmp_path}: the unfinished run there has other options ({difference});"
        " give the same ones, delete it, or choose another --out"
    )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_data_are_refused(tmp_path):
    interrupted(tmp_path, fingerprint="800x400-1")
    workspace = Workspace(tmp_path, config_of(), resume=True)
    with pytest.raises(ConfigError) as caught:
        workspace.begin("800x400-2")
    assert str(caught.value) == (
        f"{tmp_path}: the unfinished run there was trained on data 800x400-1, but got 800x400-2;"
        " give the same data, or choose another --out"
    )
    workspace.begin("800x400-1")


def test_starting_over_warns_and_begins_anew(tmp_path, caplog):
    interrupted(tmp_path)
    with caplog.at_level(logging.INFO, "mgformer"):
        workspace = Workspace(tmp_path, config_of(seed=1), resume=False)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"{tmp_path}: starting over; --resume would continue the unfinished run"
    )
    workspace.begin("other data")
    assert workspace.hooks("select")["start"] is None
    assert logged(tmp_path) == []
    assert load_checkpoint(tmp_path) is not None  # until there is something in its place
    workspace.hooks("select")["write"](*entries(1))
    assert load_checkpoint(tmp_path) is None


def test_resuming_without_a_checkpoint_is_logged_and_starts_over(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "mgformer"):
        workspace = Workspace(tmp_path, config_of(), resume=True)
        workspace.begin("data")
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "no checkpoint; starting from the beginning" in record.getMessage()
    assert workspace.hooks("select")["start"] is None


def test_a_fresh_folder_says_nothing(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG, "mgformer"):
        Workspace(tmp_path, config_of(), resume=False)
    assert not caplog.records


def test_a_checkpoint_names_its_run(tmp_path):
    interrupted(tmp_path, fingerprint="800x400-1", stage="refit", results={"choice": 3})
    state = load_checkpoint(tmp_path).state
    assert state["config"] == config_of()
    assert (state["fingerprint"], state["stage"]) == ("800x400-1", "refit")
    assert state["results"] == {"choice": 3}
    assert {path.name for path in tmp_path.iterdir()} == {NAME, "log.jsonl"}


def test_tensorboard_that_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError) as caught:
        Workspace(tmp_path, config_of(train={"tensorboard": True}), resume=False).begin("data")
    assert str(caught.value) == (
        "train.tensorboard: the package tensorboard is not installed;"
        " pip install 'mgformer[tensorboard]'"
    )
    # And it is not looked for unless asked for.
    Workspace(tmp_path, config_of(), resume=False).begin("data")


def test_tensorboard_gets_the_figures_and_drops_epochs_that_are_trained_again(
    tmp_path, monkeypatch
):
    told = []

    class Writer:
        def __init__(self, folder, purge_step):
            told.append((folder, purge_step))

        def add_scalar(self, tag, value, step):
            told.append((tag, value, step))

        def close(self):
            told.append("closed")

    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer)
    )
    interrupted(tmp_path, epochs=2, written=3, train={"tensorboard": True})
    place = str(tmp_path / "tensorboard")
    assert told[:3] == [(place, 1), ("select/loss", 1.0, 1), ("select/seconds", 0.5, 1)]
    told.clear()
    workspace = Workspace(tmp_path, config_of(train={"tensorboard": True}), resume=True)
    workspace.begin("data")
    workspace.hooks("select")["write"]({"epoch": 3, "loss": 0.25, "ndcg@20": 0.5})
    workspace.close()
    assert told == [
        (place, 3), ("select/loss", 0.25, 3), ("select/ndcg@20", 0.5, 3), "closed",
    ]  # fmt: skip


class FakeMlflow:
    """A tracking server in memory: what it was told, by run."""

    def __init__(self):
        self.runs, self.told, self.broken = [], [], False

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id="7") if self.runs else None

    def create_experiment(self, name):
        assert name == "mgformer"
        return "7"

    def create_run(self, experiment, tags, run_name):
        info = SimpleNamespace(run_id=f"run-{len(self.runs)}")
        self.runs.insert(0, SimpleNamespace(info=info, data=SimpleNamespace(tags=tags)))
        return self.runs[0]

    def search_runs(self, experiments):
        assert experiments == ["7"]
        return self.runs

    def update_run(self, run, status):
        self.told.append((run, status))

    def log_param(self, run, name, value):
        self.told.append((run, name, value))

    def log_metric(self, run, name, value, step):
        if self.broken:
            raise OSError("no route\nto host")
        self.told.append((run, name, value, step))

    def set_terminated(self, run):
        self.told.append((run, "finished"))


def test_mlflow_gets_options_and_figures_and_an_interrupted_run_goes_on(
    tmp_path, monkeypatch, caplog
):
    server = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: server))
    wanted = {"mlflow": True}
    Workspace(tmp_path / "other", config_of(train=wanted), resume=False).begin("data")
    interrupted(tmp_path / "run", epochs=2, written=3, train=wanted)
    assert ("run-1", "train.mlflow", "True") in server.told
    assert ("run-1", "select/loss", 1.0, 1) in server.told
    server.told.clear()
    workspace = Workspace(tmp_path / "run", config_of(train=wanted), resume=True)
    workspace.begin("data")
    write = workspace.hooks("select")["write"]
    write({"epoch": 3, "loss": 0.25, "ndcg@20": 0.5})
    figures = [("select/loss", 0.25), ("select/ndcg_at_20", 0.5)]
    expected = [("run-1", "RUNNING"), *(("run-1", *figure, 3) for figure in figures)]
    assert server.told == expected
    server.broken = True  # training goes on without it
    for epoch in (4, 5):
        write({"epoch": epoch, "loss": 0.2})
    workspace.close()
    assert server.told == expected
    said = [record.getMessage() for record in caplog.records]
    assert said == ["MLflow gets no more figures: no route; going on"]


def test_mlflow_that_is_missing_or_cannot_start(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path, config_of(train={"mlflow": True}), resume=False)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=r"not installed; pip install 'mgformer\[mlflow\]'"):
        workspace.begin("data")
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: None))
    with pytest.raises(ConfigError, match=r"cannot start a run .*; check MLFLOW_TRACKING_URI"):
        workspace.begin("data")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"config": None}, "config: Field required"),
        ({"config": []}, "config: Input should be a valid dictionary"),
        ({"config": {"model": {}}}, "its config names no model"),
        ({"config": {"model": "mgformer"}}, "its config names no model"),
        ({"fingerprint": 5}, "fingerprint: Input should be a valid string"),
        ({"stage": "third"}, "stage: Input should be"),
        ({"results": {"choice": 3}}, "results.choice: Input should be a valid dictionary"),
        ({"results": {"valid": {}}}, "the choice has None epochs"),
        ({"results": {"choice": {"epochs": 1, "kind": "x"}}}, "the choice has kind = 'x'"),
        ({"results": {"choice": {"epochs": 1, "more": 1}}}, "results.choice.more"),
        ({"log": {}}, "log: Input should be a valid list"),
        ({"log": [{"epoch": 1}]}, "its log has an entry without a time"),
        ({"log": None}, "log: Field required"),
    ],
    ids=str,
)
@pytest.mark.parametrize("command", [False, True])
def test_a_checkpoint_with_another_state_is_one_line(tmp_path, change, expected, command):
    interrupted(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    state = {**checkpoint.state, **change}
    state = {name: value for name, value in state.items() if value is not None}
    save_checkpoint(tmp_path, Checkpoint(state, checkpoint.tensors))
    if command:
        done = mgformer("train", "--resume", "--out", tmp_path)
        assert_one_line(done, expected.partition("'")[0])
        return
    with pytest.raises(BundleError) as caught:
        Workspace(tmp_path, config_of(), resume=True)
    assert str(caught.value).startswith(f"{tmp_path / NAME}: not a usable checkpoint (")
    assert expected.partition("'")[0] in str(caught.value)


def test_a_checkpoint_that_cannot_be_written_is_reported_once(tmp_path, monkeypatch, caplog):
    def full(folder, checkpoint):
        raise OSError(28, "No space left on device", str(folder / NAME))

    monkeypatch.setattr(workspace, "save_checkpoint", full)
    own = Workspace(tmp_path, config_of(), resume=False)
    own.begin("data")
    with caplog.at_level(logging.WARNING, "mgformer"):
        for _ in range(3):
            own.hooks("select")["save"](Checkpoint({}, {}))
    (record,) = caplog.records
    assert record.getMessage() == (
        f"no checkpoint: {tmp_path / NAME}: No space left on device; free some space, or choose"
        " another --out; training goes on"
    )
