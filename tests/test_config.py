from pathlib import Path

import pytest

from mgformer.config import build_config, read_config, with_settings
from mgformer.errors import ConfigError
from mgformer.models import MODELS


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_run_survives_being_written_and_read(name: str) -> None:
    run = build_config({"dataset": "ml-100k", "seed": 3, "model": {"name": name}})
    assert run.model_name == name
    assert build_config(run.to_mapping()) == run


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
        (["split.kind=tiem"], "split.kind: Input should be 'auto', 'ratio'"),
        (["sed=1"], "sed: unknown option; did you mean seed?"),
        (["model.l2=-1", "model.name=ease"], "model.l2: Input should be greater than 0, got -1"),
        (["evaluation.ks=[0]"], "evaluation.ks: cut-offs must be at least 1"),
        (["split.valid=0.6", "split.test=0.6"], "valid + test must be below 1"),
        (["seed=-1"], "seed: Input should be greater than or equal to 0, got -1"),
        (["seed"], "expected section.option=value"),
        (["a.b.c=1"], "expected section.option=value"),
        (["seed=1", "seed.x=1"], "seed is not a section"),
        (["model=ease"], "model must be a section"),
    ],
)
def test_bad_options_are_one_line(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(with_settings({}, settings))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("seed = = 1")
    with pytest.raises(ConfigError, match=r"bad.toml: cannot be read as TOML"):
        read_config(tmp_path / "bad.toml")


PRESETS = sorted((Path(__file__).parent.parent / "configs").glob("*/*.toml"))


@pytest.mark.parametrize("path", PRESETS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_presets_load_and_name_their_dataset(path: Path) -> None:
    run = build_config(read_config(path), str(path))
    assert run.dataset == path.parent.name
    assert run.model_name == path.stem.partition("-")[0]
    assert "Expect" in path.read_text()  # a preset says what it gives


def test_there_are_presets() -> None:
    assert PRESETS
