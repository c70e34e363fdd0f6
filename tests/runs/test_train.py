import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mgformer.data.dataset import Dataset, read_dataset
from mgformer.data.demo import demo_dataset
from mgformer.data.entries import data_home, is_present
from mgformer.errors import DataError
from mgformer.models import BUILTIN
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import build_config, read_config
from mgformer.runs.train import prepare, train, validate

ROOT = Path(__file__).parents[2]


def run(name: str = "ease", seed: int = 0, **sections: object) -> Bundle:
    return train(build_config({"model": {"name": name}, "seed": seed, **sections}))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_same_seed_same_record(name: str) -> None:
    one, two = (run(name, train={"epochs": 2}) for _ in range(2))
    for part in ("valid", "test", "groups"):
        assert getattr(one.record, part) == getattr(two.record, part)
    assert one.per_user is not None
    assert one.per_user.equals(two.per_user)


@pytest.mark.parametrize("split", [{}, {"kind": "users"}, {"refit": True}, {"test": 0}])
def test_every_record_has_the_popularity_figures_of_its_split(split: dict[str, object]) -> None:
    record, floor = (run(name, split=split).record for name in ("ease", "popularity"))
    assert record.popularity == floor.test
    assert bool(record.popularity) == bool(record.test)


def test_the_split_depends_on_the_seed_and_not_on_the_model() -> None:
    split = {"kind": "ratio"}
    one, other_model = run("ease", split=split), run("gfcf", split=split)
    other_seed = run("ease", seed=1, split=split)
    np.testing.assert_array_equal(one.test.indices, other_model.test.indices)
    assert one.test.indices.tolist() != other_seed.test.indices.tolist()


def test_a_model_never_sees_what_is_held_out() -> None:
    """Changing held-out pairs, and nothing else, leaves the trained model as it was."""
    dataset = demo_dataset()
    config = build_config({"model": {"name": "gfcf"}, "split": {"kind": "given"}})
    first = train(build_config({"model": {"name": "gfcf"}}))
    parts = {"train": first.train, "valid": first.valid, "test": first.test}
    fewer = {**parts, "test": first.test.subset(np.arange(len(first.test)) % 2 == 0)}
    bundles = [train(config, Dataset("demo", dataset.interactions, p)) for p in (parts, fewer)]
    weights = [bundle.scorer.right for bundle in bundles]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert bundles[0].record.test != bundles[1].record.test


def test_a_ready_split_is_used_as_it_is() -> None:
    dataset = demo_dataset()
    config = build_config({"model": {"name": "ease"}, "split": {"kind": "time"}})
    split = prepare(config, dataset).split
    expected, found = train(config, dataset), train(config, dataset, split=split)
    assert found.record.test == expected.record.test
    assert found.record.protocol == expected.record.protocol
    missing = np.ones(split.train.num_users, dtype=np.int64)
    harder = train(config, dataset, split=replace(split, missing=missing))
    assert harder.missing is not None
    assert 0 < harder.record.test["recall@20"] < found.record.test["recall@20"]


def test_without_users_to_validate_with_there_is_one_line() -> None:
    users, times = [f"u{n}" for n in range(100)], list(range(100))
    dataset = read_dataset((users, [f"i{n % 7}" for n in range(100)], times))
    with pytest.raises(DataError, match="no user with validation pairs has training pairs"):
        train(build_config({"model": {"name": "popularity"}}), dataset)


def test_per_user_values_average_to_the_metrics() -> None:
    bundle = run("itemknn")
    assert bundle.per_user is not None
    for name in ("recall@20", "ndcg@10", "map@50"):
        assert bundle.per_user[name].mean() == pytest.approx(bundle.record.test[name])


@pytest.mark.parametrize("name", ["gfcf", "directau"])
def test_validation_alone_finds_what_a_run_records(name: str) -> None:
    config = build_config({"model": {"name": name}, "train": {"epochs": 3, "patience": 1}})
    split = prepare(config).split
    blind = replace(split, test=split.test.subset(np.zeros(len(split.test), dtype=bool)))
    epochs: list[int] = []
    found = validate(config, blind, write=lambda entry: epochs.append(entry["epoch"]))
    record = train(config).record
    assert found.figures == {n: record.valid[n] for n in ("ndcg@20", "recall@20")}
    assert found.epochs == record.epochs
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) >= record.epochs


def test_a_write_hook_can_end_the_training() -> None:
    config = build_config({"model": {"name": "bprmf"}, "train": {"epochs": 50}})
    seen = []

    def stop_at_two(entry: dict[str, float]) -> None:
        seen.append(entry["ndcg@20"])
        if len(seen) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        validate(config, prepare(config).split, write=stop_at_two)
    assert len(seen) == 2


def test_data_without_anything_to_hold_out_still_trains() -> None:
    pairs = read_dataset((["a", "b", "c"], ["x", "y", "x"])).interactions
    bundle = train(build_config({"model": {"name": "itemknn"}}), Dataset("tiny", pairs))
    assert bundle.record.test == {}
    assert bundle.per_user is None


def test_nothing_to_train_on() -> None:
    pairs = read_dataset((["a"], ["x"])).interactions
    empty = Dataset("empty", pairs.subset(np.array([False])))
    with pytest.raises(DataError, match="empty: no pairs are left to train on"):
        train(build_config({"model": {"name": "popularity"}}), empty)


@pytest.mark.realdata
@pytest.mark.parametrize("dataset", ["gowalla", "yelp2018"])
def test_popularity_on_the_lightgcn_split_gives_the_known_figures(dataset: str) -> None:
    if not is_present(dataset):
        pytest.skip(f"{dataset} is not in {data_home()}")
    known = json.loads((ROOT / "results" / dataset / "popularity.given-0.json").read_text())
    path = ROOT / "configs" / dataset / "popularity.toml"
    record = train(build_config(read_config(path))).record
    for metric in ("recall@20", "ndcg@20"):
        assert record.test[metric] == pytest.approx(known["test"][metric]["mean"], abs=5e-5)
