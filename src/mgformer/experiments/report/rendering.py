r"""A report as one HTML file that needs nothing else: no network, no other file.

Whatever comes from the data is escaped: by the template, and in the figures' JSON, where < > & are
written as \u escapes. A policy in the page forbids it to load anything, and to run any script but
the two that are named by their checksums.
"""

import base64
import hashlib
from importlib.resources import files

import plotly.io
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from mgformer.experiments.report.blocks import Page
from mgformer.version import __version__

PACKAGE = "mgformer.experiments.report"


def render(page: Page) -> str:
    """Return the HTML of a report."""
    environment = Environment(
        loader=PackageLoader(PACKAGE, "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_function"] = plotly.io.to_json
    environment.policies["json.dumps_kwargs"] = {}
    scripts = [get_plotlyjs(), _own("report.js")]
    return environment.get_template("report.html.j2").render(
        page=page,
        style=_own("report.css"),
        scripts=scripts,
        hashes=[_checksum(script) for script in scripts],
        version=__version__,
    )


def _own(name: str) -> str:
    return (files(PACKAGE) / "page" / name).read_text(encoding="utf-8")


def _checksum(script: str) -> str:
    """Return the checksum by which a content security policy names a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
