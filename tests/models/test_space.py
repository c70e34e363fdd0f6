"""Search spaces name existing options and contain only valid values."""

from typing import Any

import pytest
from pydantic import BaseModel

from mgformer.models import BUILTIN, model_class
from mgformer.models.base import TrainableModel
from mgformer.models.space import Choice, Dimension, Float, Int, Space, searched
from mgformer.runs.config import build_config
from mgformer.training.options import SPACE, TrainConfig

SPACES: dict[str, tuple[Space, type[BaseModel]]] = {
    **{name: (model_class(name).space, model_class(name).Config) for name in BUILTIN},
    "train": (SPACE, TrainConfig),
}


def ends(dimension: Dimension) -> tuple[Any, ...]:
    return dimension.options if isinstance(dimension, Choice) else (dimension.low, dimension.high)


@pytest.mark.parametrize("name", sorted(SPACES))
def test_spaces_name_existing_options_and_valid_ranges(name: str) -> None:
    space, config = SPACES[name]
    assert space or name == "popularity"
    for option, dimension in space.items():
        assert {option, *dimension.when} <= config.model_fields.keys()
        if isinstance(dimension, Choice):
            assert len(set(dimension.options)) == len(dimension.options) > 1
        else:
            assert dimension.low < dimension.high
            assert dimension.low > 0 or not dimension.log
        assert all(end in dimension for end in ends(dimension))


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_both_ends_of_every_range_are_valid_options(name: str) -> None:
    def run(**options: Any) -> None:
        train = {"lr": ends(SPACE["lr"])[0], "weight_decay": ends(SPACE["weight_decay"])[1]}
        built = build_config({"model": {"name": name, **options}, "train": train})
        assert {**built.model.model_dump(), **options} == built.model.model_dump()

    space = model_class(name).space
    for option, dimension in space.items():
        for end in ends(dimension):
            run(**{option: end})
    for side in (0, -1):
        run(**{option: ends(dimension)[side] for option, dimension in space.items()})


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_every_model_has_its_own_space(name: str) -> None:
    assert "space" in vars(model_class(name))  # an inherited space lacks the options of the model


@pytest.mark.parametrize(
    "name", sorted(name for name in BUILTIN if issubclass(model_class(name), TrainableModel))
)
def test_all_models_search_the_same_embedding_sizes(name: str) -> None:
    assert model_class(name).space["dim"] == model_class("mgformer").space["dim"]


def test_options_without_effect_are_not_searched() -> None:
    space: Space = {"a": Float(0, 1), "b": Int(1, 3, when={"form": "one"})}
    assert list(searched(space, {"form": "one"})) == ["a", "b"]
    assert list(searched(space, {"form": "two"})) == ["a"]
    for optimizer in ("adam", "rows"):
        assert "weight_decay" in searched(SPACE, TrainConfig(optimizer=optimizer).model_dump())


def test_membership_in_a_dimension() -> None:
    assert 0.5 in Float(0, 1)
    assert 1 in Float(0, 1)
    assert 0.0 not in Float(1e-8, 1, log=True)
    assert 1.5 not in Int(1, 2)
    assert None not in Float(0, 1)
    assert "b" not in Choice(("a",))
