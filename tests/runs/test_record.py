import json

import pytest

from mgformer.errors import BundleError, ConfigError
from mgformer.ranking.score import Chosen
from mgformer.runs.config import build_config
from mgformer.runs.record import Record, Refit, Refreshed, read_record

NEEDED = {
    "model": "ease",
    "dataset": "demo",
    "fingerprint": "800x400-1",
    "protocol": "ratio",
    "seed": 3,
    "config": {"model": {"name": "ease", "l2": 30.0}, "seed": 3},
}


def test_a_record_of_an_older_version_is_read_with_defaults() -> None:
    record = read_record({**NEEDED, "something_else": 1}, "runs/old")
    assert (record.test, record.groups, record.commit, record.refit) == ({}, {}, None, None)
    assert record.chosen == Chosen()
    assert record.run_config().model.model_dump()["l2"] == 30.0


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_a_record_without_a_needed_field_is_refused_in_one_line(missing: str) -> None:
    damaged = {name: value for name, value in NEEDED.items() if name != missing}
    with pytest.raises(BundleError, match=rf"^runs/x: not a usable record of a run \({missing}: "):
        read_record(damaged, "runs/x")


@pytest.mark.parametrize("damaged", [None, [], "text", {**NEEDED, "seed": "three"}])
def test_damaged_records_are_refused_in_one_line(damaged: object) -> None:
    with pytest.raises(BundleError, match="not a usable record of a run"):
        read_record(damaged, "runs/x")


def test_a_record_survives_json() -> None:
    refit = Refit(pairs=9, held_out_before=2, seconds=0.5, library="1.0")
    for record in (Record(**NEEDED), Record(**NEEDED, refit=refit, gamma=0.1, score="prior")):
        written = json.dumps(record.to_mapping())
        assert read_record(json.loads(written), "here") == record
        assert ("refit" in json.loads(written)) == (record.refit is not None)


def test_a_refresh_survives_json() -> None:
    counts = {"pairs": 9, "trained_pairs": 5, "new_pairs": 3, "new_users": 1}
    done = Refreshed(**counts, skipped_items_pairs=2, seconds=0.5, library="1.0")
    for record in (Record(**NEEDED), Record(**NEEDED, refreshed=done)):
        written = record.to_mapping()
        assert read_record(json.loads(json.dumps(written)), "here") == record
        assert ("refreshed" in written) == (record.refreshed is not None)


def test_a_record_does_not_import_a_model_from_outside(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "surprise.py").write_text("raise RuntimeError('code of a file was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    named = {**NEEDED, "model": "surprise:Model", "config": {"model": {"name": "surprise:Model"}}}
    with pytest.raises(ConfigError, match="--model surprise:Model"):
        read_record(named, "runs/x").run_config()
    with pytest.raises(RuntimeError, match="code of a file was run"):
        build_config(named["config"])
