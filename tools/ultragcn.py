"""Train our UltraGCN beside a re-creation of the published one, with the same options.

    python -m tools.ultragcn preset --epochs 8
    python -m tools.ultragcn published --epochs 20

`preset` has the options of configs/amazon-beauty/ultragcn.toml, `published` those that its authors
give for Yelp2018. tests/models/oracles_ultragcn.py is the re-creation: plain torch, the loss summed
over a batch, dense Adam. Ours trains twice: every pair draws its own items, as published, or all
pairs of a batch share them. All see the same pairs, and validation NDCG@20 is measured after each
epoch. Figures go to results/ultragcn; `python -m tools.render` shows them in
docs/reference/method.md.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.models.oracles_ultragcn import Published, Reference

from mgformer.cli.console import working
from mgformer.experiments.paper_rows import PRESETS
from mgformer.graph.bipartite import Graph
from mgformer.models.ultragcn import UltraGCN
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.ranking.scorers import DotScorer, Scorer
from mgformer.runs.config import RunConfig, build_config, read_config
from mgformer.runs.record import commit_of_code
from mgformer.runs.train import prepare
from mgformer.training.loop import fit
from tools.store import RESULTS, write_json

DATASET = "amazon-beauty"
AT_20 = EvaluationConfig(ks=(20,))
YELP = {
    "model": {"name": "ultragcn", "spread": 1e-4, "negative_weight": 300.0},
    "train": {"batch_size": 1024, "lr": 1e-3},
}
"""The authors' options for Yelp2018 where our defaults differ."""
Measure = Callable[[Scorer], float]
Curve = dict[int, float]


def main() -> None:
    """Train the three, and write their validation figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("options", choices=["preset", "published"])
    parser.add_argument("--epochs", type=int, required=True, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    raw = read_config(Path(PRESETS / DATASET / "ultragcn.toml"))
    raw = {**raw, "seed": asked.seed} | (YELP if asked.options == "published" else {})
    config = build_config(raw)
    with working():
        found = curves(config, asked.epochs)
    path = RESULTS / "ultragcn" / f"{DATASET}-{asked.options}-{asked.seed}.json"
    write_json(path, {"dataset": DATASET, "options": asked.options, "seed": asked.seed, **found})


def curves(config: RunConfig, epochs: int) -> dict[str, Any]:
    """Return validation NDCG@20 after each epoch: of the re-creation, and of ours in both ways."""
    dataset, split, _ = prepare(config)
    graph = Graph(split.train.matrix)

    def measure(scorer: Scorer) -> float:
        result = evaluate_part(scorer, split, "valid", AT_20)
        assert result is not None
        return result.means[SELECTION_METRIC]

    def ours(draw: str) -> Curve:
        options = config.model.model_copy(update={"draw": draw})
        rng = np.random.default_rng(config.seed)
        found: Curve = {}
        fit(
            UltraGCN(options, graph, rng),
            split.train,
            config.train.model_copy(update={"evaluate_every": 1, "patience": epochs}),
            rng,
            validate=lambda scorer, before: {SELECTION_METRIC: measure(scorer)},
            epochs=epochs,
            write=lambda entry: found.update({entry["epoch"]: entry[SELECTION_METRIC]}),
        )
        return found

    return {
        "curves": {
            "ours, items shared by a batch": ours("batch"),
            "ours, items of each pair": ours("pair"),
            "published": published(config, graph, measure, epochs),
        },
        "fingerprint": dataset.fingerprint,
        "commit": commit_of_code(),
    }


def published(config: RunConfig, graph: Graph, measure: Measure, epochs: int) -> Curve:
    """Train the re-creation with the options of a run; γ is l2 · B."""
    options, train = config.model, config.train
    assert isinstance(options, UltraGCN.Config)
    assert options.negative_weight is not None
    reference = Reference(
        graph.interactions,
        Published(
            dim=options.dim,
            spread=options.spread,
            w1=options.w1,
            w2=options.w2,
            w3=options.w3,
            w4=options.w4,
            negative_num=options.num_negatives,
            negative_weight=options.negative_weight,
            neighbors=options.num_neighbors,
            item_lambda=options.neighbor_weight,
            gamma=options.l2 * train.batch_size,
            batch_size=train.batch_size,
            lr=train.lr,
        ),
        config.seed,
    )
    steps = math.ceil(graph.interactions.nnz / train.batch_size)
    found: Curve = {}
    for epoch in range(epochs):
        began = time.monotonic()
        done = (np.arange(steps) / steps + epoch) / train.epochs
        factor = 0.5 * (1 + np.cos(math.pi * done)) if train.decay == "cosine" else np.ones(steps)
        loss = reference.epoch((train.lr * factor).tolist())
        tables = reference.users.detach().clone(), reference.items.detach().clone()
        found[epoch + 1] = measure(DotScorer(*tables))
        seconds = time.monotonic() - began
        print(
            f"published {epoch + 1}: loss {loss:.4f}, {found[epoch + 1]:.4f}, {seconds:.0f} s",
            flush=True,
        )
    return found


if __name__ == "__main__":
    main()
