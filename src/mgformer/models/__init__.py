"""The models by name, and models from outside.

The table holds text only. A model is imported when it is first used, so listing the models is
instant. A model from outside the package is named `package.module:Class`, or is offered by an
installed package through the entry point group `mgformer.models`.
"""

import importlib
import os
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

from mgformer.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from mgformer.graph.bipartite import Graph
    from mgformer.models.base import Model, ModelConfig

ENTRY_POINTS = "mgformer.models"


class Entry(NamedTuple):
    """Where a model is, and what it is."""

    path: str
    summary: str


BUILTIN = {
    "mgformer": Entry(
        "mgformer.models.mgformer:MGFormer",
        "Masked graph transformer over users and items (SIGIR 2024).",
    ),
    "bprmf": Entry(
        "mgformer.models.bprmf:BPRMF", "Matrix factorization with a pairwise ranking loss."
    ),
    "lightgcn": Entry("mgformer.models.lightgcn:LightGCN", "Linear graph convolution."),
    "sgl": Entry("mgformer.models.sgl:SGL", "LightGCN with contrast between random subgraphs."),
    "simgcl": Entry("mgformer.models.simgcl:SimGCL", "LightGCN with contrast under random noise."),
    "directau": Entry(
        "mgformer.models.directau:DirectAU", "Embeddings trained for alignment and uniformity."
    ),
    "gotnet": Entry(
        "mgformer.models.gotnet:GOTNet", "Graph convolution with optimal-transport clusters."
    ),
    "ultragcn": Entry(
        "mgformer.models.ultragcn:UltraGCN", "The limit of graph convolution as a loss."
    ),
    "gformer": Entry(
        "mgformer.models.gformer:GFormer", "Graph transformer that learns which edges matter."
    ),
    "popularity": Entry("mgformer.models.simple.popularity:Popularity", "The most popular items."),
    "itemknn": Entry(
        "mgformer.models.simple.itemknn:ItemKNN", "Nearest items by cosine of co-occurrence."
    ),
    "rp3beta": Entry(
        "mgformer.models.simple.rp3beta:RP3Beta", "Random walks, with a penalty on popular items."
    ),
    "ease": Entry("mgformer.models.simple.ease:EASE", "Item-item ridge regression in closed form."),
    "puresvd": Entry(
        "mgformer.models.simple.puresvd:PureSVD", "Truncated SVD of the interaction matrix."
    ),
    "gfcf": Entry("mgformer.models.simple.gfcf:GFCF", "Low-pass graph filter in closed form."),
    "ials": Entry(
        "mgformer.models.simple.ials:IALS", "Implicit alternating least squares (extra: ials)."
    ),
}

_imported: "dict[str, type[Model]]" = {}
"""Models from outside that this process was asked to import, by name."""


def model_names() -> list[str]:
    """Return the names of all installed models."""
    return [*BUILTIN, *sorted(entry_points(group=ENTRY_POINTS).names - BUILTIN.keys())]


def model_class(name: str) -> "type[Model]":
    """Return the model of a name.

    This imports a model from outside only if `import_model` or `register` named it before: the name
    may come from a file, and reading a file must not run code.
    """
    if name in BUILTIN:
        return _load(BUILTIN[name].path)
    if name in _imported:
        return _imported[name]
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return _checked(name, point.load())
    if ":" in name:
        raise ConfigError(
            f"the model {name!r} is not part of mgformer; name it with --model {name} (in Python:"
            " model=YourClass) to import it"
        )
    known = model_names()
    raise ConfigError(
        f"unknown model {name!r}{did_you_mean(name, known)} (known: {', '.join(sorted(known))};"
        " or package.module:Class)"
    )


def import_model(name: str) -> "type[Model]":
    """Return the model of a name that the user gave; `package.module:Class` is imported."""
    if ":" in name and name not in _imported:
        _imported[name] = _load(name)
    return model_class(name)


def register(model: "type[Model]") -> str:
    """Make a model class usable by name, and return the name."""
    for name, entry in BUILTIN.items():
        if entry.path.partition(":")[2] == model.__name__ and _load(entry.path) is model:
            return name
    name = f"{model.__module__}:{model.__qualname__}"
    _imported[name] = _checked(name, model)
    return name


def build_model(
    name: str, config: "ModelConfig", graph: "Graph", rng: "np.random.Generator"
) -> "Model":
    """Build a model on a graph of training pairs."""
    return model_class(name)(config, graph, rng)


def _load(path: str) -> "type[Model]":
    module, _, attribute = path.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists, and something that it imports is missing
        if os.getcwd() in sys.path:
            raise ConfigError(
                f"{path}: no module {error.name!r}; run the command in the folder that holds it,"
                " or install it"
            ) from None
        sys.path.insert(0, os.getcwd())  # an installed command does not look there by itself
        return _load(path)
    if not hasattr(found, attribute):
        raise ConfigError(f"{path}: the module {module} has no {attribute!r}")
    return _checked(path, getattr(found, attribute))


def _checked(name: str, found: object) -> "type[Model]":
    """Refuse what is not a model."""
    from mgformer.models.base import Model

    if not (isinstance(found, type) and issubclass(found, Model)):
        raise ConfigError(f"{name}: expected a subclass of mgformer.models.base.Model, got {found}")
    missing = [own for own in ("Config", "scorer") if not hasattr(found, own)]
    if missing:
        raise ConfigError(f"{name}: the model class has no {' and no '.join(missing)}")
    return found
