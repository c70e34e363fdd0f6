"""Reports: one run, or all runs below a folder, as one HTML file that opens anywhere."""

import os
from pathlib import Path
from typing import NamedTuple

from mgformer.errors import BundleError, ConfigError
from mgformer.files import write_text
from mgformer.progress import phase

FILE_NAME = "report.html"


class Written(NamedTuple):
    """A report on disk."""

    path: Path
    num_runs: int


def write_report(folder: Path, target: Path | None = None) -> Written:
    """Write the report on the run in a folder, or on all runs below it.

    Args:
        folder: Holds a run, or runs somewhere below.
        target: The file to write; `report.html` in the folder if not given.
    """
    try:
        import jinja2  # noqa: F401 -- fail before any work is done
        import plotly  # noqa: F401
    except ImportError:
        raise ConfigError("a report needs an extra: pip install 'mgformer[report]'") from None
    from mgformer.experiments.report.comparison import comparison_page
    from mgformer.experiments.report.one_run import run_page
    from mgformer.runs.folder import is_run, read_run, runs_below

    if not folder.is_dir():
        raise BundleError(f"{folder}: no such folder; give the folder of a run or of several runs")
    target = target or folder / FILE_NAME
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise ConfigError(f"{target}: cannot write there; choose another --out, as ./{FILE_NAME}")
    if is_run(folder):
        page, num_runs = run_page(read_run(folder)), 1
    else:
        found = runs_below(folder)
        page, num_runs = comparison_page(found, folder), len(found.runs)
    with phase("writing", None):
        write_text(target, page)
    return Written(target, num_runs)
