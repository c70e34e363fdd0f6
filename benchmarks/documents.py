"""Documents whose figures are generated: a block between two markers is replaced, nothing else."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


def write_block(document: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name: begin -->` and `<!-- name: end -->`."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = document.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{document}: no {begin} … {end} to write into")
    document.write_text(f"{before}{begin}\n{text}{end}{after}")
