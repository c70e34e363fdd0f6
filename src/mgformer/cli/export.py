"""mgformer export: a trained recommender in forms that other programs read."""

from pathlib import Path

import typer

from mgformer.cli.console import out, print_json, working
from mgformer.errors import ConfigError
from mgformer.recommend.export import FORMS, export
from mgformer.runs.bundle_files import load_bundle


def command(
    run: Path = typer.Argument(help="Folder of a trained recommender."),
    form: str = typer.Option("parquet", "--format", help=f"One of {', '.join(FORMS)}."),
    target: Path | None = typer.Option(None, "--out", help="Folder.", show_default="RUN/export"),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Write vectors with ids, a search index, the fold-in of new users, or a model card."""
    if form not in FORMS:
        raise ConfigError(f"--format {form}: expected one of {', '.join(FORMS)}")
    with working():
        folder = target or run / "export"
        done = export(load_bundle(run), form, folder)
    if as_json:
        print_json({"folder": str(folder), **done})
        return
    for file in done.pop("files"):
        out.print(f"{folder / file}", markup=False)
    for name, value in done.items():
        out.print(f"{name.replace('_', ' ')}: {value:.4g}")
