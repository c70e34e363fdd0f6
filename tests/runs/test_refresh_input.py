"""New pairs that cannot be added, and how new data are read."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mgformer.data.dataset import read_dataset
from mgformer.data.options import DataConfig
from mgformer.errors import ConfigError, DataError
from mgformer.recommend.recommender import Recommender
from mgformer.runs.refresh import read_new
from mgformer.runs.train import untrained_model
from tests.runs.oracles_refresh import NEW, OLD, USERS, fitted, refreshed, trained


def test_weights_stay_only_if_no_users_are_added(caplog: pytest.LogCaptureFixture) -> None:
    before = trained("prior", "times")
    same_users = NEW.filter(pl.col("user").is_in(USERS))
    assert refreshed(before, same_users, "times").weights is before.weights
    assert "are left out because they have no rows for new users" not in caplog.text
    after = refreshed(before, NEW, "times")
    assert after.weights == {}
    assert "are left out because they have no rows for new users" in caplog.text
    with pytest.raises(ConfigError, match="does not have the training graph any more"):
        untrained_model(after)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (NEW.drop("time"), "data: got no times, expected times because .*; add a time column"),
        (NEW.with_columns(item=pl.lit("other")), "data: got .* pairs, none with an item that"),
        (pl.DataFrame({"user": [1], "item": ["i01"], "time": [5]}),
         "user ids are text in the old run but whole numbers in data"),
        (pl.DataFrame({"user": ["u"], "item": [1], "time": [5]}),
         "item ids are text in the old run but whole numbers in data"),
    ],
    ids=["times", "unknown items", "users", "items"],
)  # fmt: skip
def test_data_that_cannot_be_added(new: pl.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=f"^{message}") as caught:
        Recommender(trained("ease", "times")).refresh(new)
    assert "\n" not in str(caught.value)


def test_times_of_another_unit_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    refreshed(trained("ease", "times"), NEW, "times")
    assert "in the same unit" not in caplog.text
    refreshed(trained("ease", "times"), NEW.with_columns(pl.col("time") * 1000), "times")
    assert "are they in the same unit?" in caplog.text


def test_new_data_are_read_with_the_options_of_the_run(tmp_path: Path) -> None:
    names = {"user": "who", "item": "what", "time": "when"}
    rated = OLD.rename(names).with_columns(rating=5.0)
    data = {"user": "who", "item": "what", "time": "when", "rating": "rating", "min_rating": 4}
    (tmp_path / "names.csv").write_text("i01,First\n")
    own = {**data, "k_core": 2, "items": str(tmp_path / "names.csv")}
    before = Recommender(fitted(rated, "itemknn", {}, data=own))
    (tmp_path / "names.csv").unlink()
    new = NEW.rename(names).with_columns(rating=pl.Series(np.arange(NEW.height) % 2 * 4.0))
    after = before.refresh(new)
    kept = NEW.filter(pl.arange(NEW.height) % 2 == 1)
    assert after.bundle.train.fingerprint == before.refresh(
        kept, user="user", item="item", time="time", data={"min_rating": None, "rating": None}
    ).bundle.train.fingerprint  # fmt: skip
    assert after.bundle.name_of(1) == "First"
    with pytest.raises(ConfigError, match=r"data\.tim: unknown option; did you mean time\?"):
        before.refresh(new, data={"tim": "when"})


def test_data_options_of_an_old_record() -> None:
    before = trained("ease", "none")
    record = before.record.model_copy(update={"config": {"model": {"name": "ease"}}})
    new = read_new(replace(before, record=record), NEW.drop("time"))
    assert new.fingerprint == read_dataset(NEW.drop("time"), DataConfig()).fingerprint
