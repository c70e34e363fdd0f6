"""The split that all contestants get."""

from collections.abc import Mapping
from typing import Any

from mgformer.runs.config import RunConfig, build_config

SPLIT = {"kind": "ratio", "valid": 0.1, "test": 0.1}


def config_of(
    dataset: str,
    model: str = "ridge",
    options: Mapping[str, Any] | None = None,
    refit: bool = False,
) -> RunConfig:
    """Return the run of one of our models, given options as SECTION.NAME.

    Scores use no times, because the peers use none, and the split is random.
    """
    sections: dict[str, Any] = {
        "dataset": dataset,
        "seed": 0,
        "split": {**SPLIT, "refit": refit},
        "score": {"time": "off"},
        "model": {"name": model},
    }
    if model == "guided":  # as its preset, with fewer channels
        sections["train"] = {"batch_size": 512, "epochs": 8, "decay": "cosine", "evaluate_every": 2}
    for option, value in (options or {}).items():
        section, name = option.split(".")
        sections[section][name] = value
    return build_config(sections, model)
