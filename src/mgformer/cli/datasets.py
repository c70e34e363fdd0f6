"""mgformer datasets: what the catalog has, what is in a dataset, and how to get it."""

from typer import Argument

from mgformer.cli.console import fail, out, print_json, print_table, working
from mgformer.cli.dataset_view import text
from mgformer.cli.options import AsJson, data_options, settings_option
from mgformer.data.entries import CATALOG, CatalogEntry, data_home, is_present

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
    print_table(columns, [[text(row[column]) for column in columns] for row in rows])
    out.print(f"data home: {data_home()} (set MGFORMER_DATA to change it)", style="dim")


def show(
    name: str = Argument(help="A catalog name, a file or a folder."),
    settings: list[str] = settings_option("Set an option for reading, such as data.user=NAME"),
    as_json: AsJson = False,
) -> None:
    """Show what is in a dataset: columns, first rows, ranges, counts and fingerprint."""
    from mgformer.cli import dataset_facts, dataset_view
    from mgformer.data import download

    options = data_options(settings)
    facts: dict[str, object] = {"dataset": name}
    problem = None
    entry = CATALOG.get(name)
    if entry and not is_present(name):
        absent = f"no; get it with: mgformer datasets fetch {name}"
        facts |= {**_counts(entry), "fingerprint": None, "present": absent}
    else:
        with working():
            found, problem = dataset_facts.facts_of(name, options)
            facts |= found
            if entry and problem is None:
                facts["checksums"] = download.verify(name)
    if entry:
        facts |= {
            about: getattr(entry, about) for about in ("title", "source", "licence", "citation")
        }
    if as_json:
        print_json(facts)
    else:
        dataset_view.show_facts(facts)
    if problem is not None:
        fail(problem)


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
