import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.synthetic import synthetic_bundle

from mgformer import locks
from mgformer.errors import BundleError
from mgformer.files import sha256_of
from mgformer.models import BUILTIN
from mgformer.ranking.topk import top_k
from mgformer.runs import bundle_files
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import MANIFEST, load_bundle, save_bundle, stamp_of
from mgformer.runs.bundle_manifest import sealed
from mgformer.runs.config import build_config
from mgformer.runs.train import train


@pytest.fixture(scope="module")
def trained() -> Bundle:
    return train(build_config({"model": {"name": "ease"}, "evaluation": {"ks": [5]}}))


@pytest.fixture
def saved(trained: Bundle, tmp_path: Path) -> Path:
    save_bundle(trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_what_is_loaded_ranks_as_what_was_saved(name: str, tmp_path: Path) -> None:
    options = {"model": {"name": name}, "train": {"epochs": 1}, "evaluation": {"ks": [5]}}
    before = train(build_config(options))
    save_bundle(before, tmp_path)
    after = load_bundle(tmp_path)
    everyone = np.arange(len(before.users))
    for one, two in zip(
        top_k(before.scorer, everyone, 20, seen=before.known),
        top_k(after.scorer, everyone, 20, seen=after.known),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)
    assert after.users == before.users
    assert after.items == before.items
    assert after.record == before.record
    assert json.loads(json.dumps(before.record.to_mapping())) == after.record.to_mapping()
    assert after.about_items.keys() == before.about_items.keys() == {"name", "taste"}
    for name, own in after.about_items.items():
        assert own.values.equals(before.about_items[name].values)
    assert after.per_user is not None
    assert after.per_user.equals(before.per_user)
    for part in ("train", "valid", "test"):
        np.testing.assert_array_equal(getattr(after, part).indices, getattr(before, part).indices)


def test_the_number_of_missing_items_is_kept(trained: Bundle, tmp_path: Path) -> None:
    missing = np.arange(len(trained.users))
    save_bundle(replace(trained, missing=missing), tmp_path)
    np.testing.assert_array_equal(load_bundle(tmp_path).missing, missing)  # type: ignore[arg-type]
    save_bundle(trained, tmp_path)
    assert load_bundle(tmp_path).missing is None


def test_known_is_everything_the_dataset_says(trained: Bundle) -> None:
    whole = trained.train.union(trained.valid).union(trained.test)
    assert (trained.known != whole.matrix).nnz == 0


def test_writing_again_replaces_and_leaves_nothing_behind(trained: Bundle, saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    other = train(build_config({"model": {"name": "popularity"}}))
    save_bundle(other, saved)
    assert load_bundle(saved).record.model == "popularity"
    names = {file["name"] for file in json.loads((saved / MANIFEST).read_text())["files"].values()}
    assert {path.name for path in saved.iterdir()} == {*names, MANIFEST, "notes.txt"}


def test_a_stamp_changes_with_the_bundle_and_with_nothing_else(saved: Path) -> None:
    stamps = [stamp_of(saved)]
    (saved / "notes.txt").write_text("mine")
    (saved / ".scorer.1.tmp").write_text("a draft")
    assert stamp_of(saved) == stamps[0]
    one_of(saved, "users").write_bytes(b"")
    stamps.append(stamp_of(saved))
    one_of(saved, "users").unlink()
    stamps.append(stamp_of(saved))
    one_of(saved, MANIFEST).touch()
    stamps.append(stamp_of(saved))
    assert len(set(stamps)) == 4
    assert stamp_of(saved / "nowhere") == frozenset()


def test_pairs_do_not_change_when_their_file_is_written_over(saved: Path) -> None:
    loaded = load_bundle(saved)
    parts = [getattr(loaded, name) for name in ("train", "valid", "test")]
    expected = [part.indices.copy() for part in parts]
    pairs = one_of(saved, "pairs")
    with pairs.open("rb+") as stream:  # as cp does, which leaves no copy of the file behind
        stream.write(bytes(pairs.stat().st_size))
    for part, own in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(part.indices, own)
    assert expected[0].any()


@pytest.mark.parametrize("step", ["_write_tensors", "_write_table", "write_text"])
def test_a_crash_while_writing_leaves_the_old_bundle(
    step: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*arguments: object) -> None:
        raise KeyboardInterrupt

    other = train(build_config({"model": {"name": "popularity"}}))
    monkeypatch.setattr(bundle_files, step, crash)
    with pytest.raises(KeyboardInterrupt):
        save_bundle(other, saved)
    monkeypatch.undo()
    assert load_bundle(saved).record.model == "ease"


def one_of(saved: Path, beginning: str) -> Path:
    return next(path for path in saved.iterdir() if path.name.startswith(beginning))


@pytest.mark.parametrize("file", ["scorer", "pairs", "users", "items", "per_user", MANIFEST])
def test_a_changed_byte_is_refused(file: str, saved: Path) -> None:
    path = one_of(saved, file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleError, match=rf"{path.name}: (changed|damaged)"):
        load_bundle(saved)


@pytest.mark.parametrize("file", ["scorer", "pairs", "users", "items", MANIFEST])
def test_a_truncated_file_is_refused(file: str, saved: Path) -> None:
    path = one_of(saved, file)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BundleError, match=rf"{path.name}.*(truncated|damaged)"):
        load_bundle(saved)


def test_a_missing_file_or_folder_is_refused(saved: Path) -> None:
    one_of(saved, "items").unlink()
    with pytest.raises(BundleError, match="missing from the bundle"):
        load_bundle(saved)
    with pytest.raises(BundleError, match="no trained recommender here"):
        load_bundle(saved / "nowhere")


def rewrite(saved: Path, **changes: object) -> None:
    """Change the manifest and make its checksum right again, as a newer program would."""
    manifest = json.loads((saved / MANIFEST).read_text()) | changes
    (saved / MANIFEST).write_text(sealed(manifest))


def test_a_newer_format_is_refused(saved: Path) -> None:
    rewrite(saved, format=4, library="9.9.9")
    with pytest.raises(BundleError, match=r"bundle format 4, written by mgformer 9.9.9.*upgrade"):
        load_bundle(saved)


def test_the_first_format_is_still_read(trained: Bundle, saved: Path) -> None:
    files = json.loads((saved / MANIFEST).read_text())["files"]
    for file in files.values():
        del file["checksum"]
        file["sha256"] = sha256_of(saved / file["name"])
    rewrite(saved, format=1, files=files)
    loaded = load_bundle(saved)
    np.testing.assert_array_equal(loaded.scorer.weights, trained.scorer.weights)  # type: ignore[attr-defined]
    files["scorer"]["sha256"] = files["pairs"]["sha256"]
    rewrite(saved, format=1, files=files)
    with pytest.raises(BundleError, match=r"scorer-.*changed since it was written"):
        load_bundle(saved)


def test_a_name_cannot_lead_out_of_the_folder(saved: Path) -> None:
    manifest = json.loads((saved / MANIFEST).read_text())
    users = manifest["files"]["users"]
    (saved.parent / users["name"]).write_bytes((saved / users["name"]).read_bytes())
    (saved / users["name"]).unlink()
    users["name"] = f"../{users['name']}"
    rewrite(saved, files=manifest["files"])
    with pytest.raises(BundleError, match=r"files\.users\.name: String should match pattern"):
        load_bundle(saved)


def test_an_unknown_scorer_is_refused(saved: Path) -> None:
    rewrite(saved, scorer={"kind": "os.system"})
    with pytest.raises(BundleError, match=r"unknown kind of scorer 'os\.system'"):
        load_bundle(saved)


def test_a_place_that_cannot_be_written(trained: Bundle, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BundleError, match="is a file, expected a folder"):
        save_bundle(trained, tmp_path / "file" / "run")


def test_without_locks_files_that_another_writer_may_name_stay(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    new, old = saved / "scorer-0123456789ab.safetensors", saved / "pairs-0123456789ab.safetensors"
    for path in (new, old):
        path.write_text("of another writer, which has not replaced the manifest yet")
    os.utime(old, (0, 0))
    save_bundle(load_bundle(saved), saved)
    assert new.exists()
    assert not old.exists()
    monkeypatch.undo()
    save_bundle(load_bundle(saved), saved)
    assert not new.exists()


def test_ids_that_are_counted_up_take_less_than_a_byte(tmp_path: Path) -> None:
    bundle = synthetic_bundle(num_users=50_000, num_items=10, dim=1, num_pairs=100)
    save_bundle(bundle, tmp_path)
    assert one_of(tmp_path, "users").stat().st_size < 50_000
    assert load_bundle(tmp_path).users.values.equals(bundle.users.values)
