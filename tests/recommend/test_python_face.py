"""The Python interface as someone with a notebook uses it."""

import inspect
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import polars as pl
import pytest

import mgformer
from mgformer.errors import ConfigError, DataError, in_python_words
from mgformer.recommend.figures import PARTS
from mgformer.recommend.frames import FitOptions
from mgformer.recommend.recommender import Recommender

ROWS = [
    (f"u{u}", f"i{i}", 100 * u + i, 1 + (u + i) % 5) for u in range(20) for i in range(20) if u % 3
]
MINE = pd.DataFrame(ROWS, columns=["who", "what", "when", "stars"])
COLUMNS: dict[str, Any] = {"user": "who", "item": "what"}


@pytest.fixture(scope="module")
def demo() -> Recommender:
    return Recommender.fit("demo", "itemknn")


def test_columns_are_keywords_and_the_data_section_is_one() -> None:
    given = {"min_rating": 4}
    fitted = Recommender.fit(MINE, "popularity", **COLUMNS, time="when", rating="stars", data=given)
    kept = MINE[MINE["stars"] >= 4]
    assert len(fitted.bundle.all_pairs) == len(kept)
    assert sorted(fitted.bundle.all_pairs.times) == sorted(kept["when"])
    assert fitted.config["data"] | {**COLUMNS, "time": "when"} == fitted.config["data"]
    renamed = MINE.rename(columns={"when": "time"})
    assert Recommender.fit(renamed, "popularity", **COLUMNS).bundle.train.times is not None
    without = Recommender.fit(renamed, "popularity", **COLUMNS, time=False)
    assert without.bundle.train.times is None
    with pytest.raises(ConfigError, match="arrays have no names"):
        Recommender.fit(([1, 2], [3, 4]), "popularity", user="who")


def test_the_overloads_of_fit_know_its_keywords() -> None:
    kinds = inspect.signature(Recommender.fit).parameters
    keywords = {name for name, one in kinds.items() if one.kind is one.KEYWORD_ONLY}
    from_sections = {"split", "train", "score", "evaluation", "warm_start"}
    assert keywords - {"frame"} | from_sections == set(FitOptions.__annotations__)


def test_errors_name_keywords_of_python() -> None:
    with pytest.raises(DataError, match=r'user ids; name it with user="NAME"$'):
        Recommender.fit(MINE)
    with pytest.raises(DataError, match=r'name the right one with item="NAME"$'):
        Recommender.fit(MINE, user="who", item="wat")
    with pytest.raises(DataError, match=r'lower data=\{"min_rating": 9\.0\}$'):
        Recommender.fit(MINE, **COLUMNS, rating="stars", data={"min_rating": 9})
    with pytest.raises(ConfigError, match=r"^fit: train\.epoch: unknown option"):
        Recommender.fit(MINE, "bprmf", train={"epoch": 3})
    fitted = Recommender.fit(MINE, "popularity", **COLUMNS)
    with pytest.raises(DataError, match=r'name the right one with user="NAME"$'):
        fitted.refresh(MINE, user="whom")


@pytest.mark.parametrize(
    ("shell", "python"),
    [
        ("--set data.user=A --set data.item=B.", 'user="A", item="B".'),
        ("or use --set data.header=false", 'or use data={"header": False}'),
        (r"use --set data.sep='\t'", r'use data={"sep": "\t"}'),
        ("use --set data.sep=',', or", 'use data={"sep": ","}, or'),
        ("as in --set evaluation.ks=[20]", 'as in evaluation={"ks": [20]}'),
        ("ignore it with --set data.time=''", 'ignore it with time=""'),
        ("it, or see: mgformer datasets show FILE", "it"),
        ("choose another --out", "choose another folder"),
        ("set fixes --set nothing", "set fixes --set nothing"),
    ],
)
def test_options_in_python_words(shell: str, python: str) -> None:
    assert in_python_words(shell) == python


def test_pandas_in_pandas_out(tmp_path: Path) -> None:
    # No two of these columns are alike: text, integers, floats, and names with gaps.
    names = tmp_path / "names.csv"
    names.write_text("what,name\ni1,One\n")
    fitted = Recommender.fit(MINE, "ease", **COLUMNS, data={"items": names})
    assert fitted.frame == "pandas"
    tables = {
        "recommend": lambda r: r.recommend("u1", 3, exclude_seen=False),
        "recommend_for": lambda r: r.recommend_for("i1", 3),
        "similar_items": lambda r: r.similar_items("i1", 3),
        "similar_users": lambda r: r.similar_users("u1", 3),
        "explain": lambda r: r.explain("u1", "i3"),
        "items_of": lambda r: r.items_of("u1"),
    }
    fitted.save(tmp_path / "run")
    polars = Recommender.load(tmp_path / "run")
    assert polars.frame == "polars"
    for name, ask in tables.items():
        ours, theirs = ask(fitted), ask(polars)
        assert isinstance(ours, pd.DataFrame), name
        assert isinstance(theirs, pl.DataFrame), name
        assert len(ours) == theirs.height > 0
        assert [tuple(row) for row in ours.astype(object).where(ours.notna(), None).values] == [
            *theirs.rows()
        ], name
    assert fitted.refit().frame == "pandas"
    assert Recommender.load(tmp_path / "run", frame="pandas").items_of("u1")["item"].notna().all()
    with pytest.raises(ConfigError, match="did you mean pandas"):
        Recommender.load(tmp_path / "run", frame="panda")  # type: ignore[call-overload]


def test_items_are_found_by_popularity_after_the_one_with_exactly_this_id() -> None:
    rows = [
        (f"u{u}", item) for item, users in {"b1": 4, "b12": 9, "x": 9}.items() for u in range(users)
    ]
    fitted = Recommender.fit(tuple(zip(*rows, strict=True)), "popularity", split={"test": 0})
    assert fitted.find_items("B1")["item"].to_list() == ["b12", "b1"]
    assert fitted.find_items("b1")["item"].to_list() == ["b1", "b12"]
    assert fitted.find_items("b1", k=1)["item"].to_list() == ["b1"]
    assert fitted.find_items("nobody").is_empty()


def test_metrics_are_a_mapping_with_a_table(demo: Recommender) -> None:
    metrics = demo.metrics
    assert tuple(metrics) == PARTS
    assert metrics["test"] == demo.bundle.record.test
    assert metrics["validation"] == demo.bundle.record.valid
    lines = repr(metrics).splitlines()
    assert lines[0].split() == ["metric", *PARTS]
    assert len({len(line) for line in lines}) == 1
    shown = next(line for line in lines if line.startswith("ndcg@20")).split()
    assert shown[1:] == [f"{metrics[part]['ndcg@20']:.4f}" for part in PARTS]
    table = metrics.table()
    assert table.columns == ["metric", *PARTS]
    assert dict(table.select("metric", "popularity").rows()) == {
        name: metrics["popularity"].get(name) for name in metrics.names
    }


def test_what_a_recommender_shows_of_itself(demo: Recommender) -> None:
    figures = demo.metrics["test"]["ndcg@20"], demo.metrics["popularity"]["ndcg@20"]
    assert repr(demo).startswith("Recommender(itemknn on demo: ")
    assert repr(demo).endswith("ndcg@20 {:.4f} (popularity {:.4f}))".format(*figures))
    for figure in figures:
        assert f"<td>{figure:.4f}</td>" in demo._repr_html_()
    assert f"{len(demo.bundle.users):,} users" in demo._repr_html_()
    assert demo.model == "itemknn"
    demo.config["model"].clear()
    assert demo.config["model"]["name"] == "itemknn"


def test_html_is_escaped_and_says_when_nothing_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "<b>&.csv"
    path.write_text("user,item\n" + "".join(f"u{n % 5},i{n % 7}\n" for n in range(35)))
    fitted = Recommender.fit(path, "popularity", split={"valid": 0, "test": 0})
    assert "&lt;b&gt;&amp;" in fitted._repr_html_()
    assert "<b>" not in fitted._repr_html_()
    for text in (fitted._repr_html_(), repr(fitted.metrics), fitted.metrics._repr_html_()):
        assert "nothing was measured" in text


def test_the_package_lists_what_it_offers() -> None:
    assert {"Recommender", "Query", "Answer", "__version__"} <= set(dir(mgformer))


def test_progress_is_shown_where_it_is_asked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(**options: Any) -> tuple[str, list[str]]:
        drawn.clear()
        Recommender.fit(MINE, "bprmf", **COLUMNS, train={"epochs": 2}, **options)
        printed = capfd.readouterr()
        return printed.out + printed.err, list(drawn)

    drawn: list[str] = []
    monkeypatch.setattr("mgformer.bars.SHORTEST_SHOWN", 0.0)
    assert fit() == ("", [])
    assert "training: " in fit(progress=True)[0]

    def display(markup: str, display_id: bool) -> Any:
        drawn.append(markup)
        return SimpleNamespace(update=drawn.append)

    shown = ModuleType("IPython.display")
    shown.HTML, shown.display = str, display  # type: ignore[attr-defined]
    kernel = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    printed, lines = fit()
    assert printed == ""
    assert any(line.startswith("<progress ") and "training: 0 of" in line for line in lines)
    assert "training: " in lines[-1]
    assert "done in" in lines[-1]
    assert fit(progress=False) == ("", [])
