"""Open any dataset: a name of the catalog, a file, or a folder.

Different datasets share a name (Yelp2018, Gowalla, Beauty). So the catalog knows the counts of each
dataset, and refuses files with other counts.
"""

from dataclasses import replace
from pathlib import Path

from mgformer.data.dataset import Dataset, read_dataset
from mgformer.data.demo import demo_dataset
from mgformer.data.entries import CATALOG, entry
from mgformer.data.home import data_home, local_form
from mgformer.data.item_names import read_item_names
from mgformer.data.options import DataConfig
from mgformer.errors import DataError, did_you_mean


def open_dataset(source: str | Path, options: DataConfig | None = None) -> Dataset:
    """Read a dataset given as a catalog name, a file, or a folder.

    A catalog name takes precedence over a file of the same name; write `./demo` for the file. (A
    `Path` drops the dot: pass a string or an absolute path.)
    """
    text = str(source)
    if text in CATALOG:
        return load(text, options)
    path = Path(source)
    if not path.exists():
        raise DataError(
            f"no dataset {text!r}: got neither a file, a folder, nor one of {', '.join(CATALOG)}"
            f"{did_you_mean(text, CATALOG)}"
        )
    return read_dataset(path, options)


def load(name: str, options: DataConfig | None = None) -> Dataset:
    """Read a dataset of the catalog from the data home.

    `options` override those of the catalog. Without `options`, the counts of users, items and
    interactions must be those of the catalog.
    """
    options = options or DataConfig()
    folder = data_home() / name
    if not entry(name).forms:
        dataset = demo_dataset(options)
    elif form := local_form(name):
        chosen = {**form.options, **options.model_dump(exclude_defaults=True)}
        dataset = read_dataset(folder / form.interactions, DataConfig.model_validate(chosen), name)
        if form.item_names and options.item_names is None:
            file, sep = form.item_names
            names = read_item_names(folder / file, dataset.interactions.items, sep)
            dataset = replace(dataset, item_names=names)
    else:
        raise DataError(f"{name} is not in {folder}; run: mgformer datasets fetch {name}")
    if options == DataConfig():
        _check_counts(name, dataset, folder)
    return dataset


def _check_counts(name: str, dataset: Dataset, folder: Path) -> None:
    known, pairs = entry(name), dataset.interactions
    got = (pairs.num_users, pairs.num_items, len(pairs))
    expected = (known.num_users, known.num_items, known.num_interactions)
    if got != expected:
        shape = "{:,} users × {:,} items, {:,} interactions"
        raise DataError(
            f"{folder}: got {shape.format(*got)}, expected {shape.format(*expected)} for {name}; "
            "different datasets share this name: "
            f"move these files away and run mgformer datasets fetch {name}"
        )
