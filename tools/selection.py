"""Measure how much choosing on the test set flatters a model.

    python -m tools.selection amazon-beauty/directau … [--seeds 0 1 2]

A preset trains as usual. Whatever validation looks at (every epoch, every weight of popularity) is
measured on test as well. "on_validation" is the test figure of what validation chooses; "on_test"
is the best of all test figures, which much public code reports. Figures go to results/selection,
and `python -m tools.render` shows them in docs/reference/protocol.md.
"""

import argparse

from mgformer.cli.console import working
from mgformer.data.splits import Split
from mgformer.experiments.paper_rows import PRESETS
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.ranking.scorers import Scorer
from mgformer.ranking.selection import Validator
from mgformer.runs.config import RunConfig, build_config, read_config
from mgformer.runs.fit import fit
from mgformer.runs.record import commit_of_code
from mgformer.runs.train import prepare, streams_of
from tools.store import RESULTS, write_json

AT_20 = EvaluationConfig(ks=(20,))


def main() -> None:
    """Train the presets, and write both figures of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="+", help="dataset/model")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    for full in options.presets:
        dataset, _, name = full.partition("/")
        for seed in options.seeds:
            config = build_config({**read_config(PRESETS / f"{full}.toml"), "seed": seed}, full)
            with working():
                figures = both_choices(config)
            path = RESULTS / "selection" / dataset / f"{name}-{seed}.json"
            write_json(path, {"dataset": dataset, "name": name, **figures})


def both_choices(config: RunConfig) -> dict[str, object]:
    """Train once; return the test figure that each way of choosing leads to."""
    dataset, split, before = prepare(config)
    seen: list[tuple[float, float]] = []

    class Watched(Validator):
        def measure(self, scorer: Scorer, split: Split | None = None) -> dict[str, float]:
            test = evaluate_part(scorer, self.split, "test", AT_20)
            assert test is not None
            figures = super().measure(scorer)
            seen.append((figures[SELECTION_METRIC], test.means[SELECTION_METRIC]))
            return figures

    validator = Watched(
        split,
        config.score_kinds,
        config.score,
        num_users=0,
        memory_mb=config.evaluation.memory_mb,
    )
    fit(config, split.train, streams_of(config.seed).select, validator=validator, before=before)
    return {
        "on_validation": max(seen)[1],
        "on_test": max(test for _, test in seen),
        "looks": len(seen),
        "fingerprint": dataset.fingerprint,
        "seed": config.seed,
        "commit": commit_of_code(),
    }


if __name__ == "__main__":
    main()
