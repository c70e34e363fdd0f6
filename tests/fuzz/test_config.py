"""Configs: what is accepted can be written and read again, and everything else is a ConfigError."""

import contextlib
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mgformer.errors import ConfigError
from mgformer.models import BUILTIN, model_class
from mgformer.runs.config import RunConfig, build_config, read_config, to_toml, with_settings
from tests.fuzz.conftest import Fuzz

SECTIONS = {
    name: list(field.annotation.model_fields)
    for name, field in RunConfig.model_fields.items()
    if name in ("data", "split", "train", "score", "evaluation") and field.annotation
}
TEXT = st.text(
    st.sampled_from("a=.,'\"[]{}\\#\n\t 019-+e_\x7f\u2028é") | st.characters(), max_size=8
)
LITERALS = st.sampled_from(
    ["true", "null", "1e400", "-inf", "nan", "0", "-0.0", "1e16", "9" * 30, "9" * 5000, "0x10",
     "1979-05-27", "12:00:00", "[]", "[1, 2]", "[[[[[[[[[[1]]]]]]]]]]", "{}", "{a = 1}", "'''x'''",
     '"\\u0000"', "[" * 2000, "auto", "time", "none", "cosine", "file", "csv", "./x", "\udc80"]
)  # fmt: skip
NUMBERS = (
    st.integers().map(str)
    | st.floats().map(repr)
    | st.floats(0, 1).map(repr)
    | st.integers(0, 99).map(str)
)
VALUES = LITERALS | NUMBERS | TEXT


@st.composite
def assignments(draw: st.DrawFn) -> list[str]:
    """Options of the command line, mostly of options that there are."""
    model = draw(st.sampled_from(sorted(BUILTIN)))
    known = [f"{section}.{option}" for section, options in SECTIONS.items() for option in options]
    known += [f"model.{option}" for option in model_class(model).Config.model_fields]
    known += ["seed", "dataset", "warm_start"]
    names = (
        st.sampled_from(known) | st.sampled_from(["model", "data", "model_name", "train.x"]) | TEXT
    )
    settings = draw(st.lists(st.tuples(names, VALUES), max_size=4))
    return [f"model.name={model}", *("=".join(setting) for setting in settings)]


def check_round_trip(raw: dict[str, Any]) -> None:
    """Names of outside code are not imported: a fuzzer must not run any module."""
    with contextlib.suppress(ConfigError):
        run = build_config(raw, trusted=False)
        written = to_toml(run)
        written.encode()
        assert build_config(tomllib.loads(written), trusted=False) == run, written
        assert build_config(run.to_mapping(), trusted=False) == run


def test_options_that_are_accepted_can_be_written(fuzz: Fuzz) -> None:
    def check(settings: list[str]) -> None:
        with contextlib.suppress(ConfigError):
            check_round_trip(with_settings({}, settings))

    fuzz.run(assignments(), check)


def test_files(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    lines = st.tuples(
        st.sampled_from(
            ["seed", "dataset", "[model]\nname", "[data]\nuser", "[train]\nlr", "a.b.c"]
        ),
        VALUES,
    )
    deep = st.sampled_from([".".join("a" * 3000) + "=1", "a=" + "[" * 3000, "a=" + "{a=" * 3000])
    text = st.lists(lines.map(" = ".join) | deep | TEXT, max_size=3).map("\n".join)

    def check(content: bytes) -> None:
        path.write_bytes(content)
        with contextlib.suppress(ConfigError):
            check_round_trip(read_config(path))

    fuzz.run(text.map(lambda t: t.encode("utf-8", "surrogatepass")) | st.binary(max_size=40), check)


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def test_mappings(fuzz: Fuzz) -> None:
    names = st.sampled_from(
        ["seed", "dataset", "model", "data", "split", "train", "score", "evaluation"]
    )
    fuzz.run(st.dictionaries(names | TEXT, VALUE, max_size=4), check_round_trip)
