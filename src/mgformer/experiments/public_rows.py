"""The public splits of gowalla and yelp2018: every model with and without the order of the file.

The parts that LightGCN published are chronological: the test is each user's latest fifth. So each
model is trained in three ways:

    order       validation is the last fifth of each user's training items, and scores use the order
    no-order    the same validation, but scores do not use the order
    random      validation is a random tenth, as in most papers; only its validation figure is used

The first two are trained again on all training items before the test. The third shows how well a
random validation ranks models: its figures are compared with the test figures of the second.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from scipy.stats import spearmanr

from mgformer.errors import ConfigError
from mgformer.experiments import paper_rows
from mgformer.experiments.paper_rows import Row
from mgformer.experiments.summary import Summary
from mgformer.experiments.tables import NDCG, NOTHING, RECALL, Table, p_text
from mgformer.runs.config import build_config

DATASETS = ("gowalla", "yelp2018")
MODELS = (
    *(name for name in paper_rows.SIMPLE if name != "ials"),
    "lightgcn", "simgcl-onepass", "directau", "mgformer", "guided",
)  # fmt: skip
"""Presets: the simple models, LightGCN, XSimGCL, DirectAU and both transformers."""
FEWEST_MODELS = 3
"""A rank correlation of fewer models says nothing."""


class Way(NamedTuple):
    """How a model is validated, and whether it knows the order."""

    split: dict[str, Any]
    time: str


WAYS = {
    "order": Way({"kind": "given", "valid_kind": "last"}, "auto"),
    "no-order": Way({"kind": "given", "valid_kind": "last"}, "off"),
    "random": Way({"kind": "given", "valid_kind": "random", "valid": 0.1, "refit": False}, "off"),
}


def public_rows(dataset: str, only: Collection[str] = ()) -> list[Row]:
    """Return three rows for each model, or for some of them."""
    if dataset not in DATASETS:
        raise ConfigError(f"public: expected one of {', '.join(DATASETS)}, got {dataset!r}")
    return [
        Row(
            f"{model}-{way}",
            f"{model}-{way}",
            build_config(_run(dataset, model, *WAYS[way]), model),
            against=f"{model}-no-order",
        )
        for model in paper_rows.in_order(only, MODELS, "model")
        for way in WAYS
    ]


def _run(dataset: str, model: str, split: dict[str, Any], time: str) -> dict[str, Any]:
    """Return the run of a model with the options of its preset; Beauty's is the last resort."""
    choices = (
        paper_rows.preset(dataset, f"{model}-lightgcn"),
        paper_rows.preset(dataset, model),
        paper_rows.preset("yelp2018", model),
        paper_rows.preset(paper_rows.REFERENCE, model),
    )
    raw = next(preset for preset in choices if preset is not None)
    score = {**raw.get("score", {}), "time": time}
    return {**raw, "dataset": dataset, "split": split, "score": score}


def public_table(found: Mapping[str, Summary], p_values: Mapping[str, float]) -> Table:
    """Return a line for each model, with the figures of the three ways."""
    lines = []
    for model in MODELS:
        ways = {way: found.get(f"{model}-{way}") for way in WAYS}
        if not any(ways.values()):
            continue
        order, no_order, random = ways.values()
        p = p_values.get(f"{model}-order")
        lines.append(
            [
                model,
                _both(order),
                _both(no_order),
                NOTHING if p is None else p_text(p),
                *(_validation(way) for way in (order, no_order, random)),
            ]
        )
    columns = [
        "", "with order, Recall@20 / NDCG@20", "without", "p (NDCG@20)",
        "validation NDCG@20: last fifth, with order", "without", "random tenth",
    ]  # fmt: skip
    return Table(columns, lines)


def agreement(found: Mapping[str, Summary]) -> str:
    """Say how well either validation ranks the models as the test does."""
    known = [m for m in MODELS if {f"{m}-no-order", f"{m}-random"} <= {*found}]
    if len(known) < FEWEST_MODELS:
        return ""
    tests = [found[f"{model}-no-order"].test[NDCG].mean for model in known]
    ranks = {
        name: spearmanr([found[f"{m}-{way}"].valid[NDCG].mean for m in known], tests).statistic
        for way, name in (("no-order", "last fifth"), ("random", "random tenth"))
    }
    said = ", ".join(f"{name} {value:.3f}" for name, value in ranks.items())
    return (
        f"Rank correlation (Spearman) between validation and test over {len(known)} models without"
        f" order: {said}.\n"
    )


def _both(row: Summary | None) -> str:
    return NOTHING if row is None else f"{row.test[RECALL].mean:.4f} / {row.test[NDCG].mean:.4f}"


def _validation(row: Summary | None) -> str:
    return NOTHING if row is None else f"{row.valid[NDCG].mean:.4f}"
