"""Parameters that several commands share."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from mgformer.data import DEFAULT_DATASET
from mgformer.models import DEFAULT_MODEL
from mgformer.signatures import read_key


def place(help: str, default: str) -> Any:
    """Return the option --out of a command that chooses a place if the user names none."""
    return Option(None, "--out", help=help, show_default=default)


def settings_option(help: str) -> Any:
    """Return the option --set."""
    return Option([], "--set", metavar="SECTION.OPTION=VALUE", help=f"{help}; can be repeated.")


MODELS = "A name that `mgformer models` lists, or package.module:Class."
OUTSIDE = "The model of the run, if it is from outside: package.module:Class is imported."
DATA = "A file, a folder, or a catalog name."
AsJson = Annotated[bool, Option("--json", help="Print one JSON object.")]
RunFolder = Annotated[Path, Argument(help="Folder of a trained recommender.")]
Data = Annotated[str | None, Argument(help=DATA, show_default=DEFAULT_DATASET)]
ModelName = Annotated[str | None, Option("--model", help=MODELS, show_default=DEFAULT_MODEL)]
OutsideModel = Annotated[str | None, Option("--model", help=OUTSIDE)]
Sign = Annotated[
    Path | None,
    Option("--sign", metavar="KEYFILE", help="Sign the bundle with the key in this file."),
]
Signed = Annotated[
    Path | None,
    Option(
        "--require-signature",
        metavar="KEYFILE",
        help="Refuse a bundle that is not signed with the key in this file.",
    ),
]


def key_in(file: Path | None) -> bytes | None:
    """Return the key in a key file; None if there is no file."""
    return None if file is None else read_key(file)
