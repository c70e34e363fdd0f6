r"""Rendering of a report as one HTML file that needs no network and no other file.

Text from the data is escaped: by the templates, and in the JSON of the charts, where < > & become
\u escapes. A content security policy forbids the page to load anything and to run any script but
its own two, which it names by their checksums.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import plotly.graph_objects as go
import plotly.io
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from mgformer.version import __version__

PACKAGE = "mgformer.experiments.report"
USER_METRICS = {
    "recall": "Recall",
    "ndcg": "NDCG",
    "precision": "Precision",
    "hitrate": "Hit rate",
    "mrr": "MRR",
    "map": "MAP",
    "capped_recall": "Capped recall",
}
LIST_METRICS = {"coverage": "Coverage", "gini": "Gini", "novelty": "Novelty"}
"""Metrics of all lists together."""


class Chart(NamedTuple):
    """A plotly figure."""

    title: str
    figure: go.Figure
    caption: str = ""
    wide: bool = False
    """Whether it takes the whole width of the page."""


class Ranked(NamedTuple):
    """One line of a ranking."""

    label: str
    detail: str
    share: float
    """Length of its bar, from 0 to 1."""
    mark: str = ""


class Ranking(NamedTuple):
    """A ranked list, with facts above it."""

    title: str
    ranked: Sequence[Ranked]
    facts: Mapping[str, str]


def metric_title(name: str) -> str:
    """Return the name of a metric as people write it."""
    metric, _, k = name.partition("@")
    return f"{USER_METRICS.get(metric, metric)}@{k}"


def figure(value: float | None) -> str:
    """Return a metric as text."""
    return "–" if value is None else f"{value:.4f}"


def render(template: str, **context: Any) -> str:
    """Return the HTML of a report."""
    environment = Environment(
        loader=PackageLoader(PACKAGE, "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    environment.policies["json.dumps_function"] = plotly.io.to_json
    environment.policies["json.dumps_kwargs"] = {}
    environment.filters["figure"] = figure
    environment.filters["metric_title"] = metric_title
    environment.filters["anchor"] = lambda title: "-".join(re.findall(r"\w+", title.lower()))
    scripts = [get_plotlyjs(), _read("report.js")]
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    return environment.get_template(template).render(
        **context,
        menu=[],
        style=_read("report.css"),
        scripts=scripts,
        hashes=[f"sha256-{base64.b64encode(digest).decode()}" for digest in digests],
        version=__version__,
    )


def _read(name: str) -> str:
    return (files(PACKAGE) / "page" / name).read_text(encoding="utf-8")
