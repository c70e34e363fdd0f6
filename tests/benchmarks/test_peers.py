"""The benchmark beside other libraries measures what our own evaluation measures."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.peers import theirs
from benchmarks.peers.__main__ import Arena
from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.split import config_of

from mgformer.runs.train import train


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    return Arena("demo", tmp_path_factory.mktemp("peers"), Path(sys.executable))


@pytest.mark.parametrize("part", ["valid", "test"])
def test_lists_of_our_models_get_the_figures_of_our_evaluation(arena: Arena, part: str) -> None:
    options = {"model.l2": 250.0}
    found = arena.run("ease", options, part)
    record = train(config_of("demo", "ease", options, refit=True)).record
    expected = record.figures(part)
    assert found["ndcg"] == pytest.approx(expected["ndcg@20"], abs=1e-9)
    assert found["recall"] == pytest.approx(expected["recall@20"], abs=1e-9)
    assert found["fit_seconds"] > 0
    assert found["peak_mb"] > 50


@pytest.mark.filterwarnings("ignore:Method expects CSR")
def test_a_peer_gets_the_same_request_and_is_measured_the_same_way(
    arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosine neighbors by hand: implicit multiplies the history by the K nearest of each item."""
    pytest.importorskip("implicit")
    request = {
        "model": "implicit cosine kNN",
        "options": {"K": 400},
        "pairs": str(arena.folder / "test-pairs.npz"),
        "users": str(arena.folder / "test-users.npy"),
        "lists": str(tmp_path / "lists.npy"),
        "answer": str(tmp_path / "answer.json"),
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    monkeypatch.setattr(sys, "argv", ["theirs.py", str(tmp_path / "request.json")])
    theirs.main()
    assert json.loads((tmp_path / "answer.json").read_text()).keys() == {
        "fit_seconds", "lists_seconds", "peak_mb",
    }  # fmt: skip
    measured = arena.measured(np.load(tmp_path / "lists.npy"), "test")
    pairs = arena.known["test"].toarray().astype(float)
    unit = pairs / np.maximum(np.linalg.norm(pairs, axis=0), 1e-12)
    scores = pairs @ (unit.T @ unit)
    scores[pairs > 0] = -np.inf
    lists = np.argsort(-scores[arena.users["test"]], axis=1)[:, : theirs.K]
    expected = arena.measured(lists, "test")
    assert measured["ndcg"] == pytest.approx(expected["ndcg"], abs=2e-3)  # equal scores
    assert expected["ndcg"] > 0.3


def test_empty_places_are_misses_and_owned_items_are_refused(arena: Arena) -> None:
    users = arena.users["test"]
    assert arena.measured(np.full((len(users), theirs.K), -1), "test") == {"recall": 0, "ndcg": 0}
    owned = sp.csr_array(arena.known["test"])[users].toarray().argmax(1)
    with pytest.raises(SystemExit, match="an item that the user had already"):
        arena.measured(np.repeat(owned[:, None], theirs.K, axis=1), "test")


def test_all_contestants_get_the_same_number_of_different_trials() -> None:
    for name, contestant in CONTESTANTS.items():
        trials = [*contestant.trials(5, name)]
        assert len({json.dumps(one, sort_keys=True) for one in trials}) == 5
        assert trials[0] == {}  # its defaults
        assert trials == [*contestant.trials(5, name)]
        for options in trials[1:]:
            assert all(options[option] in values for option, values in contestant.grid.items())
