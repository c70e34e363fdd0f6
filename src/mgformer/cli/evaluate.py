"""mgformer evaluate: measure a trained recommender again, or against another."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.options import AsJson, RunFolder
from mgformer.cli.train import show_metrics, summary
from mgformer.errors import BundleError

if TYPE_CHECKING:
    from mgformer.data.interactions import Interactions
    from mgformer.runs.bundle import Bundle


def command(
    run: RunFolder,
    against: Path | None = typer.Option(
        None, help="Another run on the same split; a paired significance test compares the users."
    ),
    metrics: list[str] = typer.Option(
        [], "--metric", help="A metric to add, package.module:function; can be repeated."
    ),
    as_json: AsJson = False,
) -> None:
    """Measure a trained recommender on its held-out pairs."""
    from mgformer.experiments.tables import p_text
    from mgformer.outside import import_object
    from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
    from mgformer.runs.bundle_files import load_bundle

    with working():
        bundle = load_bundle(run)
        chosen = dict(bundle.record.config["evaluation"])
        if metrics:
            for metric in metrics:
                import_object(metric)
            chosen["metrics"] = list(dict.fromkeys([*(chosen.get("metrics") or ()), *metrics]))
        options = EvaluationConfig(**chosen)
        test = evaluate_part(bundle.scorer, bundle, "test", options)
        # A refit has no validation pairs left: its recorded figures stay.
        valid = (
            evaluate_part(bundle.scorer, bundle, "valid", options) if len(bundle.valid) else None
        )
        other = load_bundle(against) if against else None
    measured = {
        name: part.means for name, part in (("test", test), ("valid", valid)) if part is not None
    }
    config = {**bundle.record.config, "evaluation": chosen}
    record = bundle.record.model_copy(update={**measured, "config": config})
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


def compare(ours: "Bundle", theirs: "Bundle", run: Path, against: Path) -> dict[str, Any]:
    """Return differences and p-values of all per-user metrics that both runs have."""
    from mgformer.experiments.tables import paired_tests, significance_json

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


def _same_pairs(ours: "Interactions", theirs: "Interactions") -> bool:
    import numpy as np

    return np.array_equal(ours.indptr, theirs.indptr) and np.array_equal(
        ours.indices, theirs.indices
    )
