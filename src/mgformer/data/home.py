"""Where datasets are stored, and which of them are there; imports the standard library only.

Each dataset is in a folder of its own name in the data home.
"""

import os
from pathlib import Path

from mgformer.data.entries import Form, entry


def data_home() -> Path:
    """Return the folder of datasets: $MGFORMER_DATA, else `mgformer` in the user's cache folder."""
    if home := os.environ.get("MGFORMER_DATA"):
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mgformer"


def local_form(name: str) -> Form | None:
    """Return the first form of a dataset whose files are all in the data home."""
    folder = data_home() / name
    for form in entry(name).forms:
        if all((folder / file).is_file() for file in form.files):
            return form
    return None


def is_present(name: str) -> bool:
    """Return whether a dataset can be read without a download; generated ones always can."""
    return not entry(name).forms or local_form(name) is not None
