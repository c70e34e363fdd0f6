"""The presets: one complete run per file, `configs/<dataset>/<model>.toml`."""

from pathlib import Path
from typing import Any

from mgformer.runs.config import read_config

_PACKAGED = Path(__file__).parent.parent / "configs"
_CHECKOUT = Path(__file__).parents[3] / "configs"
FOLDER = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
"""Inside the package where it is installed, beside the sources in a checkout."""


def preset(dataset: str, name: str) -> dict[str, Any] | None:
    """Return the preset of a dataset as `build_config` takes it, None if there is none."""
    path = FOLDER / dataset / f"{name}.toml"
    return read_config(path) if path.exists() else None
