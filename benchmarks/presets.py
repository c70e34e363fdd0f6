"""The presets, run and written up beside the published figures.

    python -m benchmarks.presets [--runs runs/presets] [--only gowalla/gfcf …] [--seeds 0 1 2]

With --only, those presets are trained; runs that are there already are not repeated. Without,
docs/results.md and what the presets say to expect are generated from the run folders; what was
generated from runs that are gone stays.
"""

import argparse
import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.documents import ROOT, parsed, read_block, write_block
from mgformer.cli.console import working
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.config import build_config, read_config
from mgformer.runs.folder import Run, check_config, ensure_run, find_run
from mgformer.training.log import read_log

# Recall@20, NDCG@20, and who says so. LightGCN split:
PUBLISHED = {
    "yelp2018/popularity": (0.0125, 0.0101, "counted"),
    "gowalla/popularity": (0.0416, 0.0317, "counted"),
    "yelp2018/ease": (0.0657, 0.0552, "BARS"),
    "gowalla/ease": (0.1765, 0.1467, "BARS"),
    "yelp2018/gfcf-paper": (0.0697, 0.0571, "GF-CF paper"),
    "gowalla/gfcf-paper": (0.1849, 0.1518, "GF-CF paper"),
    "yelp2018/mgformer-lightgcn": (0.0723, 0.0604, "XSimGCL, the best published"),
    "gowalla/mgformer-lightgcn": (0.1920, 0.1597, "BSPM, the best published"),
    "yelp2018/directau-lightgcn": (0.0695, 0.0583, "SELFRec"),
    "yelp2018/simgcl": (0.0721, 0.0601, "SELFRec"),
    "yelp2018/simgcl-onepass": (0.0723, 0.0604, "SELFRec"),
    "yelp2018/sgl": (0.0675, 0.0555, "SGL paper"),
    "yelp2018/lightgcn-lightgcn": (0.0649, 0.0530, "LightGCN paper"),
    "gowalla/lightgcn": (0.1830, 0.1554, "LightGCN paper"),
    "yelp2018/bprmf": (0.0543, 0.0445, "SELFRec"),
    "gowalla/bprmf": (0.1627, 0.1378, "BARS"),
    "yelp2018/ultragcn": (0.0683, 0.0561, "UltraGCN paper"),
    "gowalla/ultragcn": (0.1862, 0.1580, "UltraGCN paper"),
    # The paper's split:
    "amazon-beauty/mgformer": (0.1531, 0.0748, "MGFormer paper"),
    "amazon-beauty/mgformer-paper": (0.1531, 0.0748, "MGFormer paper"),
    "amazon-beauty/bprmf": (0.1153, 0.0534, "MGFormer paper"),
    "amazon-beauty/lightgcn": (0.1201, 0.0581, "MGFormer paper"),
    "amazon-beauty/sgl": (0.1228, 0.0644, "MGFormer paper"),
    "amazon-beauty/gotnet": (0.1309, 0.0650, "MGFormer paper"),
    "amazon-beauty/simgcl": (0.1367, 0.0682, "MGFormer paper"),
    "amazon-beauty/gformer": (0.1362, 0.0671, "MGFormer paper"),
    "amazon-beauty/directau": (0.1465, 0.0710, "MGFormer paper"),
    "yelp2018/lightgcn": (0.0833, 0.0514, "MGFormer paper"),
    "yelp2018/directau": (0.0981, 0.0615, "MGFormer paper"),
    "yelp2018/mgformer": (0.1051, 0.0668, "MGFormer paper"),
    "yelp2018/mgformer-paper": (0.1051, 0.0668, "MGFormer paper"),
}
CURVES = [
    "Validation NDCG@20 as training went on, of the users by whom epochs are compared:",
    "",
]
NOTE, CURVE = (re.compile(rf"^- (\S+){end} .*$", re.M) for end in (":", r", \d+ s an epoch:"))
EXPECT = re.compile(r"^# Expect: .*$", re.M)
HEAD = [
    "| run | Recall@20 | NDCG@20 | published | ratio | validation NDCG@20 | split |",
    "|---|---|---|---|---|---|---|",
]


def main() -> None:
    """Train what is asked for, or write up all there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/presets"))
    parser.add_argument("--only", nargs="*", default=[], help="dataset/model; default: none")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    presets = {f"{p.parent.name}/{p.stem}": p for p in sorted(ROOT.glob("configs/*/*.toml"))}
    for name in options.only:
        for seed in options.seeds:
            config = build_config({**read_config(presets[name]), "seed": seed})
            with working():
                ensure_run(config, options.runs / name / f"seed-{seed}")
    if options.only:
        return
    found = {name: runs_of(path, options.runs / name) for name, path in presets.items()}
    known = {
        name: [run.record.to_mapping() for run in runs] for name, runs in found.items() if runs
    }
    results = ROOT / "docs" / "results.md"
    before = read_block(results, "presets")
    parts = (
        [*HEAD, *merged(presets, rows(known), earlier_rows(before))],
        ["Runs:", "", *merged(presets, notes(known), earlier_lines(before, NOTE))],
        [*CURVES, *merged(presets, curves(found), earlier_lines(before, CURVE))],
    )
    text = "\n\n".join("\n".join(part) for part in parts)
    write_block(results, "presets", f"{text}\n")
    for name, records in known.items():
        expect(presets[name], said_of(name, records))


def runs_of(preset: Path, folder: Path) -> list[Run]:
    """Return the runs of a preset that are there, which must have been made with it."""
    runs = [run for path in sorted(folder.glob("seed-*")) if (run := find_run(path))]
    for run in runs:
        wanted = build_config({**read_config(preset), "seed": run.record.seed})
        check_config(run.folder, run.record.config, wanted)
    return runs


def said_of(name: str, records: list[dict[str, Any]]) -> str:
    """Return what to expect of a preset: what its runs had, and what is published."""
    recall, ndcg = (mean(records, "test", f"{metric}@20") for metric in ("recall", "ndcg"))
    seeds = f", {len(records)} seeds" if len(records) > 1 else ""
    said = f"test Recall@20 {recall:.4f}, NDCG@20 {ndcg:.4f}{seeds}"
    if name in PUBLISHED:
        recall, ndcg, source = PUBLISHED[name]
        said += f" (published: {recall:.4f}, {ndcg:.4f}, {source})"
    return f"# Expect: {said}."


def expect(preset: Path, said: str) -> None:
    """Let a preset say what to expect."""
    text, found = EXPECT.subn(said, preset.read_text())
    if found != 1:
        raise ValueError(f"{preset}: {found} lines say what to expect; one should")
    preset.write_text(text)


def mean(records: list[dict[str, Any]], part: str, metric: str) -> float:
    """Return the mean over runs of a metric of a part."""
    return statistics.fmean(record[part][metric] for record in records)


def merged(names: Iterable[str], fresh: Mapping[str, str], earlier: Mapping[str, str]) -> list[str]:
    """Return a line for each name that has one, the fresh one where there are two."""
    lines = {**earlier, **fresh}
    return [lines[name] for name in names if name in lines]


def earlier_rows(block: str) -> dict[str, str]:
    """Return the rows of the table that was written before."""
    cells = parsed(block, HEAD[0].count("|") - 1)
    return {name: f"| {' | '.join(line)} |" for name, line in cells.items()}


def earlier_lines(block: str, pattern: re.Pattern[str]) -> dict[str, str]:
    """Return lines of a list that was written before, by the name that they begin with."""
    return {found[1]: found[0] for found in pattern.finditer(block)}


def rows(runs: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Return a row of the table for each preset."""
    lines = {}
    for name, records in runs.items():
        recall, ndcg = (mean(records, "test", f"{metric}@20") for metric in ("recall", "ndcg"))
        published, ratio = "–", "–"
        known = PUBLISHED.get(name) or PUBLISHED.get(f"{name}-paper")
        if known:
            their_recall, their_ndcg, source = known
            published = f"{their_recall:.4f} / {their_ndcg:.4f} ({source})"
            ratio = f"{recall / their_recall:.3f} / {ndcg / their_ndcg:.3f}"
        first = records[0]
        split = first["protocol"].partition(":")[0]
        split += ", refit" if first["config"]["split"]["refit"] else ""
        lines[name] = (
            f"| {name} | {recall:.4f} | {ndcg:.4f} | {published} | {ratio} |"
            f" {mean(records, 'valid', 'ndcg@20'):.4f} | {split} |"
        )
    return lines


def notes(runs: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Return for each preset which runs its row is the mean of."""
    return {
        name: f"- {name}: {records[0]['fingerprint']}, {_each(records)}"
        for name, records in runs.items()
    }


def curves(runs: Mapping[str, list[Run]]) -> dict[str, str]:
    """Return how validation went, of runs on splits as given, which two cores do not finish."""
    lines = {}
    for name, (run, *_) in ((name, own) for name, own in runs.items() if own):
        entries = [entry for entry in read_log(run.folder) if SELECTION_METRIC in entry]
        if entries and run.record.config["split"]["kind"] == "given":
            values = " ".join(f"{entry[SELECTION_METRIC]:.4f}" for entry in entries)
            lines[name] = f"- {name}, {run.seconds_per_epoch:.0f} s an epoch: {values}"
    return lines


def _each(records: list[dict[str, Any]]) -> str:
    """Return seed, test figures, epochs and commit of every run; options are in the preset."""
    return "; ".join(
        f"seed {r['seed']}: {r['test']['recall@20']:.4f} / {r['test']['ndcg@20']:.4f}"
        + (f", epoch {r['epochs']}" if r["epochs"] else "")
        + (f", {r['score']} with gamma {r['gamma']:g}" if r.get("gamma") is not None else "")
        + f", commit {r['commit']}"
        for r in records
    )


if __name__ == "__main__":
    main()
