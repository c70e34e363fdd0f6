"""Crafted bundles with valid checksums are refused in one line, and never end the process."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from mgformer.errors import BundleError
from mgformer.runs.bundle_files import MANIFEST, load_bundle, save_bundle
from mgformer.runs.bundle_manifest import sealed
from tests.crafted import (
    NUM_ITEMS,
    NUM_USERS,
    change_file,
    change_manifest,
    change_table,
    change_tensors,
    use,
    whole_bundle,
)

Craft = Callable[[Path], object]
USE_ALL = """
import json, sys
from pathlib import Path
from mgformer.errors import MgformerError
from tests.crafted import use
for folder in sys.argv[1:]:
    print(folder, flush=True)  # the last one is to blame if the process ends
    try:
        use(Path(folder))
        print(json.dumps("used"))
    except MgformerError as error:
        print(json.dumps(str(error)))
"""


def tensor(kind: str, name: str, change: Callable[[Any], Any]) -> Craft:
    """Replace a tensor by what `change` returns for it; None removes it."""

    def changed(tensors: dict[str, Any]) -> None:
        value = change(tensors.get(name))
        if value is None:
            tensors.pop(name, None)
        else:
            tensors[name] = value

    return lambda folder: change_tensors(folder, kind, changed)


def at(place: int, value: float) -> Callable[[Any], Any]:
    """Return what sets one number of a tensor."""

    def changed(values: Any) -> Any:
        values.view(-1)[place] = value
        return values

    return changed


def manifest(change: Callable[[dict[str, Any]], object]) -> Craft:
    return lambda folder: change_manifest(folder, change)


def scorer(part: str, **settings: object) -> Craft:
    return manifest(lambda m: m["scorer"][part].update(settings))


def swapped_first_row(values: Any) -> Any:
    values[[0, 1]] = values[[1, 0]]
    return values


CAN_CRASH: dict[str, tuple[Craft, str]] = {
    "item past the end": (
        tensor("pairs", "train.indices", at(-1, NUM_ITEMS)), "train.indices: got 10, expected",
    ),
    "item far off": (tensor("pairs", "train.indices", at(-1, 2**31 - 1)), "got 2147483647"),
    "negative item": (tensor("pairs", "test.indices", at(0, -1)), "test.indices: got -1"),
    "known item": (tensor("pairs", "history.indices", at(-1, 99)), "history.indices: got 99"),
    "rows end late": (tensor("pairs", "train.indptr", at(-1, 10**9)), "to 1000000000, expected"),
    "rows end early": (tensor("pairs", "train.indptr", at(-1, 3)), "train.indptr: got rows"),
    "rows begin late": (tensor("pairs", "valid.indptr", at(0, 1)), "valid.indptr: got rows from 1"),
    "rows go back": (tensor("pairs", "train.indptr", at(3, 10**6)), "ends before it begins"),
    "a row less": (tensor("pairs", "train.indptr", lambda t: t[:-1]), "expected [13]"),
    "short times": (tensor("pairs", "train.times", lambda t: t[:-1]), "train.times: got the shape"),
    "short places": (tensor("pairs", "train.places", lambda t: t[:1]), "train.places: got the"),
    "folded user": (tensor("pairs", "folded_users", at(-1, NUM_USERS)), "folded_users: got 12"),
    "short missing": (tensor("pairs", "test.missing", lambda t: t[:2]), "test.missing: got the"),
    "history item": (
        tensor("scorer", "history/histories.indices", at(0, 10**6)), "indices: got 1000000",
    ),
    "history rows": (
        tensor("scorer", "history/histories.indptr", at(1, 10**6)), "ends before it begins",
    ),
    "weight item": (
        tensor("scorer", "history/weights.indices", at(2, -5)), "weights.indices: got -5",
    ),
    "through rows": (
        tensor("scorer", "history/through.indptr", at(-1, 10**7)), "through.indptr: got rows",
    ),
    "matrix shape": (
        tensor("scorer", "history/histories.shape", at(1, 10**6)), "histories.shape: got",
    ),
    "huge matrix": (tensor("scorer", "history/through.shape", at(0, 2**62)), "expected"),
    "negative matrix": (tensor("scorer", "history/through.shape", at(0, -3)), "expected"),
    "fewer users": (tensor("scorer", "vectors/users", lambda t: t[:-1]), "expected [12, any]"),
    "fewer items": (tensor("scorer", "vectors/items", lambda t: t[1:]), "expected [10, 4]"),
    "other channels": (tensor("scorer", "vectors/items", lambda t: t[:, :2]), "expected [10, 4]"),
    "short factors": (tensor("scorer", "history/left", lambda t: t[:3]), "left: got the shape"),
    "fewer ids": (lambda f: change_table(f, "users", lambda t: t.head(3)), "expected [4]"),
    "more ids": (
        lambda f: change_table(
            f, "items", lambda t: pl.concat([t, t.with_columns(pl.col("id") + 99)])
        ),
        "items",
    ),
}  # fmt: skip

OTHERS: dict[str, tuple[Craft, str]] = {
    "unsorted items": (
        tensor("pairs", "train.indices", swapped_first_row), "a row out of order",
    ),
    "a pair twice": (
        tensor("pairs", "train.indices", lambda t: at(1, int(t[0]))(t)), "a row out of order",
    ),
    "NaN time": (
        tensor("pairs", "train.times", lambda t: at(0, torch.nan)(t.double())), "not finite",
    ),
    "float items": (tensor("pairs", "train.indices", lambda t: t.float()), "got torch.float32"),
    "folded twice": (tensor("pairs", "folded_users", at(0, 11)), "folded_users: got numbers out"),
    "predicted twice": (
        tensor("pairs", "predicted_users", at(0, 11)), "predicted_users: got numbers out of",
    ),
    "own vectors of nothing": (tensor("scorer", "own.items", at(1, 10)), "own.items: got 10"),
    "own vectors twice": (tensor("scorer", "own.items", at(1, 1)), "own.items: got numbers out"),
    "too many own vectors": (
        tensor("scorer", "own.vectors", lambda t: t.repeat(2, 1)), "own.vectors: got the shape",
    ),
    "NaN own vector": (tensor("scorer", "own.vectors", at(2, torch.nan)), "numbers from nan"),
    "own vectors of the whole": (
        tensor("scorer", "own.vectors", lambda t: torch.cat([t, t], 1)), "expected [2, 3]",
    ),
    "negative missing": (tensor("pairs", "test.missing", at(0, -1)), "test.missing: got -1"),
    "no train": (tensor("pairs", "train.indptr", lambda t: None), "no such tensor"),
    "no test": (tensor("pairs", "test.indices", lambda t: None), "no such tensor"),
    "unknown pairs": (tensor("pairs", "x\nx", lambda t: torch.zeros(1)), r"x\nx: got a tensor"),
    "NaN vector": (tensor("scorer", "vectors/users", at(5, torch.nan)), "numbers from nan"),
    "infinite vector": (tensor("scorer", "vectors/items", at(5, -torch.inf)), "numbers from -inf"),
    "huge vector": (tensor("scorer", "vectors/items", at(5, 1e30)), "expected finite ones"),
    "NaN weight": (tensor("scorer", "history/weights.data", at(0, torch.nan)), "weights.data: got"),
    "NaN history": (tensor("scorer", "history/histories.data", at(0, torch.nan)), "histories.data"),
    "NaN factor": (tensor("scorer", "history/item_factors", at(0, torch.nan)), "item_factors"),
    "NaN right": (tensor("scorer", "history/right", at(0, torch.nan)), "right: got"),
    "half vectors": (tensor("scorer", "vectors/items", lambda t: t.half()), "got torch.float16"),
    "two types": (tensor("scorer", "vectors/items", lambda t: t.double()), "got torch.float64"),
    "no right": (tensor("scorer", "history/right", lambda t: None), "right: got no such tensor"),
    "no users": (tensor("scorer", "vectors/users", lambda t: None), "users: got no such tensor"),
    "unknown tensor": (tensor("scorer", "more", lambda t: torch.zeros(1)), "more: got a tensor"),
    "no channels": (
        lambda folder: change_tensors(
            folder, "scorer",
            lambda t: t.update({n: t[n][:, :0] for n in ("vectors/users", "vectors/items")}),
        ),
        "expected",
    ),
    "unknown setting": (scorer("vectors", beta=1), "unknown setting 'beta' of a scorer; known"),
    "setting of a history": (scorer("history", l2=1), "unknown setting 'l2'"),
    "text for a number": (scorer("vectors", l2="1"), "l2: got '1', expected a number"),
    "huge integer": (scorer("vectors", l2=10**400), "expected a number from 0"),
    "NaN setting": (scorer("vectors", l2=float("nan")), "l2: got nan"),
    "negative setting": (scorer("vectors", unobserved_weight=-1), "unobserved_weight: got -1"),
    "unit": (scorer("vectors", unit=1), "unit: got 1, expected true or false"),
    "constant": (scorer("vectors", constant=4), "constant: got 4, expected 0 to 3"),
    "constant is true": (scorer("vectors", constant=True), "constant: got True"),
    "no kind": (manifest(lambda m: m["scorer"].pop("kind")), "names no kind of scorer"),
    "kind of kinds": (manifest(lambda m: m["scorer"].update(kind=["dot"])), "names no kind"),
    "no part": (manifest(lambda m: m["scorer"].pop("vectors")), "names no kind of scorer"),
    "parts exchanged": (
        manifest(lambda m: m["scorer"].update(vectors={"kind": "history"})), "no such tensor",
    ),
    "sum of sums": (manifest(lambda m: m["scorer"].update(vectors=m["scorer"].copy())), "unknown"),
    "unsorted ids": (lambda f: change_table(f, "users", pl.DataFrame.reverse), "ids out of order"),
    "an id twice": (
        lambda f: change_table(f, "users", lambda t: t.with_columns(id=pl.lit("a"))), "or twice",
    ),
    "null id": (
        lambda f: change_table(f, "items", lambda t: t.with_columns(pl.col("id").replace(3, None))),
        "without an id",
    ),
    "float ids": (
        lambda f: change_table(f, "items", lambda t: t.cast({"id": pl.Float64})), "`id` of text or",
    ),
    "other column": (
        lambda f: change_table(f, "users", lambda t: t.rename({"id": "user"})), "a column `id`",
    ),
    "names of numbers": (
        lambda f: change_table(f, "items", lambda t: t.with_columns(name=1)), "expected String",
    ),
    "a column of no kind": (
        lambda f: change_table(f, "items", lambda t: t.with_columns(more=1)),
        "expected columns that the manifest describes",
    ),
    "a kind of no column": (
        lambda f: change_table(f, "items", lambda t: t.drop("price")), "expected a column 'price'",
    ),
    "prices of another kind": (
        manifest(lambda m: m["attributes"]["items"]["price"].update(kind="flag")),
        "got Int64 in the column 'price', expected Boolean",
    ),
    "an unknown kind": (
        manifest(lambda m: m["attributes"]["items"]["price"].update(kind="cost")),
        "attributes.items.price.kind",
    ),
    "infinite prices": (
        lambda f: change_table(
            f, "items", lambda t: t.with_columns(pl.col("price").cast(pl.Float64) / 0)
        ),
        "got a number in the column 'price', expected finite ones",
    ),
    "embeddings that are not finite": (
        lambda f: change_table(
            f, "items", lambda t: t.with_columns(look=pl.Series([[float("nan")] * 3] * t.height,
                                                 dtype=pl.Array(pl.Float32, 3)))
        ),
        "got a number in the column 'look', expected finite ones",
    ),
    "no rows": (lambda f: change_table(f, "users", lambda t: t.head(0)), "no ids"),
    "text metrics": (
        lambda f: change_table(f, "per_user", lambda t: t.cast({"ndcg@5": pl.String})), "'ndcg@5'",
    ),
    "unknown user": (
        lambda f: change_table(f, "per_user", lambda t: t.with_columns(user="x" + pl.col("user"))),
        "a user without an id",
    ),
    "user metrics twice": (
        lambda f: change_table(f, "per_user", lambda t: pl.concat([t, t])), "or twice",
    ),
    "no order": (
        lambda folder: change_tensors(
            folder, "pairs",
            lambda t: [t.pop(n) for n in [*t] if n.endswith((".times", ".places"))],
        ),
        "the pairs have no order",
    ),
    "not Parquet": (
        lambda f: change_file(f, "users", lambda path: path.write_bytes(b"PAR1" * 50)),
        "not a usable file",
    ),
    "not tensors": (
        lambda f: change_file(f, "scorer", lambda path: path.write_bytes(b"\xff" * 50)),
        "not a usable file",
    ),
    "no tensors": (
        lambda f: change_file(f, "pairs", lambda path: path.write_bytes(b"")), "not a usable file",
    ),
    "kappa": (manifest(lambda m: m["record"].update(kappa=float("inf"))), "kappa of the record is"),
    "config": (manifest(lambda m: m["record"]["config"].update(data=[1])), "data of the config is"),
    "no record": (manifest(lambda m: m.pop("record")), "record: Field required"),
    "record is a list": (manifest(lambda m: m.update(record=[])), "record: Input should be"),
    "files is a list": (manifest(lambda m: m.update(files=[1])), "files: Input should be"),
    "a file is text": (manifest(lambda m: m["files"].update(users="x")), "files.users: Input"),
    "no pairs": (manifest(lambda m: m["files"].pop("pairs")), "names no file for pairs"),
    "unknown file": (
        manifest(lambda m: m["files"].update(more=m["files"]["users"])), "Input should be 'scorer'",
    ),
    "NUL in a name": (manifest(lambda m: m["files"]["users"].update(name="a\0b")), "match pattern"),
    "path in a name": (manifest(lambda m: m["files"]["users"].update(name="/etc/passwd")), "match"),
    "a dot as name": (manifest(lambda m: m["files"]["users"].update(name="..")), "match pattern"),
    "number as name": (manifest(lambda m: m["files"]["users"].update(name=5)), "valid string"),
    "bytes as text": (manifest(lambda m: m["files"]["users"].update(bytes="5")), "valid integer"),
    "negative bytes": (manifest(lambda m: m["files"]["users"].update(bytes=-5)), "greater than"),
    "no checksum": (manifest(lambda m: m["files"]["users"].update(checksum=None)), "changed since"),
    "short checksum": (manifest(lambda m: m["files"]["users"].update(checksum="00")), "pattern"),
    "surrogate": (manifest(lambda m: m["scorer"].update(kind="\ud800")), r"scorer '\ud800'"),
}  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_bundle(whole_bundle(), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("dense", [False, True])
def test_what_nobody_changed_is_used(tmp_path: Path, dense: bool) -> None:
    save_bundle(whole_bundle(dense=dense), tmp_path)
    use(tmp_path)
    use_again = load_bundle(tmp_path)
    assert use_again.history is not None
    assert use_again.missing is not None


def test_crafted_bundles_do_not_end_the_process(tmp_path: Path) -> None:
    folders = []
    for number, (craft, _) in enumerate(CAN_CRASH.values()):
        folders.append(tmp_path / str(number))
        save_bundle(whole_bundle(), folders[-1])
        craft(folders[-1])
    done = subprocess.run(
        [sys.executable, "-c", USE_ALL, *map(str, folders)],
        capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr)
    for folder, answer, (_, expected) in zip(
        lines[::2], map(json.loads, lines[1::2]), CAN_CRASH.values(), strict=True
    ):
        assert expected in answer
        assert answer.startswith(folder)
        assert "\n" not in answer


@pytest.mark.parametrize("name", OTHERS)
def test_crafted_bundles_are_refused_in_one_line(name: str, saved: Path) -> None:
    craft, expected = OTHERS[name]
    craft(saved)
    with pytest.raises(BundleError) as caught:
        load_bundle(saved)
    message = str(caught.value)
    assert expected in message
    assert message.startswith(str(saved))
    assert message.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"format": ' + "9" * 5_000 + "}",
        '{"format": 1' + "," + '"a": ' + "[" * 40 + "]" * 40 + "}",
        '{"format": true, "library": "1"}',
        '{"format": 0}',
        "[]",
        "null",
        '"format"',
        "\x00",
        "",
    ],
    ids=["deep", "digits", "nested", "bool", "zero", "list", "null", "text", "NUL", "empty"],
)
def test_a_manifest_that_is_something_else_is_refused(text: str, saved: Path) -> None:
    (saved / MANIFEST).write_text(text)
    with pytest.raises(BundleError, match="damaged, not valid JSON"):
        load_bundle(saved)


def test_a_manifest_of_many_megabytes_is_not_read(saved: Path) -> None:
    whole = json.loads((saved / MANIFEST).read_text())
    (saved / MANIFEST).write_text(sealed({**whole, "more": "x" * (17 << 20)}))
    with pytest.raises(BundleError, match="expected at most"):
        load_bundle(saved)


def test_pairs_in_two_parts_are_refused_where_parts_are_joined(saved: Path) -> None:
    def same(tensors: dict[str, Any]) -> None:
        for name in ("indptr", "indices", "times", "places"):
            tensors[f"valid.{name}"] = tensors[f"train.{name}"].clone()

    change_tensors(saved, "pairs", same)
    with pytest.raises(ValueError, match="pairs that are in two parts, expected each pair in one"):
        use(saved)


def test_links_to_files_are_followed(saved: Path) -> None:
    for path in list(saved.iterdir()):
        path.rename(saved.parent / path.name)
        path.symlink_to(saved.parent / path.name)
    use(saved)


def test_what_could_not_be_loaded_is_not_written(saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    broken = whole_bundle()
    broken.scorer.vectors.users[0, 0] = torch.nan  # type: ignore[attr-defined]
    with pytest.raises(BundleError, match="vectors/users: got numbers from nan"):
        save_bundle(broken, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
