"""The models by name, and models from outside.

The table holds text only. A model is imported when it is first used, so listing the models is
instant. A model from outside the package is named `package.module:Class`, or an installed package
offers it under a short name through the entry point group `mgformer.models`.
"""

from typing import TYPE_CHECKING, NamedTuple

from mgformer import outside
from mgformer.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    import numpy as np

    from mgformer.graph.bipartite import Graph
    from mgformer.models.base import Model, ModelConfig

AUTO = "auto"
"""In place of a model: choose a good one on validation."""


class ModelEntry(NamedTuple):
    """Where a model is, and what it does."""

    path: str
    summary: str


BUILTIN = {
    path.partition(":")[2].lower(): ModelEntry(f"mgformer.models.{path}", summary)
    for path, summary in {
        "mgformer:MGFormer": "Masked graph transformer over users and items (SIGIR 2024).",
        "guided:Guided": "Transformer whose attention follows an item-item regression.",
        "bprmf:BPRMF": "Matrix factorization with a pairwise ranking loss.",
        "lightgcn:LightGCN": "Linear graph convolution.",
        "sgl:SGL": "LightGCN with contrast between random subgraphs.",
        "simgcl:SimGCL": "LightGCN with contrast under random noise.",
        "directau:DirectAU": "Embeddings trained for alignment and uniformity.",
        "gotnet:GOTNet": "Graph convolution with optimal-transport clusters.",
        "ultragcn:UltraGCN": "The limit of graph convolution as a loss.",
        "gformer:GFormer": "Graph transformer that learns which edges matter.",
        "simple.popularity:Popularity": "The most popular items.",
        "simple.neighbors:ItemKNN": "Nearest items by cosine of co-occurrence.",
        "simple.neighbors:RP3Beta": "Random walks, with a penalty on popular items.",
        "simple.ease:EASE": "Item-item ridge regression in closed form.",
        "simple.ridge:Ridge": "Item-item ridge regression on the nearest items.",
        "simple.spectral:PureSVD": "Truncated SVD of the interaction matrix.",
        "simple.spectral:GFCF": "Low-pass graph filter in closed form.",
        "simple.ials:IALS": "Implicit alternating least squares (extra: ials).",
    }.items()
}
"""Name of a model, which is its class in lower case → where it is."""


def model_names() -> list[str]:
    """Return the names of all installed models."""
    return [*BUILTIN, *sorted(_entry_points().names - BUILTIN.keys())]


def model_summaries() -> dict[str, str]:
    """Return one line about each installed model, without importing any."""
    found = {name: entry.summary for name, entry in BUILTIN.items()}
    for point in _entry_points():
        package = point.dist.name if point.dist else "another package"
        found.setdefault(point.name, f"From {package} ({point.value}).")
    return found


def model_class(name: str) -> "type[Model]":
    """Return the model of a name.

    A model `package.module:Class` must have been imported before, by `import_model` or
    `register`. The name may come from a file, and reading a file must not run code.
    """
    if name == AUTO:
        raise ConfigError(
            f"got no model, or {AUTO}, which only `train` can choose; name one that"
            " `mgformer models` lists"
        )
    if name in BUILTIN:
        return _checked(name, outside.import_object(BUILTIN[name].path))
    if name in outside.imported:
        return _checked(name, outside.imported[name])
    if outside.is_outside(name):
        raise ConfigError(
            f"{name} is not part of mgformer, and a file may not import it; add --model {name}"
            " to the command (in Python: mgformer.models.import_model)"
        )
    for point in _entry_points():
        if point.name == name:
            return _checked(name, point.load())
    known = model_names()
    raise ConfigError(
        f"unknown model {name!r}{did_you_mean(name, known)} (known: {', '.join(sorted(known))};"
        " or package.module:Class)"
    )


def import_model(name: str) -> "type[Model]":
    """Return the model of a name that the user gave; `package.module:Class` is imported."""
    if outside.is_outside(name):
        outside.import_object(name)
    return model_class(name)


def register(model: "type[Model]") -> str:
    """Make a model class usable by name, and return the name."""
    path = f"{model.__module__}:{model.__qualname__}"
    for name, entry in BUILTIN.items():
        if entry.path.rpartition(":")[2] == model.__qualname__ and model_class(name) is model:
            return name
    outside.imported[path] = _checked(path, model)
    return path


def build_model(
    name: str, config: "ModelConfig", graph: "Graph", rng: "np.random.Generator"
) -> "Model":
    """Build a model on a graph of training pairs."""
    return model_class(name)(config, graph, rng)


def _entry_points() -> "EntryPoints":
    from importlib.metadata import entry_points  # takes as long as three starts of Python

    return entry_points(group="mgformer.models")


def _checked(name: str, found: object) -> "type[Model]":
    """Refuse what is not a complete model."""
    from mgformer.models.base import Model, ModelConfig

    if not (isinstance(found, type) and issubclass(found, Model)):
        raise ConfigError(
            f"{name}: expected a subclass of mgformer.models.base.Model, got {found!r}"
        )
    if missing := sorted(found.__abstractmethods__):
        raise ConfigError(f"{name}: the model must define {', '.join(missing)}")
    config = getattr(found, "Config", None)
    if not (isinstance(config, type) and issubclass(config, ModelConfig)):
        raise ConfigError(
            f"{name}: the model must have a class Config(ModelConfig), got {config!r}"
        )
    return found
