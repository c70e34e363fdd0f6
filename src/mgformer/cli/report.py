"""mgformer report: a run, or all runs below a folder, as one HTML file."""

from pathlib import Path

import typer

from mgformer.cli.console import out, print_json, working
from mgformer.experiments.report import write_report


def command(
    folder: Path = typer.Argument(
        metavar="RUN|FOLDER", help="Folder of a run, or of several runs somewhere below it."
    ),
    target: Path | None = typer.Option(
        None, "--out", help="File to write.", show_default="report.html in the folder"
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Write what there is to see of a run, or of runs side by side, as one HTML file.

    It needs no network and no other file: learning curves, metrics, popular and unpopular items,
    what attention looks at, a map of the items, examples, the config.
    """
    with working():
        written = write_report(folder, target)
    if as_json:
        size = written.path.stat().st_size
        print_json({"report": str(written.path), "runs": written.runs, "bytes": size})
    else:
        out.print(f"{written.path}", markup=False)
