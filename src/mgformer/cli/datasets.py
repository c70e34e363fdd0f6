"""mgformer datasets: what the catalog has, what is in a dataset, and how to get it."""

from typing import TYPE_CHECKING

from typer import Argument

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.options import AsJson
from mgformer.data.entries import CATALOG, CatalogEntry, data_home, is_present

if TYPE_CHECKING:
    from mgformer.data.dataset import Dataset

MOST_RANDOM = 1.5
"""Up to this dispersion, given parts count as a random split."""
COUNTS = ("users", "items", "interactions")


def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets of the catalog."""
    rows: list[dict[str, object]] = [
        {"dataset": name, "title": entry.title, **_counts(entry), "present": is_present(name)}
        for name, entry in CATALOG.items()
    ]
    if as_json:
        print_json({"home": str(data_home()), "datasets": rows})
        return
    columns = ["dataset", *COUNTS, "present"]
    print_table(columns, [[_text(row[column]) for column in columns] for row in rows])
    out.print(f"data home: {data_home()} (set MGFORMER_DATA to change it)", style="dim")


def show(
    name: str = Argument(help="A catalog name, a file or a folder."), as_json: AsJson = False
) -> None:
    """Read a dataset and show its counts and fingerprint."""
    from mgformer.data import download
    from mgformer.data.dataset import open_dataset

    facts: dict[str, object] = {"dataset": name}
    entry = CATALOG.get(name)
    if entry and not is_present(name):
        absent = f"no; get it with: mgformer datasets fetch {name}"
        facts |= {**_counts(entry), "fingerprint": None, "present": absent}
    else:
        with working():
            facts |= _facts(open_dataset(name))
            if entry:
                facts["checksums"] = download.verify(name)
    if entry:
        facts |= {
            about: getattr(entry, about) for about in ("title", "source", "licence", "citation")
        }
    if as_json:
        print_json(facts)
        return
    shown = {n: v for n, v in facts.items() if v not in ({}, None)}
    print_table(["", ""], [[n, _text(v)] for n, v in shown.items()], num_text=2)


def fetch(names: list[str] = Argument(help="Catalog names."), as_json: AsJson = False) -> None:
    """Download datasets into the data home. Continue after an interruption."""
    from mgformer.data import download

    with working():
        folders = {name: str(download.fetch(name)) for name in names}
    if as_json:
        print_json(folders)
    else:
        out.print("\n".join(f"{name}: {folder}" for name, folder in folders.items()))


SUBCOMMANDS = {"list": list_datasets, "show": show, "fetch": fetch}


def _counts(entry: CatalogEntry) -> dict[str, int]:
    return {count: getattr(entry, f"num_{count}") for count in COUNTS}


def _facts(dataset: "Dataset") -> dict[str, object]:
    pairs = dataset.interactions
    return {
        "dataset": dataset.name,
        "users": pairs.num_users,
        "items": pairs.num_items,
        "interactions": len(pairs),
        "duplicates": pairs.duplicates,
        "density": len(pairs) / (pairs.num_users * pairs.num_items),
        "order": _order(dataset),
        "names": dataset.item_names is not None,
        "parts": {part: len(p) for part, p in (dataset.parts or {}).items()},
        **_split_facts(dataset),
        "fingerprint": dataset.fingerprint,
    }


def _order(dataset: "Dataset") -> str:
    pairs = dataset.interactions
    if pairs.times is not None:
        return "by times"
    return "by rows of the file" if pairs.places is not None else "not known"


def _split_facts(dataset: "Dataset") -> dict[str, object]:
    """Return how unevenly items fall into the given test part, and what follows from it."""
    from mgformer.data.chronology import dispersion

    parts = dataset.parts or {}
    found = dispersion(parts["train"], parts["test"]) if {"train", "test"} <= set(parts) else None
    if found is None:
        return {}
    if found < MOST_RANDOM:
        advice = "as a random split has it: validate on random items, split.valid_kind=random"
    elif dataset.interactions.order is None:
        advice = "a random split has 1, so test is later than train: give the times or the order"
    else:
        advice = "a random split has 1, so test is later than train: validate on the last items"
    return {"dispersion": round(found, 1), "advice": advice}


def _text(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2%}" if value < 1 else f"{value:g}"
        case dict():
            return ", ".join(f"{part} {_text(fact)}" for part, fact in value.items())
        case None:
            return "not known"
    return str(value)
