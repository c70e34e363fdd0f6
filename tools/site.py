"""What `mkdocs.yml` cannot say: the home page is the README, and links to code become plain text.

mkdocs calls the functions of this module by their names.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HOME = "index.md"
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
IMAGE = re.compile(r'src="docs/')


def on_files(files: Any, config: Any) -> Any:
    """Add the README as the home page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, HOME, content=(ROOT / "README.md").read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with the links that the site can follow."""
    path = page.file.src_uri
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
        return f"[{text}]({place.relative_to(docs).as_posix()}{anchor})"
    return found[0]
