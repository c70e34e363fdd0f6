import dataclasses
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgformer import Recommender
from mgformer.data.dataset import Dataset, open_dataset, read_dataset
from mgformer.data.demo import demo_dataset
from mgformer.data.options import SplitConfig
from mgformer.data.splits import split_dataset
from mgformer.errors import ConfigError
from mgformer.models import AUTO
from mgformer.ranking.score import Chosen, Weights
from mgformer.runs import auto, workspace
from mgformer.runs.auto import MODELS, contest, earlier_window, train_best
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.cost import guess_seconds
from mgformer.runs.fit import fit
from mgformer.runs.record import read_record
from mgformer.runs.train import prepare, train, validate
from mgformer.runs.workspace import save_run
from mgformer.training import loop
from mgformer.training.checkpoint import Checkpoint, save_checkpoint
from mgformer.training.log import read_log
from tests.events import events

QUICK = {"train": {"epochs": 2}, "model": {"name": "auto"}}


@pytest.fixture(scope="module")
def moving() -> Dataset:
    """A small dataset with times, on which models differ."""
    return read_dataset(events(), name="moving")


@pytest.fixture(scope="module", params=["time", "ratio"])
def made_of(request: pytest.FixtureRequest, moving: Dataset) -> tuple[dict[str, Any], Bundle]:
    """A run without a model, by its options; the budget is no limit."""
    raw: dict[str, Any] = {"split": {"kind": request.param}, **QUICK}
    return raw, train_best(contest(raw, budget=math.inf), moving)


def tried(bundle: Bundle) -> dict[str, dict[str, float]]:
    assert bundle.record.auto is not None
    return {c.model: c.valid for c in bundle.record.auto.contestants if c.skipped is None}


def test_models_have_the_figures_of_single_runs(
    made_of: tuple[dict[str, Any], Bundle], moving: Dataset
) -> None:
    raw, bundle = made_of
    figures = tried(bundle)
    assert set(figures) == set(MODELS)
    for name in ("popularity", "gfcf", "guided"):
        config = build_config({**raw, "model": {"name": name}})
        assert figures[name] == validate(config, prepare(config, moving).split).figures


def test_the_result_is_a_single_run_of_the_winner(
    made_of: tuple[dict[str, Any], Bundle], moving: Dataset
) -> None:
    raw, bundle = made_of
    single = train(build_config({**raw, "model": {"name": bundle.record.model}}), moving)
    assert bundle.record.config == single.record.config
    for part in ("valid", "test", "popularity", "epochs", "gamma", "delta", "eta", "kappa"):
        assert getattr(bundle.record, part) == getattr(single.record, part), part
    assert bundle.per_user is not None
    assert single.per_user is not None
    assert bundle.per_user.equals(single.per_user)
    assert read_record(bundle.record.to_mapping(), "test") == bundle.record


def test_the_same_seed_makes_the_same_choice(
    made_of: tuple[dict[str, Any], Bundle], moving: Dataset
) -> None:
    raw, one = made_of
    two = train_best(contest(raw, budget=math.inf), moving)
    assert tried(one) == tried(two)
    assert one.record.model == two.record.model
    assert one.record.test == two.record.test


def test_a_winner_is_not_trained_twice_without_need(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def counted(config: Any, *arguments: Any, **options: Any) -> Any:
        trained.append(config.model_name)
        return real(config, *arguments, **options)

    real = fit
    monkeypatch.setattr(auto, "fit", counted)
    monkeypatch.setattr("mgformer.runs.finish.fit", counted)
    monkeypatch.setattr(auto, "MOST_WINDOWS", 1)
    monkeypatch.setattr(auto, "MODELS", ("popularity", "itemknn", "ease"))
    train_best(contest({"dataset": str(table)}, budget=math.inf))
    assert sorted(trained) == ["ease", "itemknn", "popularity"]


def test_a_budget_leaves_out_what_does_not_fit(table: Path) -> None:
    bundle = train_best(contest({"dataset": str(table)}, budget=1e-6))
    assert bundle.record.auto is not None
    by_name = {one.model: one for one in bundle.record.auto.contestants}
    assert by_name["popularity"].skipped is None
    assert "would take about" in (by_name["guided"].skipped or "")
    assert bundle.record.model == "popularity"


def test_a_model_without_an_epoch_is_skipped(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "guess_seconds", lambda pairs: dict.fromkeys(MODELS, -1.0))
    monkeypatch.setattr(auto._Choice, "spent", property(lambda choice: auto.BUDGET))
    bundle = train_best(contest({"dataset": str(table)}))
    assert bundle.record.auto is not None
    by_name = {one.model: one for one in bundle.record.auto.contestants}
    assert by_name["guided"].skipped == "not one epoch ended within the budget"


def test_guesses_order_models_and_grow_with_the_data() -> None:
    small = guess_seconds(demo_dataset().interactions)
    assert set(small) == set(MODELS)
    assert all(math.isfinite(value) for value in small.values())
    assert small["popularity"] < small["itemknn"] < small["ridge"] < small["guided"]
    half = demo_dataset().interactions
    half = half.subset(np.arange(len(half)) % 2 == 0)
    assert all(guess_seconds(half)[name] <= small[name] for name in MODELS)


def made(*means: float, windows: int = 1, noise: float = 0.0, users: int = 50) -> list[Any]:
    """Models whose users differ by `noise` around their means, the cheapest first."""
    rng = np.random.default_rng(1)
    found = []
    for place, mean in enumerate(means):
        config = build_config({"model": {"name": MODELS[place]}})
        values = [mean + noise * rng.standard_normal(users) for _ in range(windows)]
        chosen, valid = Chosen(0, Weights()), {"ndcg@20": mean, "recall@20": mean}
        found.append(auto._Tried(config, None, chosen, valid, values, float(place)))
    return found


def choice_of(models: list[Any], windows: int = 1) -> Any:
    choice = auto._Choice(contest({}), None, None, None)  # type: ignore[arg-type]
    choice.tried, choice.num_windows = models, windows
    return choice


@pytest.mark.parametrize(("noise", "expected"), [(0.5, 1), (0.00001, 0)])
def test_popularity_must_be_clearly_better(noise: float, expected: int) -> None:
    models = made(0.3, 0.25, 0.1, noise=noise)
    for one, mean in zip(models, (0.3, 0.25, 0.1), strict=True):
        one.values[0] += mean - one.values[0].mean()
    choice = choice_of(models)
    winner = choice._personal(models[0])
    assert winner is models[expected]
    assert choice._reason(winner).startswith("not clearly worse" if expected else "the best")


def test_guesses_are_corrected_and_leave_half_of_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model that took 30 s in place of 10 makes all guesses three times as long."""
    guesses = dict.fromkeys(MODELS, 10.0)
    models = made(0.1)
    models[0].seconds, models[0].validation = 35.0, 5.0
    choice = choice_of(models)
    choice.split = dataclasses.replace(prepare(choice.contest.first).split, refit=False)
    later = [choice.contest.configs["guided"]]

    def fits(name: str, later: list[RunConfig], left: float) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(auto._Choice, "spent", auto.BUDGET - left)
            return bool(choice._fits(name, guesses, later))

    assert [fits("guided", [], left) for left in (36, 34)] == [True, False]
    assert [fits("ease", later, left) for left in (96, 94)] == [True, False]
    choice.split = dataclasses.replace(choice.split, refit=True)  # a second training follows
    assert [fits("guided", [], left) for left in (72, 68)] == [True, False]


@pytest.mark.parametrize("kind", ["time", "ratio", "last", "users", "given"])
def test_an_earlier_window_is_made_within_the_training_pairs(kind: str) -> None:
    rng = np.random.default_rng(5)
    dataset, options = demo_dataset(), SplitConfig(kind="time" if kind == "given" else kind)
    window = split_dataset(dataset, options, rng)
    if kind == "given":
        object.__setattr__(window, "kind", "given")
    earlier = earlier_window(window, options, 0)
    assert earlier is not None
    assert not len(earlier.test)
    parts = [earlier.train, earlier.valid, *([earlier.history] if earlier.history else [])]
    assert sum(map(len, parts)) == len(window.train)
    assert all(part.within(window.train).all() for part in parts)
    again = earlier_window(window, options, 0)
    assert again is not None
    np.testing.assert_array_equal(again.valid.indices, earlier.valid.indices)
    if kind == "time":
        assert earlier.train.times.max() < earlier.valid.times.min()  # type: ignore[union-attr]
        assert len(earlier.valid) == pytest.approx(len(window.valid), rel=0.2)


def test_earlier_windows_settle_what_validation_leaves_open(
    made_of: tuple[dict[str, Any], Bundle],
) -> None:
    _, bundle = made_of
    found = bundle.record.auto
    assert found is not None
    assert found.windows > 1
    by_name = {one.model: one for one in found.contestants}
    assert by_name[bundle.record.model].earlier is not None
    assert any(one.earlier is None for one in found.contestants)  # clearly worse on validation


def test_without_validation_there_is_one_candidate(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mgformer"):
        bundle = Recommender.fit(table, split={"valid": 0}).bundle
    assert bundle.record.model == auto.WITHOUT_VALIDATION
    assert "no validation pairs" in caplog.text
    assert bundle.record.test


def test_options_that_a_model_refuses_leave_it_out(table: Path) -> None:
    found = contest({"dataset": str(table), "score": {"kind": "cosine"}})
    assert set(found.configs) == {"guided"}
    assert "ease has no embeddings to compare" in found.refused["ease"]


@pytest.mark.parametrize(
    ("raw", "budget", "expected"),
    [
        ({"model": {"l2": 3}}, None, "model.l2: got an option of a model, but no model"),
        ({"warm_start": "runs/x"}, None, f"leave out --model {AUTO}"),
        ({"split": {"knd": "time"}}, None, "split.knd: unknown option; did you mean kind?"),
        ({}, 0.0, "the budget must be above 0 seconds, got 0"),
        ({}, math.nan, "the budget must be above 0 seconds, got nan"),
    ],
)
def test_bad_requests(raw: dict[str, Any], budget: float | None, expected: str) -> None:
    with pytest.raises(ConfigError, match="(?s)" + expected.replace("?", r"\?")) as caught:
        contest(raw, budget=budget)
    assert "\n" not in str(caught.value)


def test_a_budget_needs_a_choice() -> None:
    with pytest.raises(ConfigError, match="got a budget and the model ease"):
        Recommender.fit("demo", "ease", budget=3)


def test_an_interrupted_refit_of_the_winner_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moving: Dataset
) -> None:
    monkeypatch.setattr(auto, "MODELS", ("bprmf",))
    monkeypatch.setattr(auto, "guess_seconds", lambda pairs: {"bprmf": 0.0})
    monkeypatch.setattr(auto, "MOST_WINDOWS", 1)
    raw = {"split": {"kind": "time"}, "train": {"epochs": 2}}
    whole = train_best(contest(raw, budget=math.inf), moving)
    assert whole.record.model == "bprmf"

    def save_and_stop(folder: Path, checkpoint: Checkpoint) -> None:
        save_checkpoint(folder, checkpoint)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "CHECKPOINT_SECONDS", 0)
        patch.setattr(workspace, "save_checkpoint", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train_best(contest(raw, budget=math.inf), moving, folder=tmp_path)
    monkeypatch.setattr(auto, "_Choice", None)  # the choice is not made again
    again = train_best(contest(raw), moving, folder=tmp_path, resume=True)
    save_run(again, tmp_path)
    assert again.record.test == whole.record.test
    assert tried(again) == tried(whole)
    assert {entry["stage"] for entry in read_log(tmp_path)} == {"select", "refit"}


def test_auto_reads_files_of_its_own(table: Path) -> None:
    """A dataset that is given is used, and its name is in the record."""
    bundle = train_best(contest({"dataset": "elsewhere"}, budget=1e-6), open_dataset(table))
    assert bundle.record.dataset == open_dataset(table).name
