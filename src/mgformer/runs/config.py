"""The config of a run, put together from options that live beside the code they govern.

A run is written as TOML and changed with `--set section.option=value`:

    dataset = "yelp2018"
    seed = 0
    [data]          # how files are read            data/columns.py
    [split]         # train, validation, test       data/splits.py
    [model]         # name = "ease", and its own options
    [train]         # epochs, batches, optimiser    training/options.py
    [score]         # how embeddings are compared   ranking/score.py
    [evaluation]    # cut-offs, memory              ranking/evaluation.py
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, SerializeAsAny, ValidationError, model_validator

from mgformer.data import DEFAULT_DATASET
from mgformer.data.options import OPTIONS, DataConfig, SplitConfig
from mgformer.errors import ConfigError, did_you_mean
from mgformer.models import AUTO, model_class
from mgformer.models.base import Model, ModelConfig, TrainableModel
from mgformer.models.renamed import renamed
from mgformer.outside import import_object, is_outside
from mgformer.ranking.evaluation import EvaluationConfig
from mgformer.ranking.score import GRIDS, Kind, ScoreConfig
from mgformer.training.options import TrainConfig

DEEPEST = 8
"""Levels of nesting in a config; options need three."""
# Also raised: ValueError for text that is not UTF-8 or a number of more than 4,300 digits, and
# RecursionError for deep nesting.
_TOML_ERRORS = (ValueError, RecursionError)


class RunConfig(BaseModel):
    """Everything that determines a run."""

    model_config = OPTIONS

    dataset: str = DEFAULT_DATASET
    """A catalog name, a file or a folder."""
    model_name: str
    """Which model; written `name` in the section [model]."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the split and of everything the model draws."""
    warm_start: str | None = None
    """Folder of a trained recommender to go on from, with its data beside the new."""
    data: DataConfig = DataConfig()
    split: SplitConfig = SplitConfig()
    train: TrainConfig = TrainConfig()
    score: ScoreConfig = ScoreConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    model: SerializeAsAny[ModelConfig]

    @property
    def model_class(self) -> type[Model]:
        """The model; a model from outside was imported when the config was built."""
        return model_class(self.model_name)

    @property
    def trainable(self) -> bool:
        """Whether the model is trained step by step."""
        return issubclass(self.model_class, TrainableModel)

    @property
    def score_kinds(self) -> tuple[Kind, ...]:
        """How embeddings may be compared; empty if the model has none."""
        return self.model_class.score_kinds if self.score.kind == "auto" else (self.score.kind,)

    @model_validator(mode="after")
    def _has_something_to_score_with(self) -> "RunConfig":
        of_time = self.score.model_dump(include={"time", "eta", "kappa", "cold"})
        if not self.model_class.score_kinds and self.score != ScoreConfig(**of_time):
            raise ValueError(
                f"score: {self.model_name} has no embeddings to compare; only time, eta, kappa"
                " and cold apply"
            )
        if self.score.gamma is not None and self.score.kind not in GRIDS:
            raise ValueError(f"score.gamma needs score.kind = {' or '.join(GRIDS)}")
        return self

    def to_mapping(self) -> dict[str, Any]:
        """Return the run as the nested mapping that `build_config` takes."""
        whole = self.model_dump(mode="json", exclude_none=True)
        whole["model"] = {"name": whole.pop("model_name"), **whole["model"]}
        return whole


def build_config(
    raw: Mapping[str, Any], source: str = "config", *, trusted: bool = True
) -> RunConfig:
    """Check a nested mapping and return the run it describes.

    Args:
        raw: Sections and options.
        source: Where they come from, for error messages.
        trusted: Whether what the mapping names as `package.module:name` may be imported. It may not
            if the mapping was read from a bundle or a checkpoint.
    """
    _check_depth(raw, source)
    if trusted:
        import_outside(raw, source)
    sections = {name: dict(v) if isinstance(v, Mapping) else v for name, v in raw.items()}
    own = sections.pop("model", {})
    if not isinstance(own, dict):
        raise ConfigError(
            f"{source}: model must be a section, got {_shown(own)}; write model.name=…"
        )
    name = str(own.pop("name", AUTO))
    sections.pop("model_name", None)
    try:
        name, own = renamed(name, own)
    except ConfigError as error:
        raise ConfigError(f"{source}: model.{error}") from None
    try:
        schema = model_class(name).Config
    except ConfigError as error:
        raise ConfigError(f"{source}: model.name: {error}") from None
    try:
        model = schema.model_validate(own)
    except ValidationError as error:
        raise _one_line(error, schema, source, ("model",), f" of {name}") from None
    try:
        run = RunConfig(model_name=name, model=model, **sections)
    except ValidationError as error:
        raise _one_line(error, RunConfig, source) from None
    _check_text(run, source)
    return run


def build_data_config(raw: Mapping[str, Any], source: str = "config") -> DataConfig:
    """Check the options of the section [data] alone."""
    try:
        return DataConfig.model_validate(dict(raw))
    except ValidationError as error:
        raise _one_line(error, DataConfig, source, ("data",)) from None


def import_outside(raw: Mapping[str, Any], source: str = "config") -> None:
    """Import the model, the split and the metrics that the user names as `package.module:name`."""
    options = flat_options(raw)
    metrics = options.get("evaluation.metrics")
    names = [options.get("model.name"), options.get("split.kind")]
    for name in names + (metrics if isinstance(metrics, list) else []):
        if isinstance(name, str) and is_outside(name):
            try:
                import_object(name)
            except ConfigError as error:
                raise ConfigError(f"{source}: {error}") from None


def flat_options(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping as one level: dotted name → value."""
    result: dict[str, Any] = {}
    for name, value in raw.items():
        if isinstance(value, Mapping):
            result |= flat_options(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def different_options(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the options in which two nested mappings differ: dotted name → both values."""
    left, right = flat_options(one), flat_options(other)
    names = sorted({*left, *right})
    pairs = {name: (left.get(name), right.get(name)) for name in names}
    return {name: values for name, values in pairs.items() if values[0] != values[1]}


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file into a nested mapping."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path}: no such config file; check the path") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: got a folder, expected a config file; name a file") from None
    except _TOML_ERRORS as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from None
    _check_depth(raw, str(path))
    return raw


def to_toml(config: RunConfig | Mapping[str, Any]) -> str:
    """Return the run as a complete TOML file, which `read_config` and `build_config` take."""
    plain, sections = [], []
    described = config.to_mapping() if isinstance(config, RunConfig) else config
    for name, value in described.items():
        if isinstance(value, Mapping):
            options = [f"{option} = {literal(v)}" for option, v in value.items()]
            sections.append("\n".join(["", f"[{name}]", *options]))
        else:
            plain.append(f"{name} = {literal(value)}")
    return "\n".join([*plain, *sections, ""])


def with_choices(
    raw: Mapping[str, Any],
    dataset: str | None = None,
    model: str | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Return `raw` with what is given; the options of another model than that are left out."""
    given = {"dataset": dataset, "seed": seed}
    chosen = {**raw, **{name: value for name, value in given.items() if value is not None}}
    if model is not None:
        section = raw.get("model", {})
        same = isinstance(section, dict) and section.get("name") == model
        chosen["model"] = section if same else {"name": model}
    return chosen


def with_settings(raw: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return `raw` with `section.option=value` assignments applied, in order."""
    changed = {name: dict(v) if isinstance(v, Mapping) else v for name, v in raw.items()}
    for setting in settings:
        path, found, text = setting.partition("=")
        *sections, option = path.strip().split(".")
        if not found or not option or len(sections) > 1:
            raise ConfigError(
                f"--set {setting!r}: expected section.option=value, such as --set split.kind=time"
            )
        place = changed
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"--set {setting!r}: {section} is not a section")
        place[option] = _value(text.strip())
    _check_depth(changed, "--set")
    return changed


def named(settings: Iterable[str]) -> set[str]:
    """Return the options that `section.option=value` assignments set."""
    return {setting.partition("=")[0].strip() for setting in settings}


def _value(text: str) -> Any:
    """Read a value as TOML would (true, 3, 0.5, [10, 20]); anything else is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except _TOML_ERRORS:
        return text


def _check_depth(raw: Mapping[str, Any], source: str) -> None:
    """Refuse deep nesting before a function that calls itself meets it."""
    level: list[Any] = [raw]
    for _ in range(DEEPEST):
        inner = (value.values() if isinstance(value, Mapping) else value for value in level)
        level = [v for values in inner for v in values if isinstance(v, Mapping | list | tuple)]
    if level:
        raise ConfigError(
            f"{source}: got values nested more than {DEEPEST} deep, expected sections of options; "
            "write section.option = value"
        )


def _check_text(run: RunConfig, source: str) -> None:
    """Refuse text that cannot be written to a file, such as a file name that is not UTF-8."""
    for name, value in flat_options(run.to_mapping()).items():
        try:
            literal(value).encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{source}: {name}: got {_shown(value)}, expected UTF-8; rename the file, or write "
                "the option with other characters"
            ) from None


def literal(value: Any) -> str:
    """Write a value as TOML does, which has JSON's strings, truth values and numbers."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{literal(str(k))} = {literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _shown(value: object, most: int = 100) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number of more than 4,300 digits
        return f"a very long {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}…"


def _one_line(
    error: ValidationError,
    schema: type[BaseModel],
    source: str,
    prefix: tuple[str, ...] = (),
    owner: str = "",
) -> ConfigError:
    """Turn the first problem that pydantic found into one line that says where and what to do."""
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"]]
    where = ".".join([*prefix, *location])
    if problem["type"] == "extra_forbidden":
        for part in location[:-1]:
            field = schema.model_fields[part].annotation
            schema = field if isinstance(field, type) and issubclass(field, BaseModel) else schema
        known = [*schema.model_fields]
        hint = did_you_mean(location[-1], known) or f"; known: {', '.join(known) or 'none'}"
        return ConfigError(f"{source}: {where}: unknown option{owner}{hint}")
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":  # ours, and it says what it got
        return ConfigError(": ".join(filter(None, [source, where, message])))
    return ConfigError(f"{source}: {where}: {message}, got {_shown(problem['input'])}")
