import json
import xml.etree.ElementTree as ET

import polars as pl
import pytest

from mgformer.errors import ConfigError, DataError
from mgformer.experiments import paper_rows
from mgformer.experiments.chart import bar_chart
from mgformer.experiments.paper_rows import AS_IT_IS, VARIANTS, preset
from mgformer.experiments.reproduce import REFERENCE, provenance, reproduce, with_reference
from mgformer.experiments.summary import summarize
from mgformer.experiments.tables import group_table, quality_table, row_tests
from mgformer.files import folder_name
from mgformer.ranking.significance import paired_test
from tests.command import mgformer


@pytest.mark.parametrize("dataset", ["amazon-beauty", "yelp2018", "alibaba", "gowalla"])
def test_every_row_is_a_run_with_the_paper_split(dataset):
    rows = [*paper_rows.table2_rows(dataset), *paper_rows.table3_rows(dataset)]
    for row in rows:
        config = row.config
        assert config.dataset == dataset
        assert (config.split.kind, config.split.valid, config.split.test) == ("ratio", 0.1, 0.1)
        assert not config.split.refit
    folders = [row.folder for row in rows]
    # The preset itself is a row of both tables; all others have runs of their own.
    assert len(set(folders)) == len(folders) - 1


def test_the_paper_has_a_row_for_each_of_its_figures():
    for dataset in paper_rows.STATED["table2"]:
        stated = paper_rows.published("table2", dataset)
        rows = {row.name: row for row in paper_rows.table2_rows(dataset)}
        assert {name: rows[name].paper for name in stated} == stated
    rows = {row.name: row for row in paper_rows.table3_rows("amazon-beauty")}
    stated = paper_rows.published("table3", "amazon-beauty")
    assert stated
    assert {name: rows[name].paper for name in stated} == stated
    assert all(row.paper is None for row in paper_rows.table3_rows("gowalla"))


def test_options_are_those_of_a_preset_with_the_paper_split():
    beauty = paper_rows.with_paper_split("amazon-beauty", "lightgcn")
    # Alibaba has no preset of this name.
    assert preset("alibaba", "lightgcn") is None
    lent = paper_rows.with_paper_split("alibaba", "lightgcn")
    assert (lent["model"], lent["train"]) == (beauty["model"], beauty["train"])
    for dataset, model in (("yelp2018", "mgformer"), ("gowalla", "lightgcn")):
        own = paper_rows.with_paper_split(dataset, model)
        assert own["train"] == preset(dataset, model)["train"] != beauty["train"]


def test_a_preset_for_another_split_does_not_count(monkeypatch: pytest.MonkeyPatch):
    given = preset("gowalla", "lightgcn-lightgcn")
    assert given["split"]["kind"] == "given"
    of_beauty = preset("amazon-beauty", "lightgcn")
    found = {"gowalla": given, "amazon-beauty": of_beauty}
    monkeypatch.setattr(paper_rows, "preset", lambda dataset, _: found[dataset])
    lent = paper_rows.with_paper_split("gowalla", "lightgcn")
    assert lent["model"] == of_beauty["model"] != given["model"]


def test_options_of_simple_models_are_those_of_the_dataset():
    # A simple model's options were chosen on the data, if with another split.
    own = paper_rows.with_paper_split("gowalla", "ease")
    assert (
        own["model"]
        == preset("gowalla", "ease")["model"]
        != preset("amazon-beauty", "ease")["model"]
    )
    assert own["split"] == paper_rows.PAPER_SPLIT
    # What Beauty has no preset of has the dataset's own, whatever its split, or the defaults.
    own = paper_rows.with_paper_split("gowalla", "gfcf-paper")
    assert own["model"] == preset("gowalla", "gfcf-paper")["model"]
    assert paper_rows.with_paper_split("alibaba", "popularity")["model"] == {"name": "popularity"}


def test_variants_change_something_and_differ():
    made = {
        name: row.config.to_mapping()
        for name, row in zip(VARIANTS, paper_rows.table3_rows("amazon-beauty"), strict=True)
    }
    assert len({json.dumps(config, sort_keys=True) for config in made.values()}) == len(made)
    assert made[AS_IT_IS]["model"]["key_sample"] == 1024
    assert made["adjacency as mask"]["model"]["key_sample"] == "none"


def test_variants_are_tested_against_what_they_start_from(reproduced):
    against = {row.against for row in paper_rows.table3_rows("amazon-beauty")}
    assert against == {AS_IT_IS}
    _, runs, _ = reproduced
    rows = paper_rows.table3_rows("demo", [AS_IT_IS, "no degree mask"])
    both = {row.name: own for row, own in zip(rows, summaries(runs).values(), strict=False)}
    text = provenance(rows, both, "mgformer")
    assert "paired t-test against “as it is”, over test users" in text


def test_unknown_rows_are_refused():
    with pytest.raises(ConfigError, match=r"no model 'gpt'; choose from: popularity"):
        paper_rows.table2_rows("amazon-beauty", ["gpt"])
    with pytest.raises(ConfigError, match="no variant 'magic'"):
        paper_rows.table3_rows("amazon-beauty", ["magic"])


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduced")
    rows = paper_rows.table2_rows("demo", ["popularity", "puresvd", "itemknn"])
    return rows, paper_rows.run_all(rows, [0, 1], out), out


def summaries(runs):
    return {name: summarize([run.record for run in own]) for name, own in runs.items()}


def test_runs_are_shared_and_not_repeated(reproduced):
    rows, runs, out = reproduced
    path = out / "puresvd" / "seed-1" / "record.json"
    before = path.stat().st_mtime_ns
    again = paper_rows.run_all(rows, [0, 1], out)
    assert path.stat().st_mtime_ns == before
    assert [run.record for run in again["puresvd"]] == [run.record for run in runs["puresvd"]]
    assert [run.record.seed for run in runs["itemknn"]] == [0, 1]


def test_the_table_shows_means_ratios_and_p_values(reproduced):
    rows, runs, _ = reproduced
    stated = paper_rows.Figures(0.5, 0.25)
    rows = [
        row._replace(paper=stated if row.name == "puresvd" else None, against="puresvd")
        for row in rows
    ]
    against = {row.name: row.against for row in rows}
    tests = row_tests(runs, against)
    p_values = {name: found["ndcg@20"].p_value for name, found in tests.items()}
    table = quality_table(summaries(runs), {row.name: row.paper for row in rows}, p_values)
    cells = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    own = [run.record.test for run in runs["puresvd"]]
    recall, ndcg = (sum(r[f"{m}@20"] for r in own) / 2 for m in ("recall", "ndcg"))
    assert cells["puresvd"]["Recall@20"].startswith(f"{recall:.4f} ± ")
    assert cells["puresvd"]["ratio"] == f"{recall / 0.5:.3f} / {ndcg / 0.25:.3f}"
    assert cells["puresvd"]["p (NDCG@20)"] == "–"
    assert cells["popularity"]["ratio"] == "–"
    assert cells["popularity"]["seeds"] == "0, 1"
    one = row_tests({**runs, "popularity": runs["popularity"][:1]}, against)
    values = [runs[name][0].per_user["ndcg@20"].to_numpy() for name in ("popularity", "puresvd")]
    assert one["popularity"]["ndcg@20"] == paired_test(*values)


def test_groups_equal_those_of_the_records(reproduced):
    _, runs, _ = reproduced
    table = group_table(summaries(runs))
    groups = [run.record.groups["unpopular"]["recall@20"] for run in runs["itemknn"]]
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["itemknn"][0].startswith(f"{sum(groups) / 2:.4f}")


def test_runs_of_different_data_are_not_put_together(reproduced):
    rows, runs, _ = reproduced
    found = summaries(runs)
    found["itemknn"] = found["itemknn"].model_copy(update={"fingerprint": "another"})
    with pytest.raises(DataError, match="cannot stand in one table"):
        provenance(rows, found, "mgformer")


def test_charts_are_well_formed_and_to_scale():
    chart = bar_chart("a < b & c", {"one": {"x": 0.5, "<y>": 0.0}, "two": {"x": 0.25, "<y>": 1.0}})
    root = ET.fromstring(chart)
    bars = [
        float(part.get("width"))
        for part in root.iter("{http://www.w3.org/2000/svg}rect")
        if part.get("class") == "bar"
    ]
    assert bars[0] == pytest.approx(bars[3] / 2, abs=0.1)
    assert bars[1] == 0
    assert bars[2] == pytest.approx(bars[3] / 4, abs=0.1)


def test_reproduce_writes_a_table_and_a_chart(tmp_path):
    rows = paper_rows.table2_rows("demo", ["popularity", "puresvd"])
    paper_rows.run_all(rows, [0], tmp_path / "demo")
    arguments = ["--dataset", "demo", "--only", "popularity", "--only", "puresvd", "--no-train"]
    done = mgformer("reproduce", "table2", *arguments, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [row[""] for row in answer["table"]] == ["popularity", "puresvd"]
    text = (tmp_path / "demo" / "table2.md").read_text()
    assert "mgformer reproduce table2 --dataset demo" in text
    assert answer["runs"]["puresvd"][0]["fingerprint"] in text
    ET.fromstring((tmp_path / "demo" / "table2.svg").read_text())
    lines = pl.read_csv(tmp_path / "demo" / "table2.csv")
    assert lines["name"].to_list() == ["popularity", "puresvd"]
    assert lines["test ndcg@20"][1] == answer["runs"]["puresvd"][0]["test"]["ndcg@20"]
    assert r"\begin{tabular}" in (tmp_path / "demo" / "table2.tex").read_text()


def test_the_row_that_others_are_tested_against_is_always_there(tmp_path, monkeypatch):
    wanted = []

    def trained(rows, seeds, folder):
        wanted.append([row.name for row in rows])
        rows = paper_rows.table2_rows("demo", ["itemknn", "puresvd"])
        first, second = run_all(rows, seeds, folder).values()
        return {"puresvd": first, "guided": second}

    run_all = paper_rows.run_all
    monkeypatch.setattr(paper_rows, "run_all", trained)
    made = reproduce("table2", "demo", ["puresvd"], 1, tmp_path, "mgformer")
    assert wanted == [["puresvd", "guided"]]
    p_values = dict(zip(made.table.columns, made.table.rows[0], strict=True))
    assert p_values["p (NDCG@20)"] != "–"
    made.write(tmp_path / "table.md")
    tex = (tmp_path / "table.tex").read_text()
    assert r"\toprule" in tex
    assert r"\textbf{" in tex
    assert "differs from guided in NDCG@20: p $<$ 0.05" in tex
    assert "differs from guided in NDCG@20" in (tmp_path / "table.md").read_text()
    starred = made.table.rows[0][3].endswith("*")
    assert starred == (float(p_values["p (NDCG@20)"]) < 0.05)


def test_timing_adds_the_model_that_it_compares_with():
    assert with_reference(["bprmf"], REFERENCE) == ["bprmf", REFERENCE]
    assert with_reference([REFERENCE, "bprmf"], REFERENCE) == [REFERENCE, "bprmf"]
    assert with_reference([], REFERENCE) == []


def test_bad_arguments(tmp_path):
    done = mgformer("reproduce", "table2", "--dataset", "demo", "--only", "gpt", "--out", tmp_path)
    assert done.returncode == 2
    assert "no model 'gpt'" in done.stderr
    assert AS_IT_IS in VARIANTS


def test_names_of_folders_are_safe():
    assert folder_name("package.module:Class") == "package.module-Class"
    assert folder_name("ease-strong") == "ease-strong"
    folders = {row.name: row.folder for row in paper_rows.table3_rows("amazon-beauty")}
    assert folders["scores: cosine × deg^γ"] == "mgformer-scores-cosine-deg"
    assert folders["4,096 keys drawn"] == "mgformer-4-096-keys-drawn"
