"""Parameters that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mgformer.data import DEFAULT_DATASET
from mgformer.models import AUTO
from mgformer.signatures import read_key

if TYPE_CHECKING:
    from mgformer.data.options import DataConfig


def place(help: str, default: str) -> Any:
    """Return the option --out of a command that chooses a place if the user names none."""
    return Option(None, "--out", help=help, show_default=default)


def settings_option(help: str) -> Any:
    """Return the option --set."""
    return Option([], "--set", metavar="SECTION.OPTION=VALUE", help=f"{help}; can be repeated.")


def data_options(settings: Sequence[str]) -> "DataConfig":
    """Return the options for reading that --set names; others have no use here."""
    from mgformer.errors import ConfigError
    from mgformer.runs.config import build_data_config, with_settings

    raw = with_settings({}, settings)
    for section in raw:
        if section != "data" or not isinstance(raw[section], dict):
            raise ConfigError(
                f"--set {section}: expected options for reading, such as --set data.user=NAME"
            )
    return build_data_config(raw.get("data", {}), "--set")


def hashed(users: Sequence[str], key: Path | None) -> list[str]:
    """Return the ids by which users are stored: their hashes if a key is given."""
    if key is None:
        return list(users)
    from mgformer.data import hashed_ids

    secret = hashed_ids.read_key(key)
    return [hashed_ids.hash_id(user, secret) for user in users]


def ids_in(file: Path, kind: str) -> list[str]:
    """Return the ids of a file that has one in each line."""
    from mgformer.errors import DataError

    expected = f"expected one {kind} id per line"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}); {expected}") from None
    except UnicodeDecodeError:
        raise DataError(f"{file}: cannot be read as UTF-8 text; {expected}") from None
    listed = [line.strip() for line in lines if line.strip()]
    if not listed:
        raise DataError(f"{file}: empty, {expected}")
    return listed


MODELS = "A name that `mgformer models` lists, or package.module:Class."
OUTSIDE = "The model of the run, if it is from outside: package.module:Class is imported."
DATA = "A file, a folder, or a catalog name."
DEVICE = "Where to compute: auto, cpu, cuda, cuda:1 or mps. auto takes a GPU if there is one."
Device = Annotated[str | None, Option("--device", help=DEVICE, show_default="auto")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object.")]
RunFolder = Annotated[Path, Argument(help="Folder of a trained recommender.")]
Data = Annotated[str | None, Argument(help=DATA, show_default=DEFAULT_DATASET)]
ModelName = Annotated[str | None, Option("--model", help=MODELS)]
AUTO_OR_MODEL = f"{MODELS} {AUTO} tries several and takes the best on validation."
AutoOrModel = Annotated[str | None, Option("--model", help=AUTO_OR_MODEL, show_default=AUTO)]
OutsideModel = Annotated[str | None, Option("--model", help=OUTSIDE)]
ID_KEY = "Key file of a recommender with hashed user ids: users are named by their original ids."
IdKey = Annotated[Path | None, Option("--id-key", help=ID_KEY)]
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
    """Return the signature key in a file; None if there is no file."""
    return None if file is None else read_key(file)
