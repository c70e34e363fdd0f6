"""MGFormer with one thing changed at a time, and what that does to its figures on Beauty.

    python -m benchmarks.ablation [--runs runs] [--only "attention off" …] [--seeds 0]

Runs that are there already are not repeated; the table of docs/method.md is generated from the run
folders. p is of a paired t-test over test users, all seeds together, against the preset as it is.
"""

import argparse
import re
from pathlib import Path

import numpy as np

from benchmarks.measure import write_block
from benchmarks.presets import mean
from benchmarks.runs import ROOT, ensure, record_of
from mgformer.bundle import load_bundle
from mgformer.config import build_config, read_config, with_settings
from mgformer.ranking.significance import paired_test

PRESET = "amazon-beauty/mgformer"
BASE = "as it is"
VARIANTS = {
    BASE: [],
    "attention off": ["model.attention=none"],
    "with the local term": ["model.local_weight=1.0"],
    "attention off, with the local term": ["model.attention=none", "model.local_weight=1.0"],
    "attention over landmarks": ["model.attention=landmarks"],
    "the paper's kernel attention, 4,096 sampled keys": [
        "model.attention=kernel",
        "model.mask=sine",
        "model.centered=true",
        "model.key_sample=4096",
    ],
    "the same with four times the features": [
        "model.attention=kernel",
        "model.mask=sine",
        "model.centered=true",
        "model.key_sample=4096",
        "model.num_features=1024",
    ],
    "sine mask over the neighbours": ["model.mask=sine"],
    "encodings of R": ["model.normalized=false"],
    "encodings only for attention": ["model.rank=0", "model.neighbor_rank=128"],
    "encodings of rank 256": ["model.rank=256"],
    "four heads of different sharpness": ["model.num_heads=4"],
    "two layers": ["model.num_layers=2", "model.num_neighbors=16"],
    "8 neighbours": ["model.num_neighbors=8"],
    "scores: dot product": ["score.kind=dot"],
    "scores: cosine": ["score.kind=cosine"],
    "scores: cosine × deg^γ": ["score.kind=degree"],
}


def main() -> None:
    """Train what is missing of what is asked for, then write the table of all there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--only", nargs="*", default=[], choices=VARIANTS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    preset = read_config(ROOT / "configs" / f"{PRESET}.toml")
    for name in options.only:
        for seed in options.seeds:
            config = build_config(with_settings({**preset, "seed": seed}, VARIANTS[name]))
            ensure(config, place(options.runs, name) / f"seed-{seed}")
    write_block(ROOT / "docs" / "method.md", "ablation", table(options.runs))


def place(runs: Path, name: str) -> Path:
    """Return the folder of a variant's runs; those of the preset are where presets are."""
    if name == BASE:
        return runs / "presets" / PRESET
    return runs / "ablation" / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def table(runs: Path) -> list[str]:
    """Return the rows for all variants that have been run."""
    folders = {name: runs_of(place(runs, name)) for name in VARIANTS}
    rows = [
        "| change | validation Recall@20 / NDCG@20 | test | p (NDCG@20) | seeds | epochs |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in folders.items():
        records = [record for folder in found.values() if (record := record_of(folder))]
        if not records:
            continue
        figures = [
            f"{mean(records, part, 'recall@20'):.4f} / {mean(records, part, 'ndcg@20'):.4f}"
            for part in ("valid", "test")
        ]
        epochs = ", ".join(str(record["epochs"]) for record in records)
        p = "" if name == BASE else p_value(folders[BASE], found)
        seeds = ", ".join(map(str, found))
        rows.append(f"| {name} | {figures[0]} | {figures[1]} | {p} | {seeds} | {epochs} |")
    return rows


def runs_of(folder: Path) -> dict[int, Path]:
    """Return the finished runs of a variant by seed."""
    found = {int(p.name.removeprefix("seed-")): p for p in folder.glob("seed-*")}
    return {seed: path for seed, path in sorted(found.items()) if record_of(path)}


def p_value(base: dict[int, Path], other: dict[int, Path]) -> str:
    """Return the p-value over the test users of the seeds that both have."""
    seeds = sorted(base.keys() & other.keys())
    if not seeds:
        return "–"
    ours, theirs = (
        np.concatenate([load_bundle(side[s]).per_user["ndcg@20"].to_numpy() for s in seeds])
        for side in (base, other)
    )
    return f"{paired_test(ours, theirs).p_value:.1g}"


if __name__ == "__main__":
    main()
