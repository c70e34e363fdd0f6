"""Documents whose figures are generated from run folders, and never typed.

    python -m benchmarks.documents [--runs runs/reproduce] [--more-seeds runs/more-seeds]

writes the tables of the runs that are there: those of MGFormer's variants into docs/method.md,
those of the paper's models and of item groups into docs/results.md, and the main one of these, in
short, into the README. The two best models have more seeds in a folder of their own, so that all
rows of a table have the same.

Run folders are large and are not kept for ever. A row whose runs are gone stays as it was generated
from them, but for its test against a row whose runs are new and have other figures.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from mgformer.experiments.reproduce import plan, write
from mgformer.experiments.tables import NOTHING, Table, p_shown, paired_tests
from mgformer.runs.folder import Run

ROOT = Path(__file__).parent.parent
DATASETS = ("amazon-beauty", "yelp2018", "gowalla", "alibaba")
MORE_SEEDS = Path("runs/more-seeds")
TWO_BEST = ("directau", "mgformer")
COMMIT = re.compile(r"(?<!-)\b[0-9a-f]{12}(?:-dirty)?\b")
IN_SHORT = ("itemknn", "ials", "ease", *(name for name in plan.PUBLISHED if name != "ultragcn"))
"""Rows of the README: the best simple models and those of the paper."""


def main() -> None:
    """Write all blocks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--more-seeds", type=Path, default=MORE_SEEDS)
    options = parser.parse_args()
    runs = options.runs
    method, results, readme = (
        ROOT / name for name in ("docs/method.md", "docs/results.md", "README.md")
    )
    rows, command = plan.table3_rows(plan.REFERENCE), f"table3 --dataset {plan.REFERENCE}"
    update(method, "table3", rows, runs / plan.REFERENCE, command)
    for dataset in DATASETS:
        rows, command = plan.table2_rows(dataset), f"table2 --dataset {dataset}"
        update(results, f"table2-{dataset}", rows, runs / dataset, command, with_groups=True)
    rows = plan.table2_rows(plan.REFERENCE, TWO_BEST)
    only = " ".join(f"--only {name}" for name in TWO_BEST)
    command = f"table2 --dataset {plan.REFERENCE} {only} --seeds 5 --out {MORE_SEEDS}"
    update(results, "more-seeds", rows, options.more_seeds / plan.REFERENCE, command, tested=True)
    in_short(readme, plan.table2_rows(plan.REFERENCE, IN_SHORT), runs / plan.REFERENCE)


def update(
    document: Path,
    block: str,
    rows: Sequence[plan.Row],
    runs: Path,
    command: str,
    *,
    with_groups: bool = False,
    tested: bool = False,
) -> None:
    """Write the tables of the runs that are there into a block; without any it stays as it is."""
    found = plan.find_all(rows, runs)
    if not found:
        return
    before = read_block(document, block)
    tables = [with_earlier(write.quality_table(rows, found), before, rows)]
    if with_groups:
        tables.append(with_earlier(write.group_table(found), before, rows))
    how = write.provenance(rows, found, f"mgformer reproduce {command}")
    earlier = [line[0] for line in tables[0].rows if line[0] not in found]
    if earlier:
        commits = ", ".join(sorted({*COMMIT.findall(before)} - {*COMMIT.findall(how)}))
        how += f"Of earlier runs, by commits among {commits}: {', '.join(earlier)}.\n"
    if tested and found.keys() >= {*TWO_BEST}:
        how += both_metrics(*(found[name] for name in TWO_BEST))
    write_block(document, block, "\n".join([*(table.markdown() for table in tables), how]))


def both_metrics(theirs: Sequence[Run], ours: Sequence[Run]) -> str:
    """Say how far two models are apart, and whether by more than chance, in all metrics."""
    tests = paired_tests([run.per_user for run in ours], [run.per_user for run in theirs])
    said = "; ".join(
        f"{name} {test.difference:+.5f}, p = {p_shown(test.p_value)}, {test.num_users:,} users"
        for name, test in tests.items()
    )
    return f"{TWO_BEST[1]} less {TWO_BEST[0]}: {said}.\n"


def in_short(document: Path, rows: Sequence[plan.Row], runs: Path) -> None:
    """Write the first columns of table 2, for the rows that everybody asks about."""
    found = plan.find_all(rows, runs)
    if found:
        whole = write.quality_table(rows, found)
        table = Table(whole.columns[:4], [line[:4] for line in whole.rows])
        table = with_earlier(table, read_block(document, "table2"), rows)
        write_block(document, "table2", table.markdown())


def with_earlier(table: Table, written: str, rows: Sequence[plan.Row]) -> Table:
    """Return the table with the rows that were written before and have no runs now.

    Args:
        table: What was made of the runs that are there.
        written: What stands in the document.
        rows: The lines of the table, in order.
    """
    lines = {line[0]: line for line in table.rows}
    fresh = set(lines)
    earlier = parsed(written, len(table.columns))
    for row in rows:
        if row.name in earlier and row.name not in fresh:
            line = lines[row.name] = earlier[row.name]
            changed = (
                row.against in fresh and lines[row.against][:4] != earlier.get(row.against, [])[:4]
            )
            if write.P_VALUE in table.columns and changed:
                line[table.columns.index(write.P_VALUE)] = NOTHING
    return Table(table.columns, [lines[row.name] for row in rows if row.name in lines])


def parsed(markdown: str, width: int) -> dict[str, list[str]]:
    """Return the cells of the tables of a document that have so many columns, by the first."""
    lines = (
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in markdown.splitlines()
        if line.startswith("|")
    )
    return {cells[0]: cells for cells in lines if len(cells) == width}


def read_block(document: Path, name: str) -> str:
    """Return what stands between the marks of a block; nothing if there is none."""
    _, _, rest = document.read_text().partition(f"<!-- {name}: begin -->")
    return rest.partition(f"<!-- {name}: end -->")[0]


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
