"""What a trained recommender shows of itself in Python and in a notebook."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import polars as pl

from mgformer.runs.bundle import Bundle
from mgformer.runs.record import Figures, Record

PARTS = ("test", "popularity", "validation")
FIRST = ("recall@20", "ndcg@20", "hitrate@20", "coverage@20")
"""Metrics that a recommender shows of itself, if they were measured."""
NOTHING_MEASURED = "nothing was measured: no user has held-out items"


class Metrics(Mapping[str, Figures]):
    """The figures of a run: `metrics["test"]["ndcg@20"]`.

    `test` is the model on held-out items, `popularity` the most popular items there, and
    `validation` the model on the items by which its options were chosen.
    """

    def __init__(self, record: Record) -> None:
        figures = record.test, record.popularity, record.valid
        self._parts = dict(zip(PARTS, figures, strict=True))

    def __getitem__(self, part: str) -> Figures:
        return self._parts[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def names(self) -> list[str]:
        """The metrics that were measured."""
        return list(dict.fromkeys(name for figures in self.values() for name in figures))

    def table(self) -> pl.DataFrame:
        """Return a row for each metric: metric, test, popularity, validation."""
        columns = {
            part: pl.Series([figures.get(name) for name in self.names], dtype=pl.Float64)
            for part, figures in self.items()
        }
        return pl.DataFrame({"metric": pl.Series(self.names, dtype=pl.String), **columns})

    def rows(self, names: Sequence[str] | None = None) -> list[tuple[str, ...]]:
        """Return a line of text for each metric: its name, and its figure in each part."""
        return [
            (name, *(f"{part[name]:.4f}" if name in part else "–" for part in self.values()))
            for name in (self.names if names is None else names)
        ]

    def __repr__(self) -> str:
        if not self.names:
            return NOTHING_MEASURED
        rows = [("metric", *PARTS), *self.rows()]
        name_width, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
        return "\n".join(
            "  ".join([name.ljust(name_width), *map(str.rjust, figures, widths)])
            for name, *figures in rows
        )

    def _repr_html_(self) -> str:
        return html_figures(self.rows())


def html_figures(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of metrics for a notebook."""
    if not rows:
        return f"<p>{NOTHING_MEASURED}</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in ("metric", *PARTS))
    lines = ("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def one_line(bundle: Bundle) -> str:
    """Describe a recommender in one line: model, data, sizes, and its main figure."""
    record = bundle.record
    sizes = f"{len(bundle.users):,} users, {len(bundle.items):,} items"
    main = next((name for name in ("ndcg@20", *record.test) if name in record.test), None)
    quality = f", {main} {record.test[main]:.4f}" if main else ""
    if main and main in record.popularity:
        quality += f" (popularity {record.popularity[main]:.4f})"
    return f"Recommender({record.model} on {record.dataset}: {sizes}{quality})"


def html_card(bundle: Bundle) -> str:
    """Describe a recommender for a notebook: model, data, sizes, figures beside popularity."""
    record, metrics = bundle.record, Metrics(bundle.record)
    sizes = {"users": len(bundle.users), "items": len(bundle.items)}
    if record.histories:
        sizes["pairs"] = len(bundle.all_pairs)
    counts = ", ".join(f"{count:,} {what}" for what, count in sizes.items())
    first = [name for name in FIRST if name in metrics.names] or metrics.names[:4]
    return (
        f"<div><strong>{escape(record.model)}</strong> on {escape(record.dataset)}: {counts}"
        f"<br><small>{escape(record.protocol)}</small>{html_figures(metrics.rows(first))}</div>"
    )
