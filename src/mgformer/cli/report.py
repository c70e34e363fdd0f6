"""mgformer report: one run, or all runs below a folder, as one HTML file."""

from pathlib import Path

from typer import Argument

from mgformer.cli.console import out, print_json, working
from mgformer.cli.options import AsJson, OutsideModel, place


def command(
    folder: Path = Argument(metavar="RUN|FOLDER", help="Folder of a run, or of several runs."),
    target: Path | None = place("File to write.", "report.html in the folder"),
    model: OutsideModel = None,
    as_json: AsJson = False,
) -> None:
    """Write a run, or several runs side by side, as one HTML file.

    The file needs no network. It shows learning curves, metrics, popular and unpopular items, new
    and old ones, the cost of diversity, the inside of the model, a map of the items, examples and
    the config.
    """
    from mgformer.experiments.report import write_report
    from mgformer.models import import_model

    if model is not None:
        import_model(model)  # it can show its inside
    with working():
        written = write_report(folder, target)
    if as_json:
        size = written.path.stat().st_size
        print_json({"report": str(written.path), "runs": written.num_runs, "bytes": size})
    else:
        out.print(f"{written.path}")
