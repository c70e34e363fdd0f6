"""Reports: one run, or all runs below a folder, as one HTML file that opens anywhere."""

import os
from pathlib import Path
from typing import NamedTuple

from mgformer.errors import BundleError, ConfigError
from mgformer.progress import phase

NAME = "report.html"


class Written(NamedTuple):
    """A report on disk."""

    path: Path
    runs: int
    """How many runs it is about."""


def write_report(folder: Path, target: Path | None = None) -> Written:
    """Write the report on the run in a folder, or on all runs below it, whole or not at all.

    Args:
        folder: With a run in it, or with runs somewhere below.
        target: The file; `report.html` in the folder, if not given.
    """
    try:
        import jinja2  # noqa: F401 -- what is missing is said before any work is done
        import plotly  # noqa: F401
    except ImportError:
        raise ConfigError("a report needs an extra: pip install 'mgformer[report]'") from None
    from mgformer.experiments.report.many_runs import folder_page
    from mgformer.experiments.report.one_run import run_page
    from mgformer.experiments.report.rendering import render
    from mgformer.runs.folder import is_run, read_run, runs_below

    if not folder.is_dir():
        raise BundleError(f"{folder}: no such folder; give that of a run, or of several")
    target = target or folder / NAME
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise ConfigError(
            f"{target}: a file cannot be written there; choose another --out, such as ./{NAME}"
        )
    if is_run(folder):
        page, count = run_page(read_run(folder)), 1
    else:
        found = runs_below(folder)
        page, count = folder_page(found, folder), len(found.runs)
    with phase("writing", None):
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            draft.write_text(render(page), encoding="utf-8")
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    return Written(target, count)
