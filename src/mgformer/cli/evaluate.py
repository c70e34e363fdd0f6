"""mgformer evaluate: measure a trained recommender again, or against another."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from mgformer.cli.console import err, out, print_json, print_table, working
from mgformer.cli.options import AsJson, Device, RunFolder, Signed, key_in
from mgformer.cli.train import show_metrics, summary
from mgformer.errors import BundleError, ConfigError

if TYPE_CHECKING:
    from mgformer.recommend.tradeoff import Tradeoff
    from mgformer.runs.bundle import Bundle
    from mgformer.runs.record import Record

AGAINST = "Another run on the same split; a paired significance test compares the users."
DIVERSITY = "Show what diversity costs on validation; can be repeated, for several values."
METRIC = "A metric to add, package.module:function; can be repeated."


def command(
    run: RunFolder,
    against: Path | None = Option(None, help=AGAINST),
    metrics: list[str] = Option([], "--metric", help=METRIC),
    diversity: list[float] = Option([], help=DIVERSITY, min=0, max=1),
    device: Device = None,
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained recommender on its held-out pairs.

    Under torchrun, each process ranks a part of the users, and the first one prints.
    """
    from mgformer.device import for_ranking, resolve
    from mgformer.experiments.tables import p_text
    from mgformer.outside import import_object
    from mgformer.ranking.devices import moved
    from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
    from mgformer.runs.bundle_files import load_bundle
    from mgformer.world import is_first, joined

    out.quiet = err.quiet = not is_first()  # one of several processes prints
    key, ranks = key_in(signed), for_ranking(resolve(device or "auto"))
    with working(), joined(ranks) as world:
        bundle = load_bundle(run, key)
        chosen = EvaluationConfig(**bundle.record.config.get("evaluation", {})).model_dump()
        if metrics:
            for metric in metrics:
                import_object(metric)
            chosen["metrics"] = list(dict.fromkeys([*(chosen.get("metrics") or ()), *metrics]))
        options = EvaluationConfig(**chosen)
        scorer = moved(bundle.scorer, ranks)
        test = evaluate_part(scorer, bundle, "test", options)
        valid = evaluate_part(scorer, bundle, "valid", options)
        comparison = compare(bundle, run, against, key) if against else None
        cost = cost_of_diversity(bundle, diversity, run) if diversity else None
    # A part without pairs, as after a refit, keeps its recorded figures.
    measured = {name: part.means for name, part in (("test", test), ("valid", valid)) if part}
    config = {**bundle.record.config, "evaluation": chosen}
    parts = {"groups": test.groups, "ages": test.ages} if test else {}
    record = bundle.record.model_copy(update={**measured, **parts, "config": config})
    if not world.leads:
        return
    if as_json:
        extra = {"against": comparison} if comparison else {}
        if cost:
            extra["diversity"] = {**cost._asdict(), "points": [p._asdict() for p in cost.points]}
        print_json({**summary(record, run), **extra})
        return
    show_metrics(record)
    show_ages(record)
    if cost:
        show_cost(cost)
    if comparison:
        rows = [
            [name, f"{c['difference']:+.4f}", p_text(c["p_value"])]
            for name, c in comparison["metrics"].items()
        ]
        print_table(["metric", "difference", "p (paired t-test)"], rows, f"against {against}")
        out.print(f"over {comparison['users']} users", style="dim")


def show_ages(record: "Record") -> None:
    """Print what items contribute to recall and NDCG by how old they are, if times are known."""
    if not record.ages:
        return
    ks = record.config["evaluation"]["ks"]
    k = 20 if 20 in ks else ks[-1]
    names = [f"recall@{k}", f"ndcg@{k}", "possible"]
    rows = [
        [age, *(f"{figures[name]:.4f}" if name in figures else "–" for name in names)]
        for age, figures in record.ages.items()
    ]
    print_table(["age of items", *names[:2], "possible recall"], rows, "test hits by age of items")


def cost_of_diversity(bundle: "Bundle", diversities: list[float], run: Path) -> "Tradeoff":
    """Return what these values of diversity cost, beside none."""
    from mgformer.recommend.tradeoff import tradeoff

    found = tradeoff(bundle, sorted({0.0, *diversities}))
    if found is None:
        raise ConfigError(
            f"--diversity: {run} has no validation pairs that the model was not trained on; train"
            " it with --set split.refit=false"
        )
    return found


def show_cost(cost: "Tradeoff") -> None:
    """Print NDCG beside the variety of the lists."""
    rows = [[f"{p.diversity:g}", *(f"{value:.4f}" for value in p[1:])] for p in cost.points]
    columns = ["diversity", f"ndcg@{cost.k}", "intra-list diversity", "coverage"]
    print_table(columns, rows, f"diversity, on {cost.num_users} validation users")


def compare(ours: "Bundle", run: Path, against: Path, key: bytes | None = None) -> dict[str, Any]:
    """Return differences and p-values of all per-user metrics that both runs have."""
    from mgformer.experiments.tables import paired_tests, significance_json
    from mgformer.runs.bundle_files import load_bundle

    theirs = load_bundle(against, key)
    if ours.per_user is None or theirs.per_user is None:
        empty = run if ours.per_user is None else against
        raise BundleError(f"{empty}: has no test users; nothing to compare")
    our_data, their_data = ours.record.fingerprint, theirs.record.fingerprint
    if our_data != their_data or ours.test.fingerprint != theirs.test.fingerprint:
        raise BundleError(
            f"{run} and {against} were tested on different data or test pairs ({our_data} and"
            f" {their_data}, seeds {ours.record.seed} and {theirs.record.seed}); train both on one"
            " split"
        )
    metrics = [c for c in ours.per_user.columns[1:] if c in theirs.per_user.columns]
    tests = paired_tests([ours.per_user], [theirs.per_user], metrics)
    return {"run": str(against), **significance_json(tests)}
