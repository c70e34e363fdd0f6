"""The presets of the methods without training, run and written up beside the published figures.

    python -m benchmarks.floors [--runs runs/floors] [--only gowalla/gfcf …]

Runs that are there already are not repeated; docs/results.md is generated from the run folders. A
folder keeps the record of its run and not the model: EASE's alone would take six gigabytes.
"""

import argparse
import json
from pathlib import Path

from mgformer.cli.console import working
from mgformer.config import build_config, read_config
from mgformer.pipeline import train

ROOT = Path(__file__).parent.parent
RECORD = "record.json"

# Recall@20, NDCG@20 on the LightGCN splits, and who says so.
PUBLISHED = {
    "yelp2018/popularity": (0.0125, 0.0101, "counted"),
    "gowalla/popularity": (0.0416, 0.0317, "counted"),
    "yelp2018/ease": (0.0657, 0.0552, "BARS"),
    "gowalla/ease": (0.1765, 0.1467, "BARS"),
    "yelp2018/gfcf-paper": (0.0697, 0.0571, "GF-CF paper"),
    "gowalla/gfcf-paper": (0.1849, 0.1518, "GF-CF paper"),
}
HEAD = """# Results

Generated from run folders by `python -m benchmarks.floors`; none of our figures is typed. Options
are those with the best validation NDCG@20 of the few that were tried, except in runs `-paper`,
which take the paper's. Then trained again on train and validation ([protocol](protocol.md)).
Published figures of the LightGCN split often chose hyper-parameters or epochs on the test set.

| run | Recall@20 | NDCG@20 | published | ratio | validation NDCG@20 |
|---|---|---|---|---|---|
"""


def main() -> None:
    """Train what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/floors"))
    parser.add_argument("--only", nargs="*", help="dataset/model; default: all presets")
    options = parser.parse_args()
    presets = {f"{p.parent.name}/{p.stem}": p for p in sorted(ROOT.glob("configs/*/*.toml"))}
    for name in options.only or presets:
        record = options.runs / name / RECORD
        if not record.exists():
            print(f"training {name}")
            with working():
                trained = train(build_config(read_config(presets[name]))).record
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(json.dumps(trained, indent=2))
    records = {
        name: json.loads((options.runs / name / RECORD).read_text())
        for name in presets
        if (options.runs / name / RECORD).exists()
    }
    (ROOT / "docs" / "results.md").write_text(HEAD + table(records))


def table(records: dict[str, dict]) -> str:
    """Return the rows of the table and a footnote per run."""
    rows, notes = [], []
    for name, record in records.items():
        recall, ndcg = (record["test"][f"{metric}@20"] for metric in ("recall", "ndcg"))
        published, ratio = "–", "–"
        known = PUBLISHED.get(name) or PUBLISHED.get(f"{name}-paper")
        if known:
            their_recall, their_ndcg, source = known
            published = f"{their_recall:.4f} / {their_ndcg:.4f} ({source})"
            ratio = f"{recall / their_recall:.3f} / {ndcg / their_ndcg:.3f}"
        rows.append(
            f"| {name} | {recall:.4f} | {ndcg:.4f} | {published} | {ratio} |"
            f" {record['valid']['ndcg@20']:.4f} |"
        )
        model = ", ".join(f"{k} = {v}" for k, v in record["config"]["model"].items() if k != "name")
        notes.append(
            f"- {name}: {record['fingerprint']}, seed {record['seed']}, {model or 'no options'},"
            f" commit {record['commit']}"
        )
    return "\n".join([*rows, "", "Runs:", "", *notes, ""])


if __name__ == "__main__":
    main()
