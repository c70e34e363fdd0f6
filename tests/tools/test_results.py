"""Results are data: runs are copied into them, and documents are rendered from them."""

import re
import shutil
from pathlib import Path

import pytest
from tools.blocks import BLOCKS, DATASETS
from tools.collect import collect
from tools.render import out_of_date, render
from tools.store import (
    RESULTS,
    ROOT,
    MeanResult,
    p_values,
    read_json,
    read_tests,
    summaries,
    write_json,
)

from mgformer.experiments import paper_rows
from mgformer.experiments.summary import summarize
from mgformer.experiments.tables import row_tests
from mgformer.runs.config import build_config, with_settings
from mgformer.runs.folder import Run, ensure_run

ROWS = paper_rows.table2_rows("demo", ["popularity", "puresvd", "mgformer"])[:2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "demo"
    paper_rows.run_all(ROWS, [0, 1], out)
    return out


def as_guided(run: Run, folder: Path) -> None:
    """Store a run as if it was one of guided, which all rows are tested against."""
    (row,) = paper_rows.table2_rows("demo", ["guided"])
    config = row.config.model_copy(update={"seed": run.record.seed})
    record = run.record.model_copy(update={"model": "guided", "config": config.to_mapping()})
    folder.mkdir(parents=True)
    run.per_user.write_parquet(folder / "per_user.parquet")
    write_json(folder / "record.json", record.to_mapping())


def test_documents_show_what_the_results_say() -> None:
    assert [str(path.relative_to(ROOT)) for path in out_of_date()] == []


def test_only_the_text_between_the_marks_is_generated() -> None:
    text = "by hand\n<!-- table2: begin -->\nold\n<!-- table2: end -->\nby hand\n"
    rendered = render(text)
    assert rendered == text.replace("old\n", BLOCKS["table2"]())
    assert render(rendered) == rendered
    with pytest.raises(KeyError, match="no block 'tabel2'; expected one of table2"):
        render(text.replace("table2", "tabel2"))


def test_results_name_their_commit_and_no_folder() -> None:
    for path in RESULTS.rglob("*.json"):
        assert not re.search(r'"/(home|tmp|root|mnt|work)\b', path.read_text()), path
    for dataset in DATASETS:
        for split in ("ratio", "given"):
            for name, row in summaries(dataset, split).items():
                assert row.commits, (dataset, name)


def test_runs_are_copied_with_all_their_figures(runs: Path, tmp_path: Path) -> None:
    lines = collect(runs, tmp_path)
    assert len(lines) == 4
    assert all(line.startswith("wrote ") for line in lines)
    raw = read_json(tmp_path / "demo" / "puresvd-1.json")
    run = ensure_run(ROWS[1].config.model_copy(update={"seed": 1}), runs / "puresvd" / "seed-1")
    assert raw["record"]["test"] == run.record.test
    assert raw["record"]["commit"] == run.record.commit
    assert raw["record"]["config"]["dataset"] == "demo"
    found = summaries("demo", "ratio", results=tmp_path)
    assert found["puresvd"].seeds == [0, 1]
    records = [run.record for run in paper_rows.find_all(ROWS, runs)["puresvd"]]
    assert found["puresvd"].test == summarize(records).test


def test_tests_are_computed_and_kept(runs: Path, tmp_path: Path) -> None:
    found = paper_rows.find_all(ROWS, runs)
    results = tmp_path / "results"
    rows = {name: summarize([run.record for run in own]) for name, own in found.items()}
    for run in found["popularity"]:
        as_guided(run, tmp_path / "runs" / "guided" / f"seed-{run.record.seed}")
    shutil.copytree(runs / "puresvd", tmp_path / "runs" / "puresvd")
    for _ in range(2):  # the second time replaces the first
        collect(tmp_path / "runs", results)
    tests = {test.metric: test for test in read_tests("demo", results)}
    assert len(read_tests("demo", results)) == len(tests) == 2
    both = {"puresvd": found["puresvd"], "guided": found["popularity"]}
    expected = row_tests(both, {"puresvd": "guided"})["puresvd"]["ndcg@20"]
    assert tests["ndcg@20"].p == expected.p_value
    assert tests["ndcg@20"].difference == expected.difference
    assert (tests["ndcg@20"].a, tests["ndcg@20"].b) == ("puresvd", "guided")
    named = {"puresvd": rows["puresvd"], "guided": rows["popularity"]}
    found_p = p_values("demo", {"puresvd": "guided"}, named, "ndcg@20", results)
    assert found_p == {"puresvd": expected.p_value}


def test_runs_with_other_options_are_not_published(runs: Path, tmp_path: Path) -> None:
    config = build_config(with_settings(ROWS[1].config.to_mapping(), ["model.rank=3"]))
    ensure_run(config, tmp_path / "runs" / "puresvd" / "seed-0")
    ensure_run(config, tmp_path / "runs" / "mine" / "seed-0")
    mine, other = collect(tmp_path / "runs", tmp_path / "results")
    assert mine.endswith("mine is neither a preset nor a row of a table")
    assert "has model.rank = 3, expected " in other
    assert not (tmp_path / "results").exists()


def test_records_replace_means_once_they_cover_their_seeds(runs: Path, tmp_path: Path) -> None:
    records = [run.record for run in paper_rows.find_all(ROWS, runs)["puresvd"]]
    whole = summarize(records).model_dump()
    mean = MeanResult(**{**whole, "minutes": 99.0}, name="puresvd", source="a document")
    write_json(tmp_path / "demo" / "puresvd-0to1.json", mean)
    assert summaries("demo", "ratio", results=tmp_path)["puresvd"].minutes == 99
    collect(runs / "puresvd" / "seed-0", tmp_path)
    assert summaries("demo", "ratio", results=tmp_path)["puresvd"].minutes == 99
    collect(runs / "puresvd", tmp_path)
    assert summaries("demo", "ratio", results=tmp_path)["puresvd"].minutes != 99
