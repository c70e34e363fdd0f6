"""Going on from a trained recommender: what is known stays, and new ones are added."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from mgformer.data.dataset import read_dataset
from mgformer.data.interactions import Interactions
from mgformer.errors import ConfigError, DataError
from mgformer.graph.bipartite import Graph
from mgformer.models import model_class
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle_files import load_bundle
from mgformer.runs.config import build_config
from mgformer.runs.train import train
from mgformer.runs.warm_start import adopt, together
from tests.command import assert_one_line, mgformer, succeed

SMALL = {"dim": 8, "rank": 4, "key_sample": 20}


def frame(users, items, seed=0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    rows = [(f"u{u}", f"i{i}") for u in users for i in items if rng.random() < 0.4]
    return pl.DataFrame(rows, schema=["user", "item"], orient="row")


@pytest.fixture(scope="module")
def old() -> Recommender:
    data = frame(range(5, 30), range(3, 25))
    return Recommender.fit(data, "mgformer", options=SMALL, train={"epochs": 2})


def test_a_warm_start_has_the_pairs_and_names_of_both(old: Recommender):
    new = read_dataset(frame(range(20, 40), range(10, 40), seed=1))
    whole = together(old.bundle, new)
    pairs = whole.interactions
    found = {
        (pairs.users.values[int(u)], pairs.items.values[int(i)])
        for u, i in zip(pairs.rows, pairs.indices, strict=True)
    }
    before = old.bundle.known.tocoo()
    expected = {
        (old.bundle.users.values[int(u)], old.bundle.items.values[int(i)])
        for u, i in zip(before.row, before.col, strict=True)
    } | set(frame(range(20, 40), range(10, 40), seed=1).rows())
    assert found == expected


@pytest.mark.parametrize("name", ["mgformer", "bprmf", "lightgcn"])
def test_known_nodes_keep_their_rows_and_new_ones_are_drawn(name):
    options = SMALL if name == "mgformer" else {"dim": 8}
    data = frame(range(5, 30), range(3, 25))
    before = Recommender.fit(data, name, options=options, train={"epochs": 2}).bundle
    pairs = together(before, read_dataset(frame(range(40), range(40), seed=1))).interactions
    rng = np.random.default_rng(3)
    model = model_class(name)(model_class(name).Config(**options), Graph(pairs.matrix), rng)
    (table,) = (
        n for n, p in model.named_parameters() if len(p) == model.num_users + pairs.num_items
    )
    drawn = model.state_dict()[table].clone()
    adopt(model, before, pairs.users, pairs.items)
    now, learned = model.state_dict()[table], before.weights[table]
    for ids, old_ids, first, old_first in (
        (pairs.users, before.users, 0, 0),
        (pairs.items, before.items, pairs.num_users, len(before.users)),
    ):
        for number, old_number in enumerate(old_ids.encode(ids.values)):
            source = drawn[first + number] if old_number < 0 else learned[old_first + old_number]
            assert torch.equal(now[first + number], source)


def test_a_warm_start_beats_a_cold_start(tmp_path: Path):
    """One epoch more on the demo, from a trained run and from nothing."""
    train = {"epochs": 1, "lr": 1e-3}
    split = {"kind": "ratio"}
    first = Recommender.fit("demo", "directau", train={"epochs": 8, "lr": 1e-2}, split=split)
    first.save(tmp_path / "run")
    more, fresh = (
        Recommender.fit("demo", "directau", train=train, split=split, **start).bundle.record
        for start in ({"warm_start": str(tmp_path / "run")}, {})
    )
    assert more.valid["ndcg@20"] > 1.5 * fresh.valid["ndcg@20"]


def test_pairs_of_the_old_training_set_are_never_held_out(old: Recommender, tmp_path: Path):
    old.save(tmp_path / "run")
    data = frame(range(40), range(40), seed=1)
    after = Recommender.fit(
        data,
        "mgformer",
        seed=9,
        options=SMALL,
        train={"epochs": 1},
        warm_start=str(tmp_path / "run"),
    ).bundle

    def named(part):
        users, items = part.users.decode(part.rows), part.items.decode(part.indices)
        return set(zip(users, items, strict=True))

    trained = named(old.bundle.train)
    assert trained <= named(after.train)
    for part in (after.valid, after.test):
        assert len(part)
        assert not named(part) & trained
    with pytest.raises(ConfigError, match="holds out whole users"):
        Recommender.fit(
            data,
            "mgformer",
            options=SMALL,
            split={"kind": "users"},
            warm_start=str(tmp_path / "run"),
        )


def test_on_the_command_line(old: Recommender, tmp_path: Path):
    old.save(tmp_path / "old")
    frame(range(20, 40), range(10, 40), seed=1).write_csv(tmp_path / "new.csv")
    out = tmp_path / "new"
    succeed("train", tmp_path / "new.csv", "--from", tmp_path / "old", "--out", out)
    bundle = load_bundle(out)
    assert bundle.record.config["model"]["dim"] == 8  # options of the old run
    assert set(old.bundle.users.values) < set(bundle.users.values)
    assert {"u39", "u5"} <= set(bundle.users.values)
    again = json.loads(succeed("recommend", out, "--user", "u39", "-k", 2, "--json"))
    assert len(again["users"][0]["items"]) == 2


@pytest.mark.parametrize("kind", ["last", "time"])
def test_a_run_split_by_time_can_be_continued(kind: str, tmp_path: Path):
    """Its pairs keep their times, so later pairs can be held out again."""
    pairs = frame(range(5, 30), range(3, 25))
    data = pairs.with_columns(time=pl.int_range(pairs.height))
    data.write_csv(tmp_path / "data.csv")
    options = {"options": {"dim": 4}, "train": {"epochs": 1}}
    Recommender.fit(data, "bprmf", split={"kind": kind}, **options).save(tmp_path / "old")
    asked = "train", tmp_path / "data.csv", "--from", tmp_path / "old", "--out", tmp_path / "new"
    succeed(*asked)
    old, new = (load_bundle(tmp_path / name) for name in ("old", "new"))
    times = dict(zip(_named(new.all_pairs), new.all_pairs.times, strict=True))
    assert times == dict(zip(_named(old.all_pairs), old.all_pairs.times, strict=True))
    assert set(_named(old.train)) <= set(_named(new.train))
    succeed(*asked, "--set", "split.kind=ratio")


def _named(pairs: Interactions) -> list[tuple[object, object]]:
    ids = pairs.users.decode(pairs.rows), pairs.items.decode(pairs.indices)
    return list(zip(*ids, strict=True))


def test_new_rows_come_after_the_rows_of_a_run_in_file_order():
    config = build_config({"model": {"name": "itemknn"}, "data": {"order": "file"}})
    before = train(config, read_dataset(frame(range(5, 30), range(3, 25)), config.data))
    rows = frame(range(20, 40), range(10, 40), seed=1)
    shuffled = rows.sample(fraction=1, shuffle=True, seed=2)
    pairs = together(before, read_dataset(shuffled, config.data)).interactions
    named = zip(pairs.users.decode(pairs.rows), pairs.items.decode(pairs.indices), strict=True)
    places = dict(zip(named, pairs.places, strict=True))
    found = [places[row] for row in shuffled.rows()]
    assert found == sorted(found)
    assert min(found) > before.all_pairs.places.max()
    assert together(before, read_dataset(rows)).interactions.order is not None


def test_runs_that_cannot_be_continued(old: Recommender, tmp_path: Path):
    numbers = read_dataset((np.arange(9), np.arange(9)))
    with pytest.raises(DataError, match="user ids are text in the old run but whole numbers"):
        together(old.bundle, numbers)
    Recommender.fit("demo", "ease").save(tmp_path / "ease")
    done = mgformer("train", "demo", "--from", tmp_path / "ease", "--model", "bprmf")
    assert_one_line(done, "the run to continue from has no weights: ease")
    done = mgformer("train", "demo", "--from", tmp_path / "nothing", "--out", tmp_path / "x")
    assert_one_line(done, "no trained recommender here")
    model = model_class("bprmf")(
        model_class("bprmf").Config(dim=5), Graph(old.bundle.train.matrix), np.random.default_rng(0)
    )
    with pytest.raises(ConfigError, match="no weights of the run to continue from fit the model"):
        adopt(model, old.bundle, old.bundle.users, old.bundle.items)
