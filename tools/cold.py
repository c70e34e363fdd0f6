"""Measure how well items that nobody has interacted with are recommended, by their attributes.

    python -m tools.cold ease ridge guided [--epochs 12] [--seeds 0 1 2]

A tenth of the movies of ml-latest-small is held out whole. For each user, the held-out movies are
ranked among themselves. Beside the models stands a random order. Popularity lists no movie without
interactions, so its recall is 0. "warm" is the recall of other movies on validation with and
without the predictions. Figures go to results/cold; `python -m tools.render` shows them in
docs/guide/attributes.md.
"""

import argparse
from typing import Any

import numpy as np
import torch

from mgformer.cli.console import working
from mgformer.data.splits import Split
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.metrics import SELECTION_K
from mgformer.ranking.scorers import DotScorer
from mgformer.runs.cold import predicted
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.fit import fit
from mgformer.runs.record import commit_of_code
from mgformer.runs.train import prepare, streams_of, validator_of
from tools.store import RESULTS, write_json

DATASET = "ml-latest-small"
METRIC = f"recall@{SELECTION_K}"
OPTIONS = EvaluationConfig(ks=(SELECTION_K,))


def main() -> None:
    """Train, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--epochs", type=int, help="at most this many; default: as the model has")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    for name in options.models:
        for seed in options.seeds:
            raw: dict[str, Any] = {
                "dataset": DATASET,
                "seed": seed,
                "model": {"name": name},
                "split": {"kind": "items", "test": 0.1},
            }
            if options.epochs:
                raw["train"] = {"epochs": options.epochs}
            with working():
                found = figures(build_config(raw))
            write_json(RESULTS / "cold" / DATASET / f"{name}-{seed}.json", found)


def figures(config: RunConfig) -> dict[str, Any]:
    """Return recall among cold items, and that of warm items with and without predictions."""
    dataset, split, _ = prepare(config)
    rng = streams_of(config.seed).select
    fitted = fit(config, split.train, rng, validator=validator_of(config, split))
    degrees = np.bincount(split.train.indices, minlength=split.train.num_items)
    found = predicted(fitted.scorer, dataset.about_items, degrees, wanted=True)
    cold = evaluate_part(found.scorer, split, "test", OPTIONS)
    plain, filled = (
        evaluate_part(one, split, "valid", OPTIONS) for one in (fitted.scorer, found.scorer)
    )
    assert cold is not None
    assert plain is not None
    assert filled is not None
    return {
        "dataset": DATASET,
        "name": config.model_name,
        "seed": config.seed,
        "fingerprint": dataset.fingerprint,
        "items": len(split.cold_items if split.cold_items is not None else ()),
        "users": len(cold.users),
        "cold": cold.means[METRIC],
        "random": random_recall(split),
        "warm": {"without": plain.means[METRIC], "with": filled.means[METRIC]},
        "settings": {part: setting._asdict() for part, setting in found.settings.items()},
        "epochs": fitted.chosen.epochs,
        "commit": commit_of_code(),
    }


def random_recall(split: Split, orders: int = 20) -> float:
    """Return the recall of the same random order of the held-out items for all users."""
    found = []
    users = np.ones((split.train.num_users, 1), dtype=np.float32)
    for seed in range(orders):
        values = np.random.default_rng(seed).random((split.train.num_items, 1))
        items = torch.from_numpy(values.astype(np.float32))
        scorer = DotScorer(torch.from_numpy(users), items)
        own = evaluate_part(scorer, split, "test", OPTIONS)
        assert own is not None
        found.append(own.means[METRIC])
    return float(np.mean(found))


if __name__ == "__main__":
    main()
