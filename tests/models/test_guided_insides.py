"""What a guided model shows of its attention."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from mgformer.experiments.report import write_report
from mgformer.graph.bipartite import Graph
from mgformer.models import guided_insides as insides
from mgformer.models.guided import Guided
from mgformer.models.insides import NodeRanking, Plot
from mgformer.recommend.recommender import Recommender

# Three users and four items, which are the nodes 3 to 6.
ATTENTION = sp.csr_array(
    np.array(
        [
            [0, 0, 0, 0.25, 0.75, 0, 0],
            [0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0.5, 0, 0, 0.5],
            [0.1, 0.4, 0, 0, 0.5, 0, 0],
            [0, 0, 0, 0.5, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0],
        ]
    )
)


def graph_of(degrees: list[int]) -> Graph:
    """Three users; an item belongs to the first users, as many as its degree."""
    r = np.arange(3)[:, None] < np.array(degrees)
    return Graph(sp.csr_array(r.astype(np.float32)))


def test_users_attend_to_items_only() -> None:
    found = insides.neighborhood(ATTENTION, np.arange(3), 3)
    assert found is not None
    # The second user has no neighbors and does not count.
    np.testing.assert_allclose(found.to_users, [0, 0])
    np.testing.assert_allclose(found.to_items, [(0.75 + 0.5) / 2, (0.25 + 0.5) / 2])
    first = 0.25**-0.25 * 0.75**-0.75  # exp(entropy)
    assert found.effective == pytest.approx((first + 2) / 2)


def test_items_attend_to_users_and_items() -> None:
    found = insides.neighborhood(ATTENTION, np.arange(3, 7), 3)
    assert found is not None
    np.testing.assert_allclose(found.to_users, [0, 0.4 / 2, 0.1 / 2])
    np.testing.assert_allclose(found.to_items, [(0.5 + 0.5) / 2, 0, 0])
    # The second item has one neighbor of weight 0.5: it reads one node.
    first = 0.1**-0.1 * 0.4**-0.4 * 0.5**-0.5
    assert found.effective == pytest.approx((first + 1) / 2)


def test_nodes_without_neighbors_show_nothing() -> None:
    assert insides.neighborhood(ATTENTION, np.array([1, 5]), 3) is None
    nodes, weights = insides.strongest_neighbors(ATTENTION, 5)
    assert len(nodes) == len(weights) == 0


def test_stored_zeros_are_no_neighbors() -> None:
    stored = sp.csr_array((np.array([1.0, 0.0]), np.array([1, 2]), np.array([0, 2, 2, 2])))
    found = insides.neighborhood(stored, np.array([0]), 1)
    assert found is not None
    np.testing.assert_array_equal(found.to_items, [1])
    assert found.effective == 1
    assert insides.strongest_neighbors(stored, 0)[0].tolist() == [1]


def test_the_strongest_neighbors_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, weights = insides.strongest_neighbors(ATTENTION, 3)
    assert nodes.tolist() == [4, 1, 0]
    np.testing.assert_allclose(weights, [0.5, 0.4, 0.1])
    monkeypatch.setattr(insides, "NAMED_NODES", 2)
    assert insides.strongest_neighbors(ATTENTION, 3)[0].tolist() == [4, 1]


def test_examples_have_different_popularity() -> None:
    # Places 3, 2.85, 2.25 and 1.2 of the items by degree: 1, 3, 0, 2.
    assert insides.example_items(graph_of([2, 1, 3, 1])) == [2, 0, 3]
    assert insides.example_items(graph_of([1])) == [0]


def test_a_model_shows_both_sides_and_its_examples() -> None:
    shown = list(insides.attention_insides(ATTENTION, graph_of([3, 2, 1, 0])))
    users, items, ranking, second = shown  # the third example has no neighbors
    assert isinstance(users, Plot)
    assert isinstance(items, Plot)
    assert isinstance(ranking, NodeRanking)
    assert [plot.title for plot in (users, items)] == [
        "What users attend to",
        "What items attend to",
    ]
    assert "users read 1.9 neighbors effectively" in users.caption
    assert [series.name for series in items.series] == ["to users", "to items"]
    assert items.series[0].x.tolist() == [1, 2, 3]
    assert isinstance(second, NodeRanking)
    assert (ranking.owner, second.owner) == (3, 4)
    assert ranking.facts == {"training users": "3"}


@pytest.mark.parametrize("guide", ["ridge", "gfcf", "spectral"])
def test_what_is_shown_does_not_depend_on_training(guide: str) -> None:
    random = np.random.default_rng(3).random((23, 17)) < 0.3
    graph = Graph(sp.csr_array(random.astype(np.float32)))
    options = {"guide": guide, "dim": 4, "num_neighbors": 3, "graph_weight": 0.5}
    if guide != "ridge":
        options["rank"] = 6
    model = Guided(Guided.Config(**options), graph, np.random.default_rng(0))
    shown = model.insides(graph, None)
    plots = [one for one in shown if isinstance(one, Plot)]
    assert len(plots) == 2
    for plot, rows in zip(plots, (slice(23), slice(23, 40)), strict=True):
        totals = model.attention[rows].sum(1)
        total = sum(series.y.sum() for series in plot.series)
        assert total == pytest.approx(totals[totals > 0].mean(), rel=1e-6)
    off = Guided.Config(**options, attention_weight=0)
    assert Guided(off, graph, np.random.default_rng(0)).insides(graph, None) == []


def test_a_report_names_what_items_attend_to(tmp_path: Path) -> None:
    recommender = Recommender.fit("demo", "guided", options={"dim": 8}, train={"epochs": 1})
    recommender.save(tmp_path)
    page = write_report(tmp_path).path.read_text(encoding="utf-8")
    for text in ("Inside the model", "What users attend to", "What items attend to", "attends to"):
        assert text in page
