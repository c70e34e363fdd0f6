"""Documents whose figures are generated from run folders, and never typed.

    python -m benchmarks.documents [--runs runs/reproduce] [--more-seeds runs/more-seeds]

writes the tables of the runs that are there: those of MGFormer's variants into docs/method.md,
those of the paper's models and of item groups into docs/results.md, and the main one of these, in
short, into the README. The two best models have more seeds in a folder of their own, so that all
rows of a table have the same.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mgformer.experiments.reproduce import plan, write
from mgformer.experiments.tables import Table

ROOT = Path(__file__).parent.parent
DATASETS = ("amazon-beauty", "yelp2018", "gowalla", "alibaba")
TWO_BEST = ("directau", "mgformer")
IN_SHORT = ("itemknn", "ials", "ease", *(name for name in plan.PUBLISHED if name != "ultragcn"))
"""Rows of the README: the best simple models and those of the paper."""


def main() -> None:
    """Write all blocks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--more-seeds", type=Path, default=Path("runs/more-seeds"))
    options = parser.parse_args()
    runs = options.runs
    write_block(ROOT / "docs" / "method.md", "table3", table3(plan.REFERENCE, runs))
    write_block(
        ROOT / "docs" / "results.md", "table2", "\n".join(map(table2, DATASETS, [runs] * 4))
    )
    more = two_best(plan.REFERENCE, options.more_seeds)
    write_block(ROOT / "docs" / "results.md", "more-seeds", more)
    write_block(ROOT / "README.md", "table2", in_short(plan.REFERENCE, runs))


def table3(dataset: str, runs: Path) -> str:
    """Return table 3 of a dataset, as far as there are runs."""
    rows = plan.table3_rows(dataset)
    return quality(rows, runs / dataset, f"mgformer reproduce table3 --dataset {dataset}")


def two_best(dataset: str, runs: Path) -> str:
    """Return their rows of table 2, as far as there are runs."""
    only = " ".join(f"--only {name}" for name in TWO_BEST)
    command = f"mgformer reproduce table2 --dataset {dataset} {only} --seeds 5 --out {runs}"
    return quality(plan.table2_rows(dataset, TWO_BEST), runs / dataset, command)


def quality(rows: Sequence[plan.Row], runs: Path, command: str) -> str:
    """Return a table of quality, as far as there are runs, and how it came about."""
    found = plan.find_all(rows, runs)
    if not found:
        return "Not run yet.\n"
    table = write.quality_table(rows, found).markdown()
    return f"{table}\n{write.provenance(rows, found, command)}"


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
