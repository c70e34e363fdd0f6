"""Options of older versions, translated into those of this one.

Files and records of runs keep the options with which they were written. The model `mgformer` once
had several forms of attention. Its form over the nearest nodes is now a model of its own, `guided`.
The paper's form is `mgformer`. The other forms are gone.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mgformer.errors import ConfigError


class _Form(NamedTuple):
    """What a form of attention of the old `mgformer` is now."""

    model: str
    options: Mapping[str, str]
    """Old option → new option. Other old options are left out: they had no effect in this form, or
    are constants now."""
    added: Mapping[str, Any]
    """New options with fixed values, or with the old default where the new default differs."""
    needed: Mapping[str, Any]
    """Old options that must have this value, if they are given: there is nothing else now."""
    uniformity: float
    """Factor of the weight of uniformity, which was that of the mean of both sides."""


_SAME = ("dim", "rank", "normalized", "num_layers", "uniformity_t")
_ATTENTION = ("num_heads", "features", "mask", "key_sample", "attention_weight", "sharpness")
_FORMS = {
    "neighbors": _Form(
        model="guided",
        options={
            "dim": "dim",
            "rank": "rank",
            "num_neighbors": "num_neighbors",
            "sharpness": "sharpness",
            "encoding_scale": "encoding_scale",
            "attention_weight": "attention_weight",
            "local_weight": "graph_weight",
            "uniformity_t": "uniformity_t",
        },
        added={"guide": "spectral", "num_neighbors": 32, "uniformity_weight": 1.0},
        needed={
            "normalized": True,
            "num_layers": 1,
            "mask": "none",
            "num_heads": 1,
            "residual": "shaped",
            "neighbor_rank": None,
        },
        uniformity=1.0,
    ),
    "kernel": _Form(
        model="mgformer",
        options={name: name for name in (*_SAME, *_ATTENTION)},
        added={"mask": "none", "key_sample": "none", "uniformity_weight": 0.5},
        needed={"local_weight": 0},
        uniformity=0.5,
    ),
    "none": _Form(
        model="mgformer",
        options={name: name for name in _SAME},
        added={"attention_weight": 0.0, "uniformity_weight": 0.5},
        needed={"local_weight": 0, "residual": "shaped"},
        uniformity=0.5,
    ),
}
_OLD_ONLY = {
    "attention", "encoding_scale", "num_neighbors", "neighbor_rank", "num_landmarks",
    "active_landmarks", "centered", "local_weight", "degree_dim", "num_features", "redraw",
    "query_init", "uniformity_sides",
}  # fmt: skip
_OLD = {*_OLD_ONLY, *_SAME, *_ATTENTION, "residual", "uniformity_weight"}


def renamed(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a model as this version has them.

    Options of this version are returned as they are.
    """
    residual = options.get("residual")
    is_old = isinstance(residual, str) or (residual is None and not _OLD_ONLY.isdisjoint(options))
    if name != "mgformer" or not is_old:
        return name, dict(options)
    attention = options.get("attention", "neighbors")
    form = _FORMS.get(attention)
    if form is None:
        raise _gone(f"attention = {attention}")
    for option, value in form.needed.items():
        if options.get(option, value) != value:
            raise _gone(f"{option} = {options[option]} with attention = {attention}")
    found = {new: options[old] for old, new in form.options.items() if old in options}
    found = {**form.added, **found}
    factor = form.uniformity * (2 if options.get("uniformity_sides") == "sum" else 1)
    if "uniformity_weight" in options or factor != form.uniformity:
        found["uniformity_weight"] = factor * options.get("uniformity_weight", 1.0)
    if attention == "kernel":
        if residual == "none":
            found["residual"] = 0.0
            found.pop("attention_weight", None)
        if options.get("query_init") == "xavier":
            found["sharpness"] = "none"
        if found["mask"] == "adjacency":
            found["key_sample"] = "none"
    unknown = {option: value for option, value in options.items() if option not in _OLD}
    return form.model, {**found, **unknown}


def _gone(what: str) -> ConfigError:
    return ConfigError(
        f"{what}: mgformer no longer has this form of attention, so it cannot be trained or"
        " rebuilt; a run that was trained with it still recommends"
    )
