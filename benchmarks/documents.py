"""Documents whose figures are generated from run folders, and never typed.

    python -m benchmarks.documents [--runs runs/reproduce]

writes the tables of the runs that are there: those of MGFormer's variants into docs/method.md,
those of the paper's models and of item groups into docs/results.md, and the main one of these, in
short, into the README.
"""

import argparse
from pathlib import Path

from mgformer.experiments.reproduce import plan, write
from mgformer.experiments.tables import Table

ROOT = Path(__file__).parent.parent
DATASETS = ("amazon-beauty", "yelp2018", "gowalla", "alibaba")
IN_SHORT = ("itemknn", "ials", "ease", *(name for name in plan.PUBLISHED if name != "ultragcn"))
"""Rows of the README: the best simple models and those of the paper."""


def main() -> None:
    """Write all blocks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"))
    runs = parser.parse_args().runs
    write_block(ROOT / "docs" / "method.md", "table3", table3(plan.REFERENCE, runs))
    write_block(
        ROOT / "docs" / "results.md", "table2", "\n".join(map(table2, DATASETS, [runs] * 4))
    )
    write_block(ROOT / "README.md", "table2", in_short(plan.REFERENCE, runs))


def table3(dataset: str, runs: Path) -> str:
    """Return table 3 of a dataset, as far as there are runs."""
    rows = plan.table3_rows(dataset)
    found = plan.find_all(rows, runs / dataset)
    if not found:
        return "Not run yet.\n"
    how = write.provenance(rows, found, f"mgformer reproduce table3 --dataset {dataset}")
    return f"{write.quality_table(rows, found).markdown()}\n{how}"


def table2(dataset: str, runs: Path) -> str:
    """Return table 2 and figure 2 of a dataset, as far as there are runs."""
    rows = plan.table2_rows(dataset)
    found = plan.find_all(rows, runs / dataset)
    if not found:
        return ""
    table = write.quality_table(rows, found).markdown()
    groups = write.group_table(found).markdown()
    how = write.provenance(rows, found, f"mgformer reproduce table2 --dataset {dataset}")
    return f"### {dataset}\n\n{table}\n{groups}\n{how}"


def in_short(dataset: str, runs: Path) -> str:
    """Return the first columns of table 2 of a dataset, for the rows that everybody asks about."""
    rows = plan.table2_rows(dataset, IN_SHORT)
    whole = write.quality_table(rows, plan.find_all(rows, runs / dataset))
    return Table(whole.columns[:4], [line[:4] for line in whole.rows]).markdown()


def write_block(document: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name: begin -->` and `<!-- name: end -->`.

    A document that has no such block gets it at its end.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = document.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if found and not closed:
        raise ValueError(f"{document}: {begin} is not followed by {end}")
    if not found:
        before, after = f"{before.rstrip()}\n\n", "\n"
    document.write_text(f"{before}{begin}\n{text}{end}{after}")


if __name__ == "__main__":
    main()
