"""A checkpoint is always whole: the old one, the new one, or none."""

import json

import pytest
import safetensors.torch
import torch

from mgformer.errors import BundleError
from mgformer.training.checkpoint import (
    NAME,
    Checkpoint,
    apart,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)


def some(epoch: int) -> Checkpoint:
    state = {
        "epochs": epoch,
        "best_value": None,
        "history": [{"epoch": 1, "loss": 0.1 + 0.2}],
        "shuffling": {"state": 2**127 + epoch},
        "name": "Überraschung\n",
    }
    tensors = {
        "model/weights": torch.linspace(-1, 1, 12).reshape(3, 4).T + epoch,  # not contiguous
        "optimizer/step": torch.tensor(float(epoch)),
        "wide": torch.tensor([torch.pi, -0.0], dtype=torch.float64),
        "empty": torch.zeros(0, 4),
        "generator": torch.Generator().manual_seed(epoch).get_state(),
    }
    return Checkpoint(state, tensors)


def assert_same(one: Checkpoint | None, other: Checkpoint) -> None:
    assert one is not None
    assert one.state == other.state
    assert one.tensors.keys() == other.tensors.keys()
    for name, value in one.tensors.items():
        assert value.dtype == other.tensors[name].dtype, name
        assert torch.equal(value, other.tensors[name]), name


def test_what_was_saved_is_what_is_loaded(tmp_path):
    folder = tmp_path / "not" / "yet"
    save_checkpoint(folder, some(1))
    assert_same(load_checkpoint(folder), some(1))
    save_checkpoint(folder, some(2))
    assert_same(load_checkpoint(folder), some(2))
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_tensors_in_the_same_memory_are_copied_apart(tmp_path):
    whole = torch.arange(12.0)
    tensors = {
        "whole": whole,
        "tied": whole,
        "inside": whole[3:5],
        "alone": torch.ones(2),
        "empty": whole[:0],
    }
    found = apart(tensors)
    assert list(found) == list(tensors)
    assert found["alone"] is tensors["alone"]
    assert sum(found[name] is tensors[name] for name in ("whole", "tied", "inside")) == 1
    save_checkpoint(tmp_path, Checkpoint({}, found))
    assert_same(load_checkpoint(tmp_path), Checkpoint({}, tensors))
    halves = dict(zip("ab", whole.split(6), strict=True))
    assert all(apart(halves)[name] is half for name, half in halves.items())


@pytest.mark.parametrize("stop", [OSError("no space left on device"), KeyboardInterrupt()])
def test_a_crash_while_writing_leaves_the_old_one(tmp_path, monkeypatch, stop):
    save_checkpoint(tmp_path, some(1))
    whole = safetensors.torch.save_file

    def half(tensors, path, metadata=None):
        whole(tensors, path, metadata)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        raise stop

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", half)
        with pytest.raises(type(stop)):
            save_checkpoint(tmp_path, some(2))
    assert_same(load_checkpoint(tmp_path), some(1))
    save_checkpoint(tmp_path, some(3))
    assert_same(load_checkpoint(tmp_path), some(3))
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def foreign(path, metadata):
    safetensors.torch.save_file({"x": torch.zeros(2)}, path, metadata)


@pytest.mark.parametrize("damage", ["empty", "truncated", "text", "no state", "other", "bad state"])
def test_a_damaged_file_is_one_line_that_says_what_to_do(tmp_path, damage):
    save_checkpoint(tmp_path, some(1))
    path = tmp_path / NAME
    content = path.read_bytes()
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "truncated":
        path.write_bytes(content[:-1])
    elif damage == "text":
        path.write_text(json.dumps(some(1).state))
    else:
        foreign(
            path, {"no state": None, "other": {"x": "y"}, "bad state": {"mgformer": "{"}}[damage]
        )
    with pytest.raises(BundleError) as caught:
        load_checkpoint(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path}: not a usable checkpoint (")
    assert message.endswith("); delete it and train from the start")
    assert "\n" not in message
    assert path.exists()


def test_every_flipped_bit_is_refused(tmp_path, rng):
    """In the values, the state and the names; a bit that changes nothing is no damage."""
    save_checkpoint(tmp_path, some(1))
    path = tmp_path / NAME
    content = path.read_bytes()
    refused = 0
    for place in rng.choice(len(content), 300, replace=False):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            found = load_checkpoint(tmp_path)
        except BundleError as error:
            assert str(error).startswith(f"{path}: not a usable checkpoint (")  # noqa: PT017
            refused += 1
        else:  # spaces in the header may become other spaces
            assert_same(found, some(1))
    assert refused >= 290


def test_values_that_changed_are_refused(tmp_path):
    save_checkpoint(tmp_path, some(1))
    content = bytearray((tmp_path / NAME).read_bytes())
    content[-1] ^= 1
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(BundleError, match=r"changed since it was written \(checksum\)"):
        load_checkpoint(tmp_path)


def test_the_checkpoint_of_an_older_version_is_resumed_with_a_warning(tmp_path, caplog):
    wanted = some(1)
    tensors = {name: tensor.contiguous() for name, tensor in wanted.tensors.items()}
    safetensors.torch.save_file(tensors, tmp_path / NAME, {"mgformer": json.dumps(wanted.state)})
    assert_same(load_checkpoint(tmp_path), wanted)
    assert "without a checksum: it is not checked" in caplog.text


@pytest.mark.parametrize("state", ["[]", "5", "null", '"x"', "[" * 100_000])
def test_a_state_that_is_no_mapping_is_refused(tmp_path, state):
    foreign(tmp_path / NAME, {"mgformer": state})
    with pytest.raises(BundleError, match="not a usable checkpoint"):
        load_checkpoint(tmp_path)


def test_no_checkpoint_is_none(tmp_path):
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "no such folder") is None


def test_removing(tmp_path):
    save_checkpoint(tmp_path, some(1))
    (tmp_path / "log.jsonl").write_text("{}\n")
    remove_checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]
    remove_checkpoint(tmp_path)
    remove_checkpoint(tmp_path / "no such folder")
