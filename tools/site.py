"""What `mkdocs.yml` cannot say.

The home page is the README, the notebook is a page, and links to code become plain text. mkdocs
calls the functions of this module by their names.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HOME = "index.md"
NOTEBOOK = "guide/notebook.ipynb"
NOTEBOOK_PAGE = "guide/notebook.md"
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
IMAGE = re.compile(r'src="docs/')
STYLE = re.compile(r'<style>.*?</style>| border="1"| class="dataframe"', flags=re.DOTALL)
"""How tables of polars and pandas look elsewhere. Here they look like the tables of the site."""


def on_files(files: Any, config: Any) -> Any:
    """Add the README as the home page, and the notebook as a page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, HOME, content=(ROOT / "README.md").read_text()))
    notebook = json.loads((ROOT / "docs" / NOTEBOOK).read_text())
    files.append(File.generated(config, NOTEBOOK_PAGE, content=notebook_page(notebook)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with the links that the site can follow."""
    path = page.file.src_uri
    if path == NOTEBOOK_PAGE:
        return markdown
    folder = ROOT if path == HOME else (ROOT / "docs" / path).parent
    if path == HOME:
        markdown = IMAGE.sub('src="', markdown)
    return LINK.sub(lambda found: _link(found, folder, path), markdown)


def _link(found: re.Match[str], folder: Path, page: str) -> str:
    text, target, anchor = found[1], found[2], found[3] or ""
    place = (folder / target).resolve()
    docs = ROOT / "docs"
    if not place.is_relative_to(docs) or place.is_dir():
        return text  # a file of the repository that the site does not have
    if page == HOME:
        target = place.relative_to(docs).as_posix()
    if place == docs / NOTEBOOK:
        target = target.removesuffix(".ipynb") + ".md"
    return f"[{text}]({target}{anchor})"


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as Markdown: its text, its code, and what the code showed."""
    name = Path(NOTEBOOK).name
    title, *rest = [part for cell in notebook["cells"] for part in _parts(cell)]
    return "\n\n".join([title, f"[Download the notebook]({name})", *rest])


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "text/html" in data:
            # Markdown takes HTML as it is up to the first empty line.
            yield re.sub(r"\n\s*\n", "\n", STYLE.sub("", "".join(data["text/html"])))
        else:
            yield f"```text\n{''.join(data['text/plain'])}\n```"
