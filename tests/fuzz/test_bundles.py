"""Bundles with anything changed and all checksums right: they are used, or refused in one line.

Every input is a bundle that somebody crafted. If compiled code trusted it, this process would end.
"""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from mgformer.errors import MgformerError
from mgformer.runs.bundle_files import MANIFEST, save_bundle
from tests.crafted import (
    change_file,
    change_manifest,
    change_table,
    change_tensors,
    use,
    whole_bundle,
)
from tests.fuzz.conftest import SECONDS, Fuzz

WHOLE = st.sampled_from(
    [0, 1, -1, 2, 9, 10, 11, 12, 13, 255, 2**15, 2**31 - 1, -(2**31), 2**40, -(2**63), 2**63 - 1]
)
REAL = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-10, 1e9, 1e10, -1e10, 1e11, 3e38, float("inf"), float("nan")]
)
TYPES = [
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.bool,
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | REAL | st.just(10**400)
    | st.text(max_size=5)
    | st.sampled_from(["dot", "history", "sum", "prior", "..", "a\0b", "\ud800", "0" * 64]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)  # fmt: skip
Change = Callable[[Path], object]


@pytest.fixture(scope="module", params=["sparse", "dense"] if SECONDS else ["sparse"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    save_bundle(whole_bundle(dense=request.param == "dense"), folder)
    use(folder)
    return folder


def try_out(original: Path, work: Path, change: Change) -> None:
    """Use a changed copy of a bundle; anything but an error of ours fails the test."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work)
    change(work)
    message = ""
    try:
        use(work)
    except MgformerError as error:
        message = str(error)
    assert "\n" not in message


@st.composite
def tensor_changes(draw: st.DrawFn) -> Change:
    """One or two tensors of a file get other values, types or shapes, or vanish."""
    kind = draw(st.sampled_from(["pairs", "scorer", "scorer", "weights"]))
    picks = draw(st.lists(st.integers(0, 99), min_size=1, max_size=2))
    ways = [
        draw(st.sampled_from(["set", "set", "set", "type", "cut", "grow", "drop", "swap"]))
        for _ in picks
    ]
    places, whole, real = draw(st.integers(0, 10**6)), draw(WHOLE), draw(REAL)
    dtype, shape = draw(st.sampled_from(TYPES)), draw(st.sampled_from(["flat", "row", "scalar"]))

    def changed(tensors: dict[str, Tensor]) -> None:
        for pick, way in zip(picks, ways, strict=True):
            names = sorted(tensors)
            name = names[pick % len(names)]
            tensor = tensors[name]
            if way == "set" and tensor.numel():
                value = real if tensor.is_floating_point() else whole
                with contextlib.suppress(RuntimeError, OverflowError):  # it does not fit
                    tensor.view(-1)[places % tensor.numel()] = value
            elif way == "type":
                tensors[name] = tensor.to(dtype)
            elif way == "cut" and tensor.ndim:
                flat = {"flat": tensor.reshape(-1), "row": tensor[None], "scalar": tensor.sum()}
                cut = places % 2 and tensor.numel()
                tensors[name] = tensor[: places % len(tensor)] if cut else flat[shape]
            elif way == "grow" and tensor.numel() and tensor.ndim:
                tensors[name] = torch.cat([tensor, tensor[: 1 + places % 3]])
            elif way == "drop" and len(tensors) > 1:
                tensors[f"{name}x"] = tensors.pop(name)
            elif way == "swap":
                other = names[(pick + 1 + places) % len(names)]
                tensors[name], tensors[other] = tensors[other].clone(), tensor.clone()

    return lambda folder: change_tensors(folder, kind, changed)


@st.composite
def manifest_changes(draw: st.DrawFn) -> Change:
    """Some values of the manifest become others, vanish, or get company."""
    steps = draw(st.lists(st.tuples(st.integers(0, 999), JSON), min_size=1, max_size=2))
    way = draw(st.sampled_from(["set", "set", "drop", "add"]))

    def changed(manifest: dict[str, Any]) -> None:
        for pick, value in steps:
            places = list(_places(manifest))
            owner, name = places[pick % len(places)]
            if way == "set":
                owner[name] = value
            elif way == "drop":
                del owner[name]
            elif isinstance(owner[name], dict):
                owner[name]["more"] = value

    return lambda folder: change_manifest(folder, changed)


def _places(value: Any) -> Any:
    """Yield every (container, key) of nested JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in list(inner):
        yield value, name
        if isinstance(part, dict | list):
            yield from _places(part)


@st.composite
def table_changes(draw: st.DrawFn) -> Change:
    """A table gets other rows, types, values or columns."""
    kind = draw(st.sampled_from(["users", "items", "per_user"]))
    way = draw(st.sampled_from(["head", "reverse", "type", "null", "value", "rename", "twice"]))
    pick, dtype = draw(st.integers(0, 20)), draw(st.sampled_from([pl.String, pl.Int64, pl.Float64]))
    value = draw(st.none() | WHOLE | REAL | st.text(max_size=3))

    def changed(table: pl.DataFrame) -> pl.DataFrame:
        name = table.columns[pick % table.width]
        at = pl.int_range(pl.len()) == pick % max(table.height, 1)
        if way == "head":
            return table.head(pick)
        if way == "reverse":
            return table.reverse()
        if way == "type":
            with contextlib.suppress(pl.exceptions.InvalidOperationError):  # of arrays
                return table.with_columns(pl.col(name).cast(dtype, strict=False))
            return table
        if way == "null":
            return table.with_columns(pl.when(~at).then(name))
        if way == "value":
            return table.with_columns(pl.lit(value).alias(name))
        return table.rename({name: "x"}) if way == "rename" else pl.concat([table, table])

    return lambda folder: change_table(folder, kind, changed)


@st.composite
def byte_changes(draw: st.DrawFn) -> Change:
    """Bytes of a file become others, or the file is cut; its checksum follows."""
    kind = draw(st.sampled_from(["pairs", "scorer", "users", "items", "per_user", "weights"]))
    edits = draw(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4))
    cut = draw(st.none() | st.integers(0, 10**6))

    def changed(path: Path) -> None:
        content = bytearray(path.read_bytes())
        for place, value in edits:
            # Headers are at the beginning of tensors and at the end of tables: change them more.
            at = place % min(len(content), 400) if value % 2 else -1 - place % len(content)
            content[at] = value
        path.write_bytes(content if cut is None else content[: cut % len(content)])

    return lambda folder: change_file(folder, kind, changed)


@pytest.mark.parametrize("changes", [tensor_changes, manifest_changes, table_changes, byte_changes])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # products of values that are far too large
def test_a_changed_bundle_is_used_or_refused(
    changes: Callable[[], st.SearchStrategy[Change]], original: Path, tmp_path: Path, fuzz: Fuzz
) -> None:
    fuzz.run(changes(), lambda change: try_out(original, tmp_path / "run", change))


def test_a_manifest_of_any_bytes_is_refused(original: Path, tmp_path: Path, fuzz: Fuzz) -> None:
    text = (original / MANIFEST).read_bytes()

    def changed(edit: tuple[int, bytes]) -> None:
        place = edit[0] % len(text)
        content = text[:place] + edit[1] + text[place + len(edit[1]) :]
        try_out(original, tmp_path / "run", lambda f: (f / MANIFEST).write_bytes(content))

    fuzz.run(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=8)), changed)
    assert json.loads(text)["format"] == 3
