"""mgformer init: a commented config to start from."""

from pathlib import Path

from typer import Argument, Option

from mgformer.cli.console import out, print_json, working
from mgformer.cli.options import AsJson, data_options, settings_option


def command(
    data: str = Argument(help="A file, a folder, or a catalog name."),
    path: Path = Option(Path("run.toml"), "--out", help="The file to write; it must not exist."),
    settings: list[str] = settings_option("Set an option for reading, such as data.user=NAME"),
    as_json: AsJson = False,
) -> None:
    """Write a commented config to start from, for a file of yours.

    Train with it: mgformer train --config run.toml
    """
    from mgformer.data.dataset import open_dataset
    from mgformer.errors import ConfigError
    from mgformer.files import make_folder, write_text
    from mgformer.runs.template import template

    if path.exists():
        raise ConfigError(f"{path}: exists already; choose another --out, or remove it")
    options = data_options(settings)
    with working():
        dataset = open_dataset(data, options)
    make_folder(path.parent)
    write_text(path, template(data, options, dataset, path))
    if as_json:
        print_json({"config": str(path), "dataset": data})
    else:
        out.print(f"written: {path}; read it, and then: mgformer train --config {path}")
