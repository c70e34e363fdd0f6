"""A run that is interrupted and taken up again, on the command line: as if it had never stopped."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from mgformer.runs import workspace
from mgformer.runs.bundle_files import load_bundle
from mgformer.training import loop
from mgformer.training.checkpoint import NAME, load_checkpoint
from mgformer.training.log import read_log
from tests.command import Done, assert_one_line, mgformer, succeed

# Validated once, after the fifth epoch, which is therefore the best, and all that a refit takes.
TINY = {
    "model.dim": 8, "model.rank": 8, "train.epochs": 6, "train.evaluate_every": 5,
    "split.kind": "ratio", "split.test": 0.5, "evaluation.ks": [20],
}  # fmt: skip
RUNS = {
    "select": {**TINY, "model.key_sample": 64},
    "refit": {
        **TINY, "model.num_layers": 2, "model.num_heads": 4, "model.key_sample": 100,
        "train.decay": "cosine", "split.refit": True,
    },
}  # fmt: skip


def described(options: dict[str, object], *more: object) -> list[object]:
    settings = [part for name, v in options.items() for part in ("--set", f"{name}={text(v)}")]
    return ["train", "demo", "--model", "mgformer", *settings, *more]


def text(value: object) -> str:
    return json.dumps(value) if not isinstance(value, str) else value


def interrupted(stage: str, epoch: int, *arguments: object) -> Done:
    """Run a command that is interrupted as soon as the checkpoint of an epoch is written."""
    save = workspace.save_checkpoint

    def save_and_stop(folder, checkpoint):
        save(folder, checkpoint)
        if (checkpoint.state["stage"], checkpoint.state["epochs"]) == (stage, epoch):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHECKPOINT_SECONDS", 0)
        patch.setattr(workspace, "save_checkpoint", save_and_stop)
        return mgformer(*arguments)


def logged(folder: Path) -> list[dict]:
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{name: v for name, v in entry.items() if "seconds" not in name} for entry in entries]


@dataclass
class Story:
    """One run without an interruption, and the same with one."""

    whole: Path
    folder: Path
    stopped: Done
    left: set[str]
    """Files after the interruption."""
    refused: dict[str, Done]
    """The outcome of resuming with other options."""
    resumed: Done


@pytest.fixture(scope="module", params=sorted(RUNS))
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    options, stage = RUNS[request.param], request.param
    place = tmp_path_factory.mktemp(request.param)
    whole, folder = place / "whole", place / "run"
    succeed(*described(options, "--out", whole))
    stopped = interrupted(stage, 3, *described(options, "--out", folder))
    left = {path.name for path in folder.iterdir()}
    go_on = ["train", "--resume", "--out", folder]
    refused = {
        "seed was 0, now 1": mgformer(*go_on, "--seed", 1),
        "train.lr was 0.002, now 0.5": mgformer(*go_on, "--set", "train.lr=0.5"),
        "evaluation.ks was [20], now [10, 20, 50]": mgformer(*go_on, "--model", "mgformer"),
    }
    hint = stopped.stderr.splitlines()[-1].rpartition("mgformer ")[2]
    resumed = mgformer(*shlex.split(hint), "--json")
    return Story(whole, folder, stopped, left, refused, resumed)


def test_an_interruption_says_how_to_continue(story: Story) -> None:
    assert story.stopped.returncode == 130
    assert story.stopped.stdout == ""
    (line,) = [line for line in story.stopped.stderr.splitlines() if line.startswith("error: ")]
    again = f"mgformer train --resume --out {story.folder}"
    assert line == f"error: interrupted; continue with: {again}"
    assert "Traceback" not in story.stopped.stderr
    assert story.left == {NAME, "log.jsonl"}


def test_a_resumed_run_ends_as_if_it_had_never_stopped(story: Story) -> None:
    assert story.resumed.returncode == 0, story.resumed.stderr
    whole, again = load_bundle(story.whole), load_bundle(story.folder)
    assert torch.equal(whole.scorer.users, again.scorer.users)
    assert torch.equal(whole.scorer.items, again.scorer.items)
    assert whole.record.epochs == 5
    assert whole.record.valid["ndcg@20"] > whole.record.popularity["ndcg@20"] > 0
    for part in ("valid", "test", "groups", "popularity", "epochs", "gamma", "config", "protocol"):
        assert getattr(again.record, part) == getattr(whole.record, part), part
    assert again.per_user.equals(whole.per_user)
    before = [entry["seconds"] for entry in read_log(story.folder)]
    assert again.record.seconds["train"] > sum(before)  # of the epochs before the interruption
    printed = json.loads(story.resumed.stdout)
    assert printed["test"] == whole.record.test
    assert printed["valid"] == whole.record.valid


def test_finished_epochs_are_not_trained_again(
    story: Story, request: pytest.FixtureRequest
) -> None:
    shown = re.findall(r"^epoch (\d):", story.resumed.stderr, re.MULTILINE)
    assert shown == ([] if "refit" in request.node.callspec.id else ["5"])


def test_the_checkpoint_is_gone_in_the_end(story: Story) -> None:
    for folder in (story.whole, story.folder):
        assert load_checkpoint(folder) is None
        assert not any("checkpoint" in path.name for path in folder.iterdir())


def test_the_log_has_every_epoch_once_per_stage(
    story: Story, request: pytest.FixtureRequest
) -> None:
    whole = logged(story.whole)
    epochs = [*range(1, 7)]
    if "refit" in request.node.callspec.id:
        epochs += [*range(1, 6)]
    assert [entry["epoch"] for entry in whole] == epochs
    assert logged(story.folder) == whole


def test_other_options_are_refused_in_one_line(story: Story) -> None:
    for difference, done in story.refused.items():
        assert_one_line(done, f"{story.folder}: the unfinished run there has other options")
        assert f"({difference})" in done.stderr


def test_without_a_checkpoint_resuming_just_trains(tmp_path: Path) -> None:
    options = {**RUNS["select"], "train.epochs": 1}
    done = mgformer(*described(options, "--out", tmp_path / "run", "--resume", "--json"))
    assert done.returncode == 0, done.stderr
    assert "no checkpoint; starting from the beginning" in done.stderr
    assert json.loads(done.stdout)["model"] == "mgformer"
    assert [entry["epoch"] for entry in logged(tmp_path / "run")] == [1]
    assert load_bundle(tmp_path / "run").record.epochs == 1


@pytest.mark.parametrize("finished", [False, True])
def test_resuming_never_trains_something_else(finished: bool, tmp_path: Path) -> None:
    """Neither where the first checkpoint was still to be written, nor where the run is done."""
    arguments = described({**RUNS["select"], "train.epochs": 1}, "--out", tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        if not finished:
            patch.setattr(loop, "shuffled_batches", stop)
        assert mgformer(*arguments).returncode == (0 if finished else 130)
    done = mgformer("train", "--resume", "--out", tmp_path / "run")
    assert done.returncode == 2 or load_bundle(tmp_path / "run").record.model == "mgformer"


def stop(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_data_that_cannot_be_read_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("user,item\na,1\nb\n")
    done = mgformer(
        "train", tmp_path / "data.csv", "--model", "mgformer", "--out", tmp_path / "run"
    )
    assert_one_line(done, "data.csv:3:")
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_damaged_checkpoint_is_one_line(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\x00" * 20)
    assert_one_line(mgformer("train", "--resume", "--out", tmp_path), "not a usable checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_the_checkpoint_of_another_run_is_not_offered(tmp_path: Path) -> None:
    """A run that starts over, and is interrupted before it has a checkpoint of its own."""
    options = {**RUNS["select"], "train.epochs": 2}
    interrupted("select", 1, *described(options, "--out", tmp_path / "run"))
    assert load_checkpoint(tmp_path / "run") is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "shuffled_batches", stop)
        other = {**options, "train.lr": 0.5}
        done = mgformer(*described(other, "--out", tmp_path / "run"))
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "error: interrupted"
