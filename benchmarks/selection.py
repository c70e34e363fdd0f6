"""How much choosing on the test set flatters: one training, looked at with both eyes.

    python -m benchmarks.selection [--only amazon-beauty/directau …] [--seeds 0 1 2]

While a preset trains as usual, whatever its validation looks at (every epoch, every exponent of
popularity) is measured on test as well. "on validation" is the test figure of what validation would
choose, "on test" the best of all the test figures: what much public code reports. The figures of
each preset are kept in runs/selection; the table in docs/protocol.md is written from there.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

from benchmarks.documents import ROOT, write_block
from mgformer.cli.console import working
from mgformer.data.splits import Split
from mgformer.experiments.presets import FOLDER as PRESETS
from mgformer.files import write_text
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.scorers import Scorer
from mgformer.ranking.selection import Validator
from mgformer.runs.config import RunConfig, build_config, read_config
from mgformer.runs.fit import fit
from mgformer.runs.folder import check_config
from mgformer.runs.prepare import prepare, streams_of
from mgformer.runs.record import commit_of_code

METRIC = "ndcg@20"
AT_20 = EvaluationConfig(ks=(20,))


def main() -> None:
    """Train what is asked for and is not there, or write the table of all there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/selection"))
    parser.add_argument("--only", nargs="*", default=[], help="dataset/model; default: none")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    for name in options.only:
        for seed in options.seeds:
            path = options.runs / name / f"seed-{seed}.json"
            config = build_config({**read_config(PRESETS / f"{name}.toml"), "seed": seed}, name)
            if path.exists():
                check_config(path, json.loads(path.read_text())["config"], config)
                continue
            with working():
                figures = both_choices(config)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(figures))
    if not options.only:
        write_block(ROOT / "docs" / "protocol.md", "selection", table(options.runs))


def both_choices(config: RunConfig) -> dict[str, object]:
    """Train once; return the test figure that each way of choosing leads to."""
    dataset, split, before = prepare(config)
    seen: list[tuple[float, float]] = []

    class Watched(Validator):
        def measure(self, scorer: Scorer, split: Split | None = None) -> dict[str, float]:
            test = evaluate_part(scorer, self.split, "test", AT_20)
            assert test is not None
            figures = super().measure(scorer)
            seen.append((figures[METRIC], test.means[METRIC]))
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
        "config": config.to_mapping(),
        "commit": commit_of_code(),
    }


def table(runs: Path) -> str:
    """Return a row for each preset."""
    rows = [
        "| run | NDCG@20 chosen on validation | chosen on test | flattered by | seeds | commit |",
        "|---|---|---|---|---|---|",
    ]
    for folder in sorted(path for path in runs.glob("*/*") if path.is_dir()):
        found = [json.loads(path.read_text()) for path in sorted(folder.glob("seed-*.json"))]
        honest, best = (fmean(one[key] for one in found) for key in ("on_validation", "on_test"))
        seeds = ", ".join(str(one["seed"]) for one in found)
        rows.append(
            f"| {folder.parent.name}/{folder.name} | {honest:.4f} | {best:.4f} |"
            f" {best / honest - 1:.1%} | {seeds} | {found[0]['commit']} |"
        )
    return "\n".join([*rows, ""])


if __name__ == "__main__":
    main()
