"""Models with and without the order of the interactions, on splits in which the test comes later.

The parts of gowalla and yelp2018 that LightGCN published are chronological: the test is each user's
latest fifth. Amazon Beauty and MovieLens are split at one moment in time. Each model is trained in
these ways:

    order       the defaults: scores use the order, and validation comes before the test in the
                same manner
    no-order    the same validation, but scores do not use the order
    random      public splits only: validation is a random tenth, as in most papers

The first two are trained again on train and validation before the test. The third shows how well a
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


PUBLIC = {
    "order": Way({"kind": "given"}, "auto"),
    "no-order": Way({"kind": "given"}, "off"),
    "random": Way({"kind": "given", "valid_kind": "random", "valid": 0.1, "refit": False}, "off"),
}
BY_TIME = {"order": Way({"kind": "time"}, "auto"), "no-order": Way({"kind": "time"}, "off")}
DATASETS = {
    "gowalla": PUBLIC, "yelp2018": PUBLIC, "amazon-beauty": BY_TIME, "ml-latest-small": BY_TIME,
}  # fmt: skip


def order_rows(dataset: str, only: Collection[str] = ()) -> list[Row]:
    """Return the rows of each model, or of some of them."""
    if dataset not in DATASETS:
        raise ConfigError(f"order: expected one of {', '.join(DATASETS)}, got {dataset!r}")
    return [
        Row(
            f"{model}-{name}",
            f"{model}-{name}",
            build_config(_run(dataset, model, *way), model),
            against=f"{model}-no-order",
        )
        for model in paper_rows.in_order(only, MODELS, "model")
        for name, way in DATASETS[dataset].items()
    ]


def split_of(dataset: str) -> str:
    """Return the kind of split that the rows of a dataset have."""
    kind: str = DATASETS[dataset]["order"].split["kind"]
    return kind


def _run(dataset: str, model: str, split: dict[str, Any], time: str) -> dict[str, Any]:
    """Return the run of a model with the options of the preset that fits best.

    MovieLens has no presets, and its data are much denser than the others': models take defaults.
    """
    choices = [
        paper_rows.preset(dataset, f"{model}-lightgcn") if split["kind"] == "given" else None,
        paper_rows.preset(dataset, model),
    ]
    if dataset != "ml-latest-small":
        choices += [paper_rows.preset(other, model) for other in ("yelp2018", paper_rows.REFERENCE)]
    name, _, passes = model.partition("-")
    options = {"name": name, **({"passes": "one"} if passes else {})}
    raw = next((preset for preset in choices if preset is not None), {"model": options})
    score = {**raw.get("score", {}), "time": time}
    return {**raw, "dataset": dataset, "split": split, "score": score}


def order_table(found: Mapping[str, Summary], p_values: Mapping[str, float]) -> Table:
    """Return a line for each model, with the figures of all ways."""
    public = any(name.endswith("-random") for name in found)
    lines = []
    for model in MODELS:
        ways = [found.get(f"{model}-{way}") for way in PUBLIC]
        if not any(ways):
            continue
        p = p_values.get(f"{model}-order")
        lines.append(
            [
                model,
                *(_both(way) for way in ways[:2]),
                NOTHING if p is None else p_text(p),
                *(_validation(way) for way in (ways if public else ways[:2])),
            ]
        )
    columns = [
        "", "with order, Recall@20 / NDCG@20", "without", "p (NDCG@20)",
        "validation NDCG@20: with order", "validation without",
    ]  # fmt: skip
    return Table([*columns, "validation on a random tenth"] if public else columns, lines)


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
