"""Write the figures of `results/` into the documents.

    python -m tools.render [--check]

A document marks where figures go: `<!-- NAME: begin -->` and `<!-- NAME: end -->`. The text between
the marks is generated; what stood there is thrown away, not read. Everything else in a document is
written by hand. Pictures in docs/figures are generated whole. With --check nothing is written, and
the command fails if a file is out of date.
"""

import argparse
import re
import sys
from pathlib import Path

from tools.blocks import BLOCKS, FIGURES
from tools.store import ROOT

BLOCK = re.compile(r"(<!-- ([\w-]+): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)


def main() -> None:
    """Write the files that changed, or name those that are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if out of date")
    check = parser.parse_args().check
    stale = out_of_date()
    for path, text in stale.items():
        print(f"{'out of date' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.exit("run: python -m tools.render")


def out_of_date() -> dict[Path, str]:
    """Return the files that results/ has newer figures for, with their new text."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    rendered = {path: render(path.read_text(encoding="utf-8")) for path in documents}
    for name, draw in FIGURES.items():
        rendered[ROOT / "docs" / "figures" / name] = draw()
    return {
        path: text
        for path, text in rendered.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def render(text: str) -> str:
    """Return a document with its generated blocks made anew."""

    def fresh(match: re.Match[str]) -> str:
        name = match[2]
        if name not in BLOCKS:
            raise KeyError(f"no block {name!r}; expected one of {', '.join(BLOCKS)}")
        return f"{match[1]}{BLOCKS[name]()}{match[3]}"

    return BLOCK.sub(fresh, text)


if __name__ == "__main__":
    main()
