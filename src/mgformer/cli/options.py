"""Parameters that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from mgformer.data import DEFAULT_DATASET
from mgformer.models import DEFAULT_MODEL

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder of a trained recommender.")]
Data = Annotated[
    str | None,
    typer.Argument(help="A file, a folder, or a catalog name.", show_default=DEFAULT_DATASET),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A name that `mgformer models` lists, or package.module:Class.",
        show_default=DEFAULT_MODEL,
    ),
]
OutsideModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="The model of the run, if it is from outside: package.module:Class is imported.",
    ),
]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file that describes the run.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="SECTION.OPTION=VALUE", help="Set any option; can be repeated."),
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the split and of the model.", show_default="0")
]
