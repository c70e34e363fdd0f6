"""Reports show what the runs recorded, need no other file, and run nothing from the data."""

import base64
import hashlib
import html
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from torch import Tensor

from mgformer.experiments.report import write_report
from mgformer.experiments.report.charts import axis_of
from mgformer.graph.bipartite import Graph
from mgformer.models import register
from mgformer.models.bprmf import BPRMF
from mgformer.models.insides import Inside, NodeRanking, Plot, Series
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.config import build_config
from mgformer.runs.folder import PER_USER, RECORD
from tests.command import assert_one_line, mgformer, succeed

OWNED = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
SMALL = [
    *("--set", "model.dim=8", "--set", "model.rank=8", "--set", "model.key_sample=64"),
    *("--set", "train.epochs=3", "--set", "train.batch_size=256"),
]


class Seen(HTMLParser):
    """The elements of a page, its headings, and its scripts by type."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.scripts: dict[str, list[str]] = {"": [], "application/json": []}
        self.text = ""
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "h2":
            self.headings.append("")
        if tag == "script":
            self.scripts[dict(attrs).get("type") or ""].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[self.elements[-1][1].get("type") or ""][-1] += data
        elif self._open != "style":
            self.text += data
            if self._open == "h2":
                self.headings[-1] += data

    @property
    def figures(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.scripts["application/json"]]


def seen(path: Path) -> Seen:
    return Seen(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 users, half of whom like one half of the items; names and ids contain HTML."""
    rng = np.random.default_rng(4)
    folder = tmp_path_factory.mktemp("table")
    likes = rng.random((60, 40)) < np.where(
        (np.arange(60)[:, None] < 30) == (np.arange(40) < 20), 0.5, 0.05
    )
    users, items = np.nonzero(likes)
    ids = pl.DataFrame({"user": [f"<i>u{u}" for u in users], "item": [f"i{i}" for i in items]})
    ids.write_parquet(folder / "pairs.parquet")
    names = pl.DataFrame({"item": [f"i{i}" for i in range(40)]})
    names = names.with_columns(name=pl.lit(OWNED) + pl.col("item"))
    names.write_csv(folder / "names.csv")
    return folder


def trained(table: Path, folder: Path, *options: object) -> Path:
    named = ("--set", f"data.items={table / 'names.csv'}")
    succeed("train", table / "pairs.parquet", *named, *options, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "run"
    return trained(table, folder, "--model", "mgformer", *SMALL)


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    return write_report(run).path


def test_a_report_shows_what_the_run_recorded(run: Path, report: Path) -> None:
    assert report == run / "report.html"
    page, record = seen(report), load_bundle(run).record
    assert page.headings == [
        "Result",
        "Learning curves",
        "Metrics",
        "Popular and unpopular items",
        "Coverage and the long tail",
        "Cost of diversity",
        "Inside the model",
        "Map of the items",
        "Examples",
        "Config",
    ]
    for part in ("test", "valid", "popularity"):
        assert f"{record.figures(part)['recall@20']:.4f}" in page.text
    for fact in (record.fingerprint, record.protocol, "3 trained"):
        assert fact in page.text
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    ndcg, recall, loss = page.figures[:3]
    for chart, name in ((ndcg, "ndcg@20"), (recall, "recall@20"), (loss, "loss")):
        (trace,) = chart["data"]
        assert trace["y"] == pytest.approx([entry[name] for entry in log], rel=1e-4)
        assert "rangemode" not in chart["layout"]["yaxis"]  # the axis shows the curve, not zero
    best = max(log, key=lambda entry: entry["ndcg@20"])["epoch"]
    assert [note["text"] for note in loss["layout"]["annotations"]] == [f"epoch {best} kept"]
    assert [shape["x0"] for shape in loss["layout"]["shapes"]] == [best]


def test_a_report_shows_ages_and_the_cost_of_diversity(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    times = np.sort(rng.integers(0, 1000, 600))
    items = (rng.random(600) * (times + 200) / 1200 * 120).astype(int)
    pairs = pl.DataFrame({"user": rng.integers(0, 30, 600), "item": items, "time": times})
    pairs.write_parquet(tmp_path / "pairs.parquet")
    about = pl.DataFrame(
        {"item": range(120), "kind": [f"k{n % 4}" for n in range(120)], "size": range(120)}
    )
    about.write_csv(tmp_path / "about.csv")
    options = ("--set", "split.refit=false", "--set", f"data.items={tmp_path / 'about.csv'}")
    run = tmp_path / "run"
    succeed("train", tmp_path / "pairs.parquet", "--model", "ease", *options, "--out", run)
    record = load_bundle(run).record
    assert set(record.ages) == {"unseen", "new", "middle", "old"}
    page = seen(write_report(run).path)
    assert {"New and old items", "Cost of diversity"} <= set(page.headings)
    for age in record.ages.values():
        assert f"{age['ndcg@20']:.4f}" in page.text
    shown = json.loads(succeed("evaluate", run, "--diversity", 0.5, "--json"))
    assert shown["ages"] == record.ages
    none, half = shown["diversity"]["points"]
    assert (none["diversity"], half["diversity"]) == (0, 0.5)
    assert half["intra_list"] > none["intra_list"]
    for point in (none, half):
        assert f"{point['ndcg']:.4f}" in page.text
    text = succeed("evaluate", run, "--diversity", 0.5)
    assert "test hits by age of items" in text
    assert f"{half['intra_list']:.4f}" in text


def test_diversity_is_not_measured_on_pairs_that_were_trained_on(
    table: Path, tmp_path: Path
) -> None:
    run = trained(table, tmp_path / "run", "--model", "ease", "--set", "split.refit=true")
    assert "Cost of diversity" not in seen(write_report(run).path).headings
    assert_one_line(mgformer("evaluate", run, "--diversity", 0.5), "split.refit=false")


def test_the_config_in_a_report_repeats_the_run(run: Path, report: Path) -> None:
    shown = re.search(r"<pre[^>]*><code>(.*?)</code>", report.read_text(), flags=re.DOTALL)
    assert shown is not None
    again = build_config(tomllib.loads(html.unescape(shown[1])))
    assert again == load_bundle(run).record.run_config()


def test_a_report_loads_nothing_and_runs_only_its_own_scripts(report: Path) -> None:
    page = seen(report)
    for tag, attributes in page.elements:
        assert not {"src", "srcset", "action", "data"} & attributes.keys(), tag
        assert (attributes.get("href") or "#").startswith("#"), tag
        assert tag not in ("link", "iframe", "object", "img", "base"), tag
    style = re.search(r"<style>(.*?)</style>", report.read_text(), flags=re.DOTALL)
    assert style is not None
    assert not re.search(r"url\(|@import|//", style[1])
    (policy,) = (a["content"] for t, a in page.elements if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    assert len(page.scripts[""]) == 2
    assert allowed == [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in page.scripts[""]
    ]


def test_text_from_the_data_is_escaped(report: Path) -> None:
    page = seen(report)
    assert not [tag for tag, a in page.elements if tag in ("img", "i") or "onerror" in a]
    outside = report.read_text().split("</style>")[1].split("</main>")[0]
    assert "document.title='owned'</script>" not in outside
    assert f"{OWNED}i" in page.text  # names are shown as they are
    assert "user <i>u" in page.text
    traces = [trace for figure in page.figures for trace in figure["data"]]
    names = [t["text"] for t in traces if "text" in t and t["mode"] == "markers"]
    assert len(names) == 1  # the map
    assert len(names[0]) == 40
    assert all(name.startswith("&lt;/script&gt;&lt;script&gt;") for name in names[0])


def test_the_same_run_gives_the_same_bytes(run: Path, report: Path, tmp_path: Path) -> None:
    again = write_report(run, tmp_path / "again.html").path
    assert again.read_bytes() == report.read_bytes()


def test_a_failed_report_keeps_the_old_file(run: Path, tmp_path: Path) -> None:
    copy, target = tmp_path / "run", tmp_path / "old.html"
    shutil.copytree(run, copy)
    target.write_text("old")
    damaged = next(copy.glob("scorer-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    done = mgformer("report", copy, "--out", target)
    assert_one_line(done, "truncated")
    assert target.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "old.html"}


@pytest.mark.parametrize(
    ("options", "missing", "kept"),
    [
        (
            ("--model", "ease"),
            {"Learning curves", "Inside the model", "Map of the items"},
            {"Examples"},
        ),
        (("--model", "popularity"), {"Map of the items"}, {"Coverage and the long tail"}),
        (
            ("--model", "bprmf", "--set", "split.kind=users", *SMALL[:2], *SMALL[6:]),
            {"Inside the model"},
            {"Examples", "Map of the items"},
        ),
        (
            ("--model", "mgformer", "--set", "split.refit=true", *SMALL),
            set(),
            {"Learning curves", "Inside the model"},
        ),
        (
            ("--model", "gfcf", "--set", "split.valid=0", "--set", "split.test=0"),
            {"Metrics", "Popular and unpopular items"},
            {"Coverage and the long tail", "Examples"},
        ),
    ],
    ids=["ease", "popularity", "held-out-users", "refit", "nothing-held-out"],
)
def test_empty_sections_are_left_out(
    table: Path, tmp_path: Path, options: tuple[str, ...], missing: set[str], kept: set[str]
) -> None:
    folder = trained(table, tmp_path / "run", *options)
    page = seen(write_report(folder).path)
    assert not missing & set(page.headings)
    assert kept | {"Result", "Config"} <= set(page.headings)


def test_a_run_without_a_bundle_is_reported_by_its_record(run: Path, tmp_path: Path) -> None:
    figures_only(run, tmp_path / "run")
    page = seen(write_report(tmp_path / "run").path)
    assert page.headings == ["Result", "Metrics", "Popular and unpopular items", "Config"]


def figures_only(run: Path, folder: Path, **changed: object) -> None:
    bundle = load_bundle(run)
    folder.mkdir(parents=True)
    record = {**bundle.record.to_mapping(), **changed}
    record["config"] = {**record["config"], "seed": record["seed"]}
    (folder / RECORD).write_text(json.dumps(record))
    assert bundle.per_user is not None
    bundle.per_user.write_parquet(folder / PER_USER)


def test_a_folder_of_runs_is_compared_by_means_over_seeds(run: Path, tmp_path: Path) -> None:
    record = load_bundle(run).record
    base = record.test["recall@20"]
    for seed, shift in ((0, 0.0), (1, 0.03)):
        test = {**record.test, "recall@20": base + shift}
        figures_only(run, tmp_path / "a/mgformer" / f"seed-{seed}", seed=seed, test=test)
    other = {**record.config, "model": {**record.config["model"], "dim": 9}}
    figures_only(run, tmp_path / "b<b>", config=other, valid={**record.valid, "ndcg@20": 0.0})
    shutil.copytree(run, tmp_path / "c")
    written = write_report(tmp_path)
    assert written.num_runs == 4
    page = seen(written.path)
    assert page.headings == ["Runs", "Learning curves", "Popular and unpopular items"]
    assert "Take care" not in page.text
    assert "bold" in page.text
    assert f"{base + 0.015:.4f}" in page.text
    assert f"± {0.03 / np.sqrt(2):.4f}" in page.text
    recalls, ndcgs, _, by_time = page.figures[:4]
    # The run in c repeats seed 0, which would count twice in a mean.
    for marks in (recalls, ndcgs):
        assert marks["layout"]["yaxis"]["ticktext"] == ["a/mgformer", "c", "b&lt;b&gt;"]
        assert sorted(marks["data"][0]["y"]) == [0, 0, 1, 2]
    seconds = record.seconds["train"]
    assert by_time["data"][1]["x"] == pytest.approx([seconds] * 3, rel=1e-4)
    assert by_time["data"][1]["y"] == pytest.approx([record.test["ndcg@20"]] * 3, rel=1e-4)
    assert "paired t-test of test NDCG@20" in page.text
    assert "Runs in" not in page.text
    recall = next(f for f in page.figures if f["data"][0].get("orientation") == "h")
    whole = np.sum([trace["x"] for trace in recall["data"]], axis=0)
    assert whole == pytest.approx([base] * 3, rel=1e-4)  # groups add up to the figure


def test_runs_are_tested_against_the_best_on_validation(run: Path, tmp_path: Path) -> None:
    record, per_user = load_bundle(run).record, load_bundle(run).per_user
    assert per_user is not None
    weaker = {**record.valid, "ndcg@20": 0.0}
    shutil.copytree(run, tmp_path / "best")
    for name, seed in (("worse", record.seed), ("another-seed", record.seed + 1)):
        other = {**record.config, "model": {**record.config["model"], "dim": 9}}
        figures_only(run, tmp_path / name, config=other, valid=weaker, seed=seed)
    rng = np.random.default_rng(0)
    noise = pl.Series(rng.normal(-0.02, 0.1, len(per_user)))
    changed = per_user.with_columns(pl.col("ndcg@20") + noise)
    changed.write_parquet(tmp_path / "worse" / PER_USER)
    page = seen(write_report(tmp_path).path)
    rows = {
        row[0]: row for row in table_rows((tmp_path / "report.html").read_text()) if len(row) == 10
    }
    found = stats.ttest_rel(changed["ndcg@20"], per_user["ndcg@20"])
    assert rows["best mgformer"][6] == "–"
    star = "*" if found.pvalue < 0.05 else ""
    assert rows["another-seed mgformer"][6] == f"{found.pvalue:.2g}{star}"
    floor = [f"{record.popularity[name]:.4f}" for name in ("recall@20", "ndcg@20")]
    assert [rows["best mgformer"][column] for column in (3, 5)] == floor
    differences = next(f for f in page.figures if "error_x" in f["data"][0])["data"][0]
    gap = (changed["ndcg@20"] - per_user["ndcg@20"]).to_numpy()
    assert differences["x"] == pytest.approx([gap.mean()], rel=1e-4)
    margin = stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap))
    assert differences["error_x"]["array"] == pytest.approx([margin], rel=1e-4)


def table_rows(page: str) -> list[list[str]]:
    """The text of the cells of all table rows."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, flags=re.DOTALL)
    return [
        [
            " ".join(re.sub(r"<[^>]+>", " ", cell).split())
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL)
        ]
        for row in rows
    ]


def test_runs_that_cannot_be_compared_are_separate_sets_with_a_warning(
    run: Path, tmp_path: Path
) -> None:
    figures_only(run, tmp_path / "one")
    figures_only(run, tmp_path / "two", fingerprint="1x1-1-another")
    figures_only(run, tmp_path / "three", protocol="last: another")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / RECORD).write_text("{")
    page = seen(write_report(tmp_path).path)
    assert "2 datasets and 2 protocols" in page.text
    assert f"Left out: {tmp_path / 'broken' / RECORD}: damaged" in page.text
    first = [h for h in page.headings if h.endswith("runs")]
    assert first == [f"Set {number}, pairs: runs" for number in (1, 2, 3)]
    addresses = {a["href"] for t, a in page.elements if t == "a"}
    assert addresses == {f"#set-{number}-pairs-runs" for number in (1, 2, 3)}
    assert {f"#{a['id']}" for t, a in page.elements if t == "section"} >= addresses


def test_a_folder_without_runs_is_refused_in_one_line(tmp_path: Path) -> None:
    assert_one_line(mgformer("report", tmp_path), "no run here or below; train one with: mgformer")
    assert_one_line(mgformer("report", tmp_path / "none"), "no such folder")
    (tmp_path / RECORD).write_text('{"model": "ease"}')
    assert_one_line(mgformer("report", tmp_path), "not a usable record of a run (dataset: ")
    assert not (tmp_path / "report.html").exists()


def test_an_unwritable_target_is_refused_before_any_work(run: Path, tmp_path: Path) -> None:
    assert_one_line(
        mgformer("report", run, "--out", tmp_path / "no/r.html"), "choose another --out"
    )
    assert_one_line(mgformer("report", run, "--out", tmp_path), "choose another --out")


@pytest.mark.parametrize("package", ["plotly", "jinja2"])
def test_the_error_names_the_missing_extra(
    run: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert_one_line(mgformer("report", run), "pip install 'mgformer[report]'")


def test_the_command_prints_the_path(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.html"
    said = json.loads(succeed("report", run, "--out", target, "--json"))
    assert said == {"report": str(target), "runs": 1, "bytes": target.stat().st_size}
    assert succeed("report", run, "--out", target).strip() == str(target)


def test_an_old_bundle_without_weights_is_reported(run: Path, tmp_path: Path) -> None:
    bundle = load_bundle(run)
    save_bundle(type(bundle)(**{**vars(bundle), "weights": {}}), tmp_path / "run")
    page = seen(write_report(tmp_path / "run").path)
    assert "Inside the model" not in page.headings  # what it shows is trained


@pytest.mark.parametrize("attention", ["landmarks", "kernel"])
def test_a_bundle_of_an_older_version_recommends_and_is_reported(
    attention: str, run: Path, tmp_path: Path
) -> None:
    """The model of its record no longer exists, or has weights of other shapes."""
    bundle = load_bundle(run)
    model = {"name": "mgformer", "attention": attention, "dim": 4, "rank": 4}
    record = bundle.record.model_copy(update={"config": {**bundle.record.config, "model": model}})
    save_bundle(type(bundle)(**{**vars(bundle), "record": record}), tmp_path / "run")
    page = seen(write_report(tmp_path / "run").path)
    assert page.headings
    assert "Inside the model" not in page.headings
    of_one = ["--user", bundle.users.values[0], "--json"]
    assert succeed("recommend", tmp_path / "run", *of_one) == succeed("recommend", run, *of_one)


class ShowsItself(BPRMF):
    """A model from outside that describes its insides."""

    def insides(self, graph: Graph, before: Mapping[str, Tensor] | None) -> list[Inside]:
        assert before is not None
        moved = (self.embeddings.detach() - before["embeddings"]).norm(dim=1).double().numpy()
        degrees = np.concatenate([graph.user_degrees, graph.item_degrees])
        most = np.argsort(-moved)[:3]
        series = [Series("nodes", degrees, moved)]
        return [
            Plot("points", "Movement", "By training.", series, ("degree", "distance"), "x"),
            NodeRanking("is near", most, moved[most] / moved.sum(), owner=graph.num_users),
        ]


def test_a_model_from_outside_shows_its_own_insides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgformer.outside.imported", {})
    rng = np.random.default_rng(1)
    users, items = np.nonzero(rng.random((30, 20)) < 0.4)
    pairs = pl.DataFrame({"user": users, "item": items})
    train = {"epochs": 2, "batch_size": 64}
    Recommender.fit(pairs, register(ShowsItself), train=train).save(tmp_path)
    page = seen(write_report(tmp_path).path)
    assert "Inside the model" in page.headings
    assert "item 0 is near" in page.text
    movement = next(f for f in page.figures if f["layout"]["yaxis"]["title"]["text"] == "distance")
    assert movement["layout"]["xaxis"]["type"] == "log"
    # Reading a bundle imports no code, so a model that nobody has imported shows nothing.
    monkeypatch.setattr("mgformer.outside.imported", {})
    page = seen(write_report(tmp_path).path)
    assert "Inside the model" not in page.headings
    assert {"Metrics", "Examples", "Config"} <= set(page.headings)


def test_axes_show_differences_and_name_what_they_leave_out() -> None:
    (low, high), outside = axis_of([0.30, 0.31, 0.33, 0.1])
    assert 0.29 < low < 0.30
    assert 0.33 < high < 0.34
    assert outside == {0.1}
    for values in ([0.2, 0.2], [0.0]):
        (low, high), outside = axis_of(values)
        assert low < values[0] < high
        assert not outside
