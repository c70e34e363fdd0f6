"""mgformer evaluate: measure a trained recommender again, or against another."""

from pathlib import Path
from typing import Any

import numpy as np
import typer

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.train import show_metrics, summary
from mgformer.data.interactions import Interactions
from mgformer.errors import BundleError
from mgformer.experiments.tables import p_text, paired_tests, significance_json
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle


def command(
    run: Path = typer.Argument(help="Folder of a trained recommender."),
    against: Path | None = typer.Option(
        None, help="Another run on the same split: a paired significance test over its users."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Measure a trained recommender on the held-out pairs it was saved with."""
    with working():
        bundle = load_bundle(run)
        options = EvaluationConfig(**bundle.record.config["evaluation"])
        test = evaluate_part(bundle.scorer, bundle, "test", options)
        # A refit has no validation pairs left: its recorded figures stay.
        valid = (
            evaluate_part(bundle.scorer, bundle, "valid", options) if len(bundle.valid) else None
        )
        other = load_bundle(against) if against else None
    measured = {
        name: part.means for name, part in (("test", test), ("valid", valid)) if part is not None
    }
    record = bundle.record.model_copy(update=measured)
    comparison = compare(bundle, other, run, against) if other and against else None
    if as_json:
        extra = {"against": comparison} if comparison else {}
        print_json({**summary(record, run), **extra})
        return
    show_metrics(record)
    if comparison:
        rows = [
            [name, f"{c['difference']:+.4f}", p_text(c["p_value"])]
            for name, c in comparison["metrics"].items()
        ]
        print_table(["metric", "difference", "p (paired t-test)"], rows, f"against {against}")
        out.print(f"over {comparison['users']} users", style="dim")


def compare(ours: Bundle, theirs: Bundle, run: Path, against: Path) -> dict[str, Any]:
    """Return differences and p-values of all per-user metrics that both runs have."""
    if ours.per_user is None or theirs.per_user is None:
        empty = run if ours.per_user is None else against
        raise BundleError(f"{empty}: has no test users; nothing to compare")
    if ours.record.fingerprint != theirs.record.fingerprint or not _same_pairs(
        ours.test, theirs.test
    ):
        raise BundleError(
            f"{run} and {against} were tested on different data or test pairs"
            f" ({ours.record.fingerprint} and {theirs.record.fingerprint}, seeds"
            f" {ours.record.seed} and {theirs.record.seed}); train both on one split"
        )
    metrics = [c for c in ours.per_user.columns[1:] if c in theirs.per_user.columns]
    tests = paired_tests([ours.per_user], [theirs.per_user], metrics)
    return {"run": str(against), **significance_json(tests)}


def _same_pairs(ours: Interactions, theirs: Interactions) -> bool:
    return np.array_equal(ours.indptr, theirs.indptr) and np.array_equal(
        ours.indices, theirs.indices
    )
