"""Models by name: what is imported when, and what is refused."""

import sys
from pathlib import Path

import pytest

from mgformer import models
from mgformer.errors import ConfigError
from mgformer.models import BUILTIN, import_model, model_class, model_names, register
from mgformer.models.base import Model, ModelConfig
from mgformer.models.simple.ease import EASE

MODULE = '''
from mgformer.models.base import Model, ModelConfig
from mgformer.models.simple.popularity import Popularity

value = 3

class Fine(Popularity):
    """Fine."""

class Unfinished(Model):
    class Config(ModelConfig):
        """No options."""

class WithoutConfig(Model):
    def scorer(self):
        raise NotImplementedError

class Outer:
    class Inner(Popularity):
        """Nested."""
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module that is not on the path."""
    (tmp_path / "registry_example.py").write_text(MODULE)
    (tmp_path / "registry_broken.py").write_text("import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("mgformer.outside.imported", {})
    monkeypatch.delitem(sys.modules, "registry_example", raising=False)
    return tmp_path


def test_every_built_in_model_is_where_the_table_says() -> None:
    assert model_names()[: len(BUILTIN)] == list(BUILTIN)
    for name, entry in BUILTIN.items():
        found = model_class(name)
        assert found.__name__ == entry.path.partition(":")[2]
        assert register(found) == name


def test_a_model_in_the_current_folder_is_found(folder: Path) -> None:
    found = import_model("registry_example:Fine")
    assert found.__module__ == "registry_example"
    assert model_class("registry_example:Fine") is found
    assert import_model("registry_example:Outer.Inner").__name__ == "Inner"


def test_a_name_from_a_file_is_not_imported(folder: Path) -> None:
    with pytest.raises(ConfigError, match="add --model registry_example:Fine to the command"):
        model_class("registry_example:Fine")
    assert "registry_example" not in sys.modules


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("registry_missing:Fine", "no module 'registry_missing'; run the command in the folder"),
        ("registry_example:Fin", "registry_example has no 'Fin'; check .*registry_example.py"),
        ("registry_example:value", "expected a subclass of mgformer.models.base.Model, got 3"),
        ("registry_example:Outer", "expected a subclass of mgformer.models.base.Model, got"),
        ("registry_example:Unfinished", "the model must define .*scorer"),
        ("registry_example:WithoutConfig", "must have a class Config"),
        ("registry_example:", "expected package.module:name"),
        (":Fine", "expected package.module:name"),
        ("eas", "unknown model 'eas'; did you mean ease?"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(folder: Path, name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as raised:
        import_model(name)
    assert "\n" not in str(raised.value)


def test_a_missing_dependency_of_the_module_is_not_hidden(folder: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        import_model("registry_broken:Fine")


def test_a_class_is_registered_by_its_place() -> None:
    class Own(EASE):
        """A model of this test."""

    name = register(Own)
    assert name.endswith(":test_a_class_is_registered_by_its_place.<locals>.Own")
    assert model_class(name) is Own
    assert register(EASE) == "ease"


def test_an_unfinished_class_is_not_registered() -> None:
    class Own(Model):
        class Config(ModelConfig):
            """No options."""

    with pytest.raises(ConfigError, match="the model must define"):
        register(Own)


def test_summaries_do_not_import_models() -> None:
    assert list(models.model_summaries())[: len(BUILTIN)] == list(BUILTIN)
    assert all(summary.endswith(".") for summary in models.model_summaries().values())
