import tomllib
from pathlib import Path

import pytest

from mgformer.errors import ConfigError
from mgformer.models import BUILTIN
from mgformer.runs.config import (
    build_config,
    named,
    read_config,
    to_toml,
    with_choices,
    with_settings,
)


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_a_run_survives_being_written_and_read(name: str) -> None:
    run = build_config({"dataset": "ml-100k", "seed": 3, "model": {"name": name}})
    assert run.model_name == name
    assert build_config(run.to_mapping()) == run
    assert build_config(tomllib.loads(to_toml(run))) == run


def test_whatever_an_option_holds_can_be_written() -> None:
    odd = 'a "b" \\ \t\n\x01\x7f\u2028 é 😀 # = []'
    raw = {
        "dataset": odd,
        "data": {"sep": "\t", "user": 3, "min_rating": 1e-300, "header": False},
        "model": {"name": "ease", "l2": 1e16},
        "evaluation": {"ks": [5, 7]},
    }
    run = build_config(raw)
    assert build_config(tomllib.loads(to_toml(run))) == run
    assert run.dataset == odd


def test_what_is_chosen_beside_a_file() -> None:
    raw = {"dataset": "a", "seed": 1, "model": {"name": "ease", "l2": 3}}
    assert with_choices(raw) == raw
    assert with_choices(raw, "b", "ease", 0) == {**raw, "dataset": "b", "seed": 0}
    assert with_choices(raw, model="gfcf")["model"] == {"name": "gfcf"}
    assert named(["model.l2=3", " train.lr = 1=2 "]) == {"model.l2", "train.lr"}


def test_settings_reach_every_section() -> None:
    raw = {"model": {"name": "ease", "l2": 1.0}, "split": {"kind": "time"}}
    settings = ["model.l2=300", "data.sep=;", "evaluation.ks=[5, 7]", "seed=4", "data.user=uid"]
    run = build_config(with_settings(raw, settings))
    assert run.model.model_dump() == {"l2": 300.0}
    assert (run.data.sep, run.data.user, run.seed) == (";", "uid", 4)
    assert (run.split.kind, run.evaluation.ks) == ("time", (5, 7))
    assert raw["model"] == {"name": "ease", "l2": 1.0}  # the given mapping is left alone


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.name=esae"], "model.name: unknown model 'esae'; did you mean ease?"),
        (["model.l22=1", "model.name=ease"], "model.l22: unknown option of ease; did you mean l2?"),
        (["split.kid=time"], "split.kid: unknown option; did you mean kind?"),
        (["split.kind=tiem"], "got 'tiem'; did you mean time?"),
        (["sed=1"], "sed: unknown option; did you mean seed?"),
        (["model.l2=-1", "model.name=ease"], "model.l2: Input should be greater than 0, got -1"),
        (["evaluation.ks=[0]"], "evaluation.ks: cut-offs must be at least 1"),
        (["split.valid=0.6", "split.test=0.6"], "valid + test must be below 1"),
        (["seed=-1"], "seed: Input should be greater than or equal to 0, got -1"),
        (["seed"], "expected section.option=value"),
        (["a.b.c=1"], "expected section.option=value"),
        (["seed=1", "seed.x=1"], "seed is not a section"),
        (["model=ease"], "model must be a section"),
        (["data.min_rating=1e400"], "data.min_rating: Input should be a finite number, got inf"),
        (["data.min_rating='1e400'"], "data.min_rating: Input should be a finite number"),
        (["data.min_rating=nan"], "data.min_rating: Input should be a finite number"),
        (["train.lr=inf"], "train.lr: Input should be a finite number"),
        (["score.delta=inf"], "score.delta: Input should be a finite number"),
        (["model.name=ease", "model.l2=inf"], "model.l2: Input should be a finite number"),
        (["seed=9223372036854775808"], "seed: Input should be less than 9223372036854775808"),
        (["seed=1" + "0" * 5000], "seed: "),
        (["seed=" + "[" * 5000 + "]" * 5000], "seed: Input should be a valid integer"),
        (["seed=" + "[" * 50 + "]" * 50], "got values nested more than 8 deep"),
        (["data=" + "{a=" * 50 + "1" + "}" * 50], "got values nested more than 8 deep"),
        (["dataset=\udc80"], "dataset: "),
        (["data.items=\udc80"], "data.items: "),
    ],
)
def test_bad_options_are_one_line(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(with_settings({"model": {"name": "gfcf"}}, settings))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("seed = = 1")
    with pytest.raises(ConfigError, match=r"bad.toml: cannot be read as TOML"):
        read_config(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000 + "]" * 100_000,
        "a = " + "{a = " * 100_000,
        ".".join("a" * 2_000) + " = 1",
        f"[{'.'.join('a' * 20_000)}]",
        "seed = 1" + "0" * 5000,
        "seed = 1\nseed = 2",
        "dataset = '\udcff'",
    ],
)
def test_hostile_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=r"a\.toml: ") as caught:
        read_config(path)
    assert len(str(caught.value)) < 500


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got a folder"):
        read_config(tmp_path)
    (tmp_path / "a.toml").touch()
    with pytest.raises(ConfigError, match="no such config file"):
        read_config(tmp_path / "a.toml" / "b.toml")


def test_nested_values_are_written_as_toml() -> None:
    raw = {"model": {"table": {"a b": [1, {"c": 0.5}], "": "x"}, "list": [[1], []]}}
    assert tomllib.loads(to_toml(raw)) == raw


PRESETS = sorted((Path(__file__).parents[2] / "configs").glob("*/*.toml"))


@pytest.mark.parametrize("path", PRESETS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_presets_load_and_name_their_dataset(path: Path) -> None:
    run = build_config(read_config(path), str(path))
    assert run.dataset == path.parent.name
    assert run.model_name == path.stem.partition("-")[0]
    assert "# Figures: results/" in path.read_text()  # a preset says where its figures are


def test_there_are_presets() -> None:
    assert PRESETS
