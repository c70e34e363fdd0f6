"""What can be done with a recommender after it forgot users."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mgformer.errors import ConfigError
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.forget import forget
from mgformer.runs.refit import refit
from mgformer.runs.refresh import read_new, refresh
from mgformer.runs.train import untrained_model
from tests.command import succeed

USER = "u7"


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(4)
    rows = [
        f"u{user},i{item},{moment}"
        for user in range(60)
        for moment, item in enumerate(15 * (user % 4) + rng.choice(15, 10, replace=False))
    ]
    path = tmp_path_factory.mktemp("data") / "times.csv"
    path.write_text("user,item,time\n" + "\n".join(rows) + "\n")
    return path


def without_user(recommender: Recommender, user: str = USER) -> Bundle:
    return forget(recommender.bundle, recommender.bundle.users.encode([user]))


@pytest.mark.parametrize("model", ["guided", "gfcf", "ease", "popularity"])
def test_refresh_after_forget(times: Path, model: str) -> None:
    train = {"train": {"epochs": 2}} if model == "guided" else {}
    recommender = Recommender.fit(times, model, split={"kind": "time"}, **train)
    rest = without_user(recommender)
    new = pl.DataFrame({"user": ["u1", "new"], "item": ["i1", "i2"], "time": [99, 99]})
    after = refresh(rest, read_new(rest, new))
    assert USER not in after.users.values
    assert len(Recommender(after).recommend("new", 5)) == 5
    again = forget(after, after.users.encode(["u3", "new"]))  # numbers have changed since training
    assert not {"u3", "new"} & set(again.users.values)
    assert again.record.forgotten is not None
    assert again.record.forgotten.users == 3
    assert len(Recommender(again).recommend("u1", 5)) == 5


def test_refit_after_forget_trains_without_the_user(table: Path) -> None:
    recommender = Recommender.fit(table, "ease", split={"valid": 0, "test": 0})
    with pytest.raises(ConfigError, match="nothing was held out"):
        refit(recommender.bundle)
    again = refit(without_user(recommender))
    assert again.record.forgotten is None
    pairs = pl.read_csv(table).filter(pl.col("user") != USER)
    expected = Recommender.fit(pairs, "ease", split={"valid": 0, "test": 0})
    found = Recommender(again).recommend("u1", 10)
    assert found["item"].to_list() == expected.recommend("u1", 10)["item"].to_list()


def test_the_untrained_model_cannot_be_rebuilt(table: Path) -> None:
    rest = without_user(Recommender.fit(table, "bprmf", train={"epochs": 1}))
    with pytest.raises(ConfigError, match="forgot users does not have the training graph"):
        untrained_model(rest)


def test_training_goes_on_from_a_recommender_that_forgot(table: Path, tmp_path: Path) -> None:
    without = tmp_path / "run"
    options = ["--model", "bprmf", "--set", "train.epochs=1"]
    succeed("train", table, *options, "--out", without)
    succeed("forget", without, "--user", USER)
    (tmp_path / "new.csv").write_text("user,item\nu1,i1\nnobody,i2\n")
    succeed("train", tmp_path / "new.csv", "--from", without, "--out", tmp_path / "next")
    bundle = Recommender.load(tmp_path / "next").bundle
    assert USER not in bundle.users.values
    assert "nobody" in bundle.users.values
    succeed("report", without)


def test_counts_in_vectors_follow_the_pairs_that_are_left(times: Path) -> None:
    """The last channel of `prior` is γ log degree + η log trend, the others were learned."""
    sections = {"score": {"kind": "prior", "gamma": 0.3, "eta": 0.2, "guide": "none", "time": "on"}}
    recommender = Recommender.fit(times, "bprmf", train={"epochs": 1}, **sections)
    before, after = recommender.bundle.scorer, without_user(recommender)
    fresh = Recommender.fit(
        pl.DataFrame(
            {
                "user": after.train.users.decode(after.train.rows),
                "item": after.train.items.decode(after.train.indices),
                "time": after.train.times,
            }
        ),
        "bprmf",
        train={"epochs": 1},
        split={"valid": 0, "test": 0},
        **sections,
    ).bundle
    assert fresh.items == after.items
    scorer = after.scorer
    np.testing.assert_allclose(scorer.items[:, -1], fresh.scorer.items[:, -1], rtol=1e-5)
    np.testing.assert_allclose(scorer.items[:, :-1], before.items[:, :-1], rtol=1e-4, atol=1e-6)
    assert not np.allclose(scorer.items[:, -1], before.items[:, -1])
