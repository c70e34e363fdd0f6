"""A bundle that is not signed with the right key is refused, in Python and on the command line."""

import json
from pathlib import Path

import pytest

from mgformer.errors import BundleError, ConfigError
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle_files import MANIFEST, load_bundle, save_bundle
from mgformer.runs.bundle_manifest import checksum_of_manifest
from mgformer.signatures import is_signed, read_key, signature_of
from tests.command import assert_one_line, mgformer, succeed
from tests.crafted import change_tensors, use, whole_bundle

KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    save_bundle(whole_bundle(), tmp_path / "run", KEY)
    return tmp_path / "run"


def test_a_signed_bundle_is_used_with_its_key_and_without(signed: Path) -> None:
    use(signed, KEY)
    use(signed)


def test_the_wrong_key_and_no_signature_are_refused(signed: Path) -> None:
    with pytest.raises(BundleError, match="its signature was not made with this key"):
        load_bundle(signed, OTHER)
    save_bundle(whole_bundle(), signed)
    with pytest.raises(BundleError, match="has no signature, but one is required"):
        load_bundle(signed, KEY)


@pytest.mark.parametrize("change", [{"format": 1}, {"library": "9"}, {"more": 1}, {"record": {}}])
def test_a_changed_manifest_is_refused(change: dict[str, object], signed: Path) -> None:
    manifest = json.loads((signed / MANIFEST).read_text())
    (signed / MANIFEST).write_text(without_key({**manifest, **change}))
    with pytest.raises(BundleError, match="its signature was not made with this key"):
        load_bundle(signed, KEY)


def without_key(manifest: dict[str, object]) -> str:
    """Make the checksum right and leave the signature, as somebody without the key would."""
    return json.dumps({**manifest, "checksum": checksum_of_manifest(manifest)})


def test_a_changed_file_is_refused(signed: Path) -> None:
    signature = json.loads((signed / MANIFEST).read_text())["signature"]
    change_tensors(signed, "scorer", lambda tensors: tensors["vectors/users"].zero_())
    manifest = json.loads((signed / MANIFEST).read_text()) | {"signature": signature}
    (signed / MANIFEST).write_text(without_key(manifest))
    load_bundle(signed)
    with pytest.raises(BundleError, match="its signature was not made with this key"):
        load_bundle(signed, KEY)


@pytest.mark.parametrize("value", [None, 5, "", [], "é" * 64, "\ud800", "0" * 64])
def test_a_signature_that_is_anything_is_refused(value: object, signed: Path) -> None:
    manifest = json.loads((signed / MANIFEST).read_text()) | {"signature": value}
    (signed / MANIFEST).write_text(without_key(manifest))
    with pytest.raises(BundleError, match="its signature was not made with this key"):
        load_bundle(signed, KEY)


def test_with_a_key_nothing_is_mapped(signed: Path) -> None:
    """What was checked stays as it is, also if somebody writes over the files afterwards."""
    loaded = load_bundle(signed, KEY)
    expected = loaded.scorer.vectors.users.clone()  # type: ignore[attr-defined]
    for path in signed.iterdir():
        with path.open("rb+") as stream:
            stream.write(bytes(path.stat().st_size))
    assert loaded.scorer.vectors.users.equal(expected)  # type: ignore[attr-defined]
    assert expected.any()


def test_keys(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    assert read_key(tmp_path / "key") == KEY
    (tmp_path / "short").write_bytes(KEY[:-1])
    with pytest.raises(ConfigError, match=r"short: got a key of 31 bytes, expected at least 32"):
        read_key(tmp_path / "short")
    with pytest.raises(ConfigError, match="the key cannot be read"):
        read_key(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="got a key of 0 bytes"):
        save_bundle(whole_bundle(), tmp_path / "run", b"")
    assert is_signed(b"x", signature_of(b"x", KEY), KEY)
    assert not is_signed(b"x", signature_of(b"x", OTHER), KEY)
    assert not is_signed(b"y", signature_of(b"x", KEY), KEY)


def test_every_command_that_reads_a_bundle_can_require_a_signature(
    table: Path, tmp_path: Path
) -> None:
    for name, key in (("key", KEY), ("other", OTHER)):
        (tmp_path / name).write_bytes(key)
    run, key, other = (tmp_path / name for name in ("run", "key", "other"))
    succeed("train", table, "--model", "popularity", "--out", run, "--sign", key)
    commands = [
        ["recommend", run, "--user", "u1"],
        ["evaluate", run],
        ["export", run, "--format", "card", "--out", tmp_path / "card"],
        ["refit", run, "--out", tmp_path / "again", "--sign", key],
        ["refresh", run, "--with", table, "--out", tmp_path / "fresh", "--sign", key],
    ]
    for command in commands:
        refused = mgformer(*command, "--require-signature", other)
        assert_one_line(refused, "its signature was not made with this key")
        succeed(*command, "--require-signature", key)
    for command in (["similar", run, "--item", "i1"], ["serve", run]):
        refused = mgformer(*command, "--require-signature", other)
        assert_one_line(refused, "its signature was not made with this key")
    for folder in ("again", "fresh"):
        assert Recommender.load(tmp_path / folder, KEY).bundle.record.model == "popularity"
    short = mgformer("train", table, "--out", tmp_path / "new", "--sign", tmp_path / "none")
    assert_one_line(short, "the key cannot be read")
    assert not (tmp_path / "new").exists()
