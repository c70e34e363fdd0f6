import re
from xml.etree import ElementTree

from rich.text import Text
from tools.terminal import COMMANDS, TARGET, picture


def text_of(drawn: str) -> str:
    words = ElementTree.fromstring(drawn).itertext()
    return " ".join("".join(words).replace("\xa0", " ").split())


def test_a_picture_shows_the_text_and_loads_nothing() -> None:
    drawn = picture(Text("$ mgformer --help\nUsage: <a> & b"))
    assert "$ mgformer --help" in text_of(drawn)
    assert "Usage: <a> & b" in text_of(drawn)
    assert not re.search(r"url\((?!#)|src:|href", drawn)


def test_the_picture_of_the_readme_has_the_commands() -> None:
    shown = text_of(TARGET.read_text(encoding="utf-8"))
    assert all(command in shown for command in COMMANDS)
