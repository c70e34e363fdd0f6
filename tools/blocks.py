"""The parts of documents that show figures: each is made from `results/` and from nothing else."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mgformer.experiments import order_rows, paper_rows
from mgformer.experiments.chart import bar_chart
from mgformer.experiments.paper_rows import REFERENCE, Figures, Row
from mgformer.experiments.reproduce import order_provenance, provenance
from mgformer.experiments.summary import Summary, figure
from mgformer.experiments.tables import (
    NOTHING,
    Table,
    group_table,
    p_text,
    published_text,
    quality_table,
    ratio_text,
)
from mgformer.ranking.metrics import SELECTION_METRIC, SELECTION_METRICS
from tools import reliability
from tools.cost_model import cost_table
from tools.store import RESULTS, p_values, read_json, summaries

DATASETS = ("amazon-beauty", "yelp2018", "gowalla", "alibaba")
BACKTESTS = ("amazon-beauty", "ml-latest-small")
SHORT = ("itemknn", "ials", "ease", "ridge", *paper_rows.PUBLISHED, "directau-guide", "guided")
"""Rows of the short table: the best simple models, those of the paper, and ours."""
BENCHMARKS = (
    "training-amazon-beauty", "training-yelp2018", "regression-amazon-beauty",
    "regression-yelp2018", "regression-gowalla", "regression-large", "large", "scaling", "ann",
    "attention", "baselines", "ranking", "filters", "reading", "serving", "recency", "reloading",
    "batch", "everybody", "startup", "peers-ml-latest-small", "peers-amazon-beauty",
)  # fmt: skip
RATIOS: list[tuple[str, str, Callable[[dict[str, Any]], float]]] = [
    (
        "training-amazon-beauty",
        "epoch of guided ÷ DirectAU, amazon-beauty",
        lambda figures: figures["ratios"]["guided ÷ DirectAU-LightGCN, epoch"],
    ),
    (
        "training-yelp2018",
        "epoch of guided ÷ DirectAU, yelp2018",
        lambda figures: figures["ratios"]["guided ÷ DirectAU-LightGCN, epoch"],
    ),
    (
        "regression-amazon-beauty",
        "ridge ÷ EASE, amazon-beauty",
        lambda figures: figures["ratio"],
    ),
    (
        "baselines",
        "epoch of LightGCN, ours ÷ public code, gowalla",
        lambda figures: 1 / figures["ratio"],
    ),
    (
        "batch",
        "lists for all users, ours ÷ implicit",
        lambda figures: figures["mgformer_to_implicit"],
    ),
]
"""Benchmark, what it compares, and our time as a share of the other's."""
NOT_MEASURED = "Not measured yet.\n"
PAPER_MODEL = "MGFormer ÷ DirectAU-LightGCN, epoch"


def short_table() -> str:
    """Return the models of table 2 that most readers ask about, on Beauty."""
    table = _quality(paper_rows.table2_rows(REFERENCE, SHORT), REFERENCE)
    return Table(table.columns[:4], [line[:4] for line in table.rows]).markdown()


def table2(dataset: str) -> str:
    """Return all models on a dataset, and what each popularity group contributes."""
    rows = paper_rows.table2_rows(dataset)
    found = _figures(rows, dataset)
    if not found:
        return NOT_MEASURED
    text = provenance(rows, found, f"mgformer reproduce table2 --dataset {dataset} --seeds 3")
    return "\n".join([_quality(rows, dataset).markdown(), group_table(found).markdown(), text])


def wide() -> str:
    """Return the models with more channels, on Beauty."""
    return _quality(paper_rows.wide_rows(REFERENCE), REFERENCE).markdown()


def order(dataset: str) -> str:
    """Return all models on a split in which the test comes later, with and without the order."""
    rows = order_rows.order_rows(dataset)
    measured = summaries(dataset, order_rows.split_of(dataset))
    found = {row.name: measured[row.folder] for row in rows if row.folder in measured}
    if not found:
        return NOT_MEASURED
    against = {row.folder: row.against for row in rows}
    tests = p_values(dataset, against, found, SELECTION_METRIC)
    text = order_provenance(found, f"mgformer reproduce order --dataset {dataset}")
    return f"{order_rows.order_table(found, tests).markdown()}\n{text}"


def backtest(dataset: str) -> str:
    """Return the means of a backtest over its cuts, and the test against the best model."""
    path = RESULTS / "backtests" / f"{dataset}.json"
    if not path.is_file():
        return NOT_MEASURED
    found = read_json(path)
    lines = []
    for model in found["models"]:
        means = [f"{model['mean'][name]:.4f}" for name in SELECTION_METRICS]
        cuts = [f"{cut['test'][SELECTION_METRIC]:.4f}" for cut in model["cuts"]]
        tests = model.get("against", {"metrics": {}})["metrics"]
        p = p_text(tests[SELECTION_METRIC]["p_value"]) if tests else "–"
        lines.append([model["name"], *means, p, *cuts])
    periods = [f"from {cut['from'].partition(' ')[0]}" for cut in found["cuts"]]
    table = Table(["", "Recall@20", "NDCG@20", "p (NDCG@20)", *periods], lines).markdown()
    users = ", ".join(f"{cut['ranked_users']:,}" for cut in found["cuts"])
    return (
        f"{table}\nNDCG@20 of each cut on the right, over {users} users. p: paired t-test against"
        f" {found['best']}, the best by validation. Data {found['fingerprint']}, seed"
        f" {found['seed']}. Commits: {', '.join(found['commits'])}.\n"
    )


def table3() -> str:
    """Return the variants of MGFormer on Beauty."""
    rows = paper_rows.table3_rows(REFERENCE)
    if not _figures(rows, REFERENCE):
        return NOT_MEASURED
    command = f"mgformer reproduce table3 --dataset {REFERENCE}"
    text = provenance(rows, _figures(rows, REFERENCE), command)
    return f"{_quality(rows, REFERENCE).markdown()}\n{text}"


def presets() -> str:
    """Return every preset that was run, beside the published figures."""
    lines, missing = [], []
    for path in sorted(paper_rows.PRESETS.glob("*/*.toml")):
        dataset, name = path.parent.name, path.stem
        split = (paper_rows.preset(dataset, name) or {}).get("split", {}).get("kind", "ratio")
        row = summaries(dataset, split).get(name)
        if row is None:
            missing.append(f"{dataset}/{name}")
            continue
        theirs = published(dataset, name, split)
        stated = published_text(theirs) + (f" ({theirs.source})" if theirs else "")
        lines.append(
            [
                f"{dataset}/{name}",
                *(f"{row.test[metric].mean:.4f}" for metric in SELECTION_METRICS),
                stated,
                ratio_text(row, theirs),
                f"{row.valid[SELECTION_METRIC].mean:.4f}",
                f"{split}, refit" if row.refit else split,
            ]
        )
    columns = [
        "preset", "Recall@20", "NDCG@20", "published", "ratio", "validation NDCG@20", "split",
    ]  # fmt: skip
    return f"{Table(columns, lines).markdown()}\nNot measured yet: {', '.join(missing)}.\n"


def published(dataset: str, preset: str, split: str) -> Figures | None:
    """Return what is published for a preset on this kind of split; None if nothing is.

    `NAME-paper` and `NAME` are one model with different options, and share the figures.
    """
    name = preset.removesuffix("-paper")
    if split == "ratio":
        return paper_rows.published("table2", dataset).get(name)
    known = paper_rows.published("lightgcn_split", dataset) if split == "given" else {}
    return known.get(preset) or known.get(f"{name}-paper")


def cold() -> str:
    """Return how well items without interactions are recommended; means over seeds."""
    models: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((RESULTS / "cold").glob("*/*.json")):
        own = read_json(path)
        models.setdefault(own["name"], []).append(own)
    rows = []
    for name, runs in models.items():
        ratios = [f"{own['warm']['with'] / own['warm']['without']:.4f}" for own in runs]
        factors = sorted({part["factor"] for own in runs for part in own["settings"].values()})
        rows.append(
            [
                name,
                str(figure([own["cold"] for own in runs])),
                str(figure([own["random"] for own in runs])),
                "0",
                " to ".join(sorted({min(ratios), max(ratios)})),
                ", ".join(f"{factor:g}" for factor in factors),
                ", ".join(str(own["epochs"]) for own in runs if own["epochs"]) or NOTHING,
                ", ".join(str(own["seed"]) for own in runs),
            ]
        )
    columns = [
        "model", "Recall@20", "random order", "popularity", "warm", "words", "epochs", "seeds",
    ]  # fmt: skip
    return Table(columns, rows).markdown()


def folding() -> str:
    """Return how good new users are served, beside the same users trained."""
    lines = []
    for path in sorted((RESULTS / "folding").glob("*/*.json")):
        one = read_json(path)
        sides = [one["folded"], one["trained"], one["popularity"]]
        folded, trained, popularity = (
            " / ".join(f"{side[metric]:.4f}" for metric in SELECTION_METRICS) for side in sides
        )
        ratios = one.get("ratio") or [sides[0][m] / sides[1][m] for m in SELECTION_METRICS]
        epochs = [str(number or NOTHING) for number in one.get("epochs", {}).values()]
        lines.append(
            [
                f"{one['dataset']}/{one['name']}",
                folded,
                trained,
                f"{ratios[0]:.3f} / {ratios[1]:.3f}",
                popularity,
                " and ".join(epochs) or NOTHING,
                f"{one['fingerprint']}, seed {one['seed']}, {one['commit']}",
            ]
        )
    columns = [
        "model", "folded in, Recall@20 / NDCG@20", "trained", "ratio", "popularity", "epochs",
        "run",
    ]  # fmt: skip
    return Table(columns, lines).markdown()


def cost_model() -> str:
    """Return the cost model of large graphs beside what was measured."""
    path = RESULTS / "benchmarks" / "large.json"
    return cost_table(read_json(path)["figures"]) if path.exists() else NOT_MEASURED


def ultragcn() -> str:
    """Return validation NDCG@20 of our UltraGCN and of the published one, epoch by epoch."""
    parts = []
    for path in sorted((RESULTS / "ultragcn").glob("*.json")):
        one = read_json(path)
        curves = one["curves"]
        rows = [
            [epoch, *(f"{curve[epoch]:.4f}" for curve in curves.values())]
            for epoch in next(iter(curves.values()))
        ]
        parts.append(
            f"{Table(['epoch', *curves], rows).markdown()}\n{one['dataset']}, options:"
            f" {one['options']}, data {one['fingerprint']}, seed {one['seed']}, {one['commit']}.\n"
        )
    return "\n".join(parts)


def selection() -> str:
    """Return how much choosing on test flatters a model."""
    lines = []
    for path in sorted((RESULTS / "selection").glob("*/*.json")):
        one = read_json(path)
        honest, best = one["on_validation"], one["on_test"]
        lines.append(
            [
                f"{one['dataset']}/{one['name']}, seed {one['seed']}",
                f"{honest:.4f}",
                f"{best:.4f}",
                f"{best / honest - 1:.1%}",
                one["commit"],
            ]
        )
    columns = ["run", "NDCG@20 chosen on validation", "chosen on test", "flattered by", "commit"]
    return Table(columns, lines).markdown()


def benchmark(name: str) -> str:
    """Return the table of a benchmark, and the machine that it ran on."""
    path = RESULTS / "benchmarks" / f"{name}.json"
    if not path.exists():
        return NOT_MEASURED
    found = read_json(path)
    machine = dict(found["machine"])
    parts = [
        machine.pop("cpu"),
        f"{machine.pop('cores')} cores",
        f"{machine.pop('threads')} threads",
    ]
    parts += [f"{package} {version}" for package, version in machine.items()]
    parts += [f"commit {found['commit']}"] if found.get("commit") else []
    return f"{Table(found['columns'], found['rows']).markdown()}\n{', '.join(parts)}.\n"


def time_ratios() -> dict[str, float]:
    """Return our times as shares of those of others, from the benchmarks that were saved."""
    folder = RESULTS / "benchmarks"
    return {
        label: get(read_json(folder / f"{name}.json")["figures"])
        for name, label, get in RATIOS
        if (folder / f"{name}.json").exists()
    }


def performance() -> str:
    """Return our times beside those of others, with the paper's model, which is slow."""
    ratios = time_ratios()
    for dataset in ("amazon-beauty", "yelp2018"):
        path = RESULTS / "benchmarks" / f"training-{dataset}.json"
        if path.exists():
            label = f"epoch of MGFormer ÷ DirectAU, {dataset}"
            ratios[label] = read_json(path)["figures"]["ratios"][PAPER_MODEL]
    rows = [[label, f"{value:.3g}"] for label, value in ratios.items()]
    return Table(["time", "ratio"], rows).markdown()


def quality_figure() -> str:
    """Draw NDCG@20 on Beauty, ours and the paper's."""
    rows = paper_rows.table2_rows(REFERENCE, SHORT)
    found = _figures(rows, REFERENCE)
    ours = {name: row.test[SELECTION_METRIC].mean for name, row in found.items()}
    theirs = {row.name: row.paper.ndcg for row in rows if row.paper}
    groups = {"measured here": ours, "stated in the paper": theirs}
    return bar_chart("NDCG@20 on test, Amazon Beauty", groups)


def performance_figure() -> str:
    """Draw our times as shares of those of others."""
    title = "Time of our presets as a share of the other's"
    return bar_chart(title, {"": {**time_ratios(), "equally fast": 1.0}}, digits=2)


BLOCKS: dict[str, Callable[[], str]] = {
    "table2": short_table,
    **{f"table2-{dataset}": partial(table2, dataset) for dataset in DATASETS},
    **{f"order-{dataset}": partial(order, dataset) for dataset in order_rows.DATASETS},
    **{f"backtest-{dataset}": partial(backtest, dataset) for dataset in BACKTESTS},
    "table2-wide": wide,
    "table3": table3,
    "presets": presets,
    "cold": cold,
    "folding": folding,
    "selection": selection,
    "ultragcn": ultragcn,
    "performance": performance,
    "promises": reliability.promises,
    "tried": reliability.totals,
    **{name: partial(benchmark, name) for name in BENCHMARKS},
    "cost-model": cost_model,
}
"""Name of a block in a document → its text."""
FIGURES = {"amazon-beauty.svg": quality_figure, "performance.svg": performance_figure}
"""File in docs/figures → its picture."""


def _figures(rows: Sequence[Row], dataset: str) -> dict[str, Summary]:
    """Return the figures of the rows that were measured with the paper's split, by row."""
    found = summaries(dataset, "ratio")
    return {row.name: found[row.folder] for row in rows if row.folder in found}


def _quality(rows: Sequence[Row], dataset: str) -> Table:
    figures = _figures(rows, dataset)
    folders = {row.name: row.folder for row in rows}
    by_folder = {folders[name]: figure for name, figure in figures.items()}
    against = {
        row.folder: folders[row.against]
        for row in rows
        if row.against in folders and row.against != row.name
    }
    tested = p_values(dataset, against, by_folder, SELECTION_METRIC)
    return quality_table(
        figures,
        {row.name: row.paper for row in rows},
        {name: tested[folder] for name, folder in folders.items() if folder in tested},
    )
