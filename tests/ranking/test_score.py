"""How embeddings are compared, and the weight of popularity that validation chooses."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError
from torch.nn import functional

from mgformer.data.dataset import Dataset, read_dataset
from mgformer.errors import ConfigError
from mgformer.progress import reporting
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.score import (
    DELTAS,
    GRIDS,
    Grid,
    ScoreConfig,
    climb,
    guided,
    rescored,
)
from mgformer.ranking.scorers import DotScorer, SumScorer
from mgformer.runs.config import build_config
from mgformer.runs.train import train


def points(grid: Grid) -> list[float]:
    return [round(n * grid.step, 4) for n in range(round(grid.stop / grid.step) + 1)]


POINTS = {kind: points(grid) for kind, grid in GRIDS.items()}
FINE = {kind: points(grid._replace(step=grid.step / 2)) for kind, grid in GRIDS.items()}
DEGREES = [3, 0, 1, 40, 7]


@pytest.fixture
def scorer(rng) -> DotScorer:
    users, items = (torch.from_numpy(rng.standard_normal((n, 4))).float() for n in (7, 5))
    return DotScorer(users, items, 0.3, 0.02)


@pytest.mark.parametrize(
    ("kind", "gamma"),
    [
        ("dot", 0.4), ("cosine", 0.4), ("degree", 0.4), ("degree", -0.5), ("prior", 0.4),
        ("prior", -0.5),
    ],
)  # fmt: skip
def test_scores_by_the_formula(scorer, kind, gamma):
    found = rescored(scorer, kind, gamma, torch.tensor(DEGREES))
    scores = found.scores(torch.arange(7))
    for u, user in enumerate(scorer.users.tolist()):
        for i, item in enumerate(scorer.items.tolist()):
            expected = sum(a * b for a, b in zip(user, item, strict=True))
            had = max(DEGREES[i], 1) / 40  # an item without users counts as if it had one
            if kind != "dot":
                expected /= sum(a * a for a in user) ** 0.5 * sum(b * b for b in item) ** 0.5
            if kind == "degree":
                expected *= had**gamma
            if kind == "prior":
                expected += gamma * math.log(had)
            assert scores[u, i].item() == pytest.approx(expected, abs=1e-5)
    assert (found.unobserved_weight, found.l2) == (0.3, 0.02)
    assert scorer.users.norm(dim=1).max() > 1.1  # the given one is left alone


@pytest.mark.parametrize("kind", ["cosine", "degree", "prior"])
def test_new_users_are_compared_like_others(scorer, kind):
    """Of unit length, and what items score for everybody they score for them."""
    found = rescored(scorer, kind, 0.4, torch.tensor(DEGREES))
    histories = sp.csr_array(np.array([[1, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0] * 5], np.float32))
    folded = found.fold_in(histories)
    dim = scorer.users.shape[1]
    own = folded.users[:, :dim]
    torch.testing.assert_close(own.norm(dim=1), torch.tensor([1.0, 1.0, 0.0]))
    scores = folded.scores(torch.arange(3))
    directions = found.items[:, :dim]
    everybody = 0.4 * (torch.tensor(DEGREES).clamp_min(1) / 40).log() if kind == "prior" else 0.0
    torch.testing.assert_close(scores, own @ directions.T + everybody, rtol=0, atol=1e-5)
    # The direction is that of the plain products, whatever is added to them for everybody.
    plain = DotScorer(scorer.users, directions, 0.3, 0.02).fold_in(histories).users
    torch.testing.assert_close(own, functional.normalize(plain), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["cosine", "degree", "prior"])
def test_zero_vectors_have_no_direction(scorer, kind):
    users, items = scorer.users.clone(), scorer.items.clone()
    users[2], items[3] = 0, 0
    found = rescored(DotScorer(users, items), kind, 0.5, torch.tensor(DEGREES))
    scores = found.scores(torch.arange(7))
    assert scores.isfinite().all()
    popularity = 0.5 * (torch.tensor(DEGREES).clamp_min(1) / 40).log() * (kind == "prior")
    torch.testing.assert_close(scores[2], popularity, rtol=0, atol=1e-6)
    torch.testing.assert_close(scores[:, 3], popularity[3].expand(7), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", GRIDS)
def test_the_walk_finds_the_top_of_any_hill(kind):
    grid = GRIDS[kind]
    for peak in POINTS[kind]:
        asked = []

        def steep_on_one_side(gamma: float, peak: float = peak, asked: list = asked) -> float:
            asked.append(gamma)
            return 3 * (gamma - peak) if gamma < peak else peak - gamma

        assert climb(steep_on_one_side, grid.values(), grid.start) == peak
        assert len(asked) == len(set(asked))
        assert set(asked) <= set(POINTS[kind])
        # From the start to the top, a step beyond it, and one to the other side of the start.
        assert len(asked) <= abs(round((peak - grid.start) / grid.step)) + 3


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_on_a_plateau_the_search_stays_at_its_start(value):
    asked = []
    values = Grid(0.25, 0.05, 1.5).values()
    assert climb(lambda gamma: asked.append(gamma) or value, values, 0.25) == 0.25
    assert sorted(asked) == [0.2, 0.25, 0.3]


def test_a_plateau_is_not_walked_over():
    values = Grid(0.25, 0.05, 1.5).values()
    assert climb(lambda gamma: min(gamma, 0.5), values, 0.25) == 0.5
    assert climb(lambda gamma: -max(gamma, 0.1), values, 0.25) == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "dot", "gamma": 0.5}, "gamma has no use with kind = dot; leave it out"),
        ({"kind": "cosine", "gamma": 0.0}, "gamma has no use with kind = cosine; leave it out"),
        ({"kind": "degree", "gamma": 2.1}, "less than or equal to 2"),
        ({"kind": "prior", "gamma": -2.1}, "greater than or equal to -2"),
        ({"kind": "euclid"}, "'auto', 'dot', 'cosine', 'degree' or 'prior'"),
        ({"gama": 0.5}, "Extra inputs are not permitted"),
    ],
)
def test_impossible_scores_are_refused(options, message):
    with pytest.raises(ValidationError) as caught:
        ScoreConfig(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "score", "message"),
    [
        ("ease", {"kind": "cosine"}, "score: ease has no embeddings to compare; only time"),
        ("popularity", {"gamma": 0.5}, "score: popularity has no embeddings to compare"),
        ("ials", {"gamma": 0.5}, "score.gamma needs score.kind = degree or prior"),
        ("mgformer", {"gamma": 0.5}, "score.gamma needs score.kind = degree or prior"),
        ("mgformer", {"kind": "dot", "gamma": 0.5}, "score: gamma has no use with kind = dot"),
    ],
)
def test_scores_that_a_model_cannot_have_are_one_line(name, score, message):
    with pytest.raises(ConfigError) as caught:
        build_config({"model": {"name": name}, "score": score})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_possible_is_accepted():
    for name, score, kind in [
        ("ials", {}, "dot"), ("ials", {"kind": "cosine"}, "cosine"),
        ("ials", {"kind": "degree", "gamma": -2}, "degree"),
        ("ials", {"kind": "prior"}, "prior"), ("mgformer", {"kind": "dot"}, "dot"),
        ("mgformer", {"kind": "prior", "gamma": 2}, "prior"),
    ]:  # fmt: skip
        assert build_config({"model": {"name": name}, "score": score}).score_kinds == (kind,)
    assert build_config({"model": {"name": "ease"}}).score_kinds == ()


def trained(name="mgformer", refit=False, **score):
    tiny = {
        "mgformer": {"dim": 8, "rank": 8, "key_sample": 64},
        "ials": {"rank": 8, "num_iterations": 3},
        "directau": {"dim": 8},
        "guided": {"dim": 8},
    }
    split = {"kind": "ratio", "refit": refit}
    sections = {"train": {"epochs": 1}, "evaluation": {"ks": [20]}, "split": split}
    model = {"name": name, **tiny[name]}
    return train(build_config({"model": model, "score": {"cold": False, **score}, **sections}))


def ndcg(scorer, bundle) -> float:
    evaluation = evaluate_part(scorer, bundle, "valid", EvaluationConfig(ks=(20,)))
    assert evaluation is not None
    return evaluation.means["ndcg@20"]


@pytest.fixture(scope="module")
def plain():
    return trained(kind="cosine")


@pytest.mark.parametrize("kind", GRIDS)
def test_gamma_is_chosen_on_validation(kind, plain):
    bundle = trained(kind=kind)
    gamma, step = bundle.record.gamma, GRIDS[kind].step / 2
    assert gamma in FINE[kind]
    assert gamma != GRIDS[kind].start
    assert plain.record.gamma is None
    torch.testing.assert_close(plain.scorer.items.norm(dim=1), torch.ones(400))
    degrees = torch.from_numpy(bundle.item_degrees)
    torch.testing.assert_close(
        bundle.scorer.items, rescored(plain.scorer, kind, gamma, degrees).items
    )
    values = {
        other: ndcg(rescored(plain.scorer, kind, other, degrees), bundle)
        for other in (gamma - step, gamma, gamma + step)
    }
    assert max(values, key=values.get) == gamma
    assert values[gamma] == pytest.approx(bundle.record.valid["ndcg@20"], abs=1e-6)
    assert bundle.record.valid["ndcg@20"] > plain.record.valid["ndcg@20"]


def test_the_kind_is_chosen_on_validation_too():
    values = {kind: trained(kind=kind).record.valid["ndcg@20"] for kind in ("prior", "degree")}
    record = trained().record
    assert record.score == max(values, key=values.get)
    assert record.valid["ndcg@20"] == max(values.values())
    refitted = trained(refit=True).record
    assert (refitted.score, refitted.gamma) == (record.score, record.gamma)


@pytest.mark.parametrize("score", [{"gamma": 0.85}, {}])
def test_a_refit_takes_the_gamma_that_was_given_or_chosen(score):
    bundle = trained(refit=True, kind="degree", **score)
    gamma = bundle.record.gamma
    assert gamma == score.get("gamma", gamma) != GRIDS["degree"].start
    degrees = np.maximum(bundle.item_degrees, 1)
    lengths = (degrees / degrees.max()) ** gamma
    np.testing.assert_allclose(bundle.scorer.items.norm(dim=1), lengths, rtol=1e-5)


@pytest.mark.parametrize("kind", GRIDS)
def test_without_validation_gamma_is_where_the_search_would_start(kind):
    pairs = read_dataset((list("aabbcc"), list("xyyzzx"))).interactions
    sections = {"train": {"epochs": 1}, "score": {"kind": kind}, "split": {"valid": 0}}
    config = build_config({"model": {"name": "mgformer", "dim": 2, "rank": 2}, **sections})
    bundle = train(config, Dataset("tiny", pairs))
    assert bundle.record.valid == {}
    assert bundle.record.gamma == GRIDS[kind].start


def test_the_weight_of_the_guide_is_chosen_on_validation():
    bundle = trained("guided", kind="prior")
    record = bundle.record
    assert record.delta in (*DELTAS, *(delta * 0.5**0.5 for delta in DELTAS))
    assert record.delta > 0
    degrees = torch.from_numpy(bundle.item_degrees)
    plain = trained("guided", kind="cosine", guide="none")
    assert plain.record.delta is None
    vectors = rescored(plain.scorer, "prior", record.gamma, degrees)
    guide = bundle.scorer.history.times(1 / record.delta)
    values = {
        delta: ndcg(guided(vectors, guide, delta), bundle)
        for delta in (0.0, record.delta * 0.5**0.5, record.delta, record.delta * 2**0.5)
        if delta <= DELTAS[-1]
    }
    assert max(values, key=values.get) == record.delta
    assert values[record.delta] == pytest.approx(record.valid["ndcg@20"], abs=1e-6)


def test_any_model_with_embeddings_may_have_a_guide():
    pytest.importorskip("implicit")
    for name in ("directau", "ials"):
        alone = trained(name, kind="prior").record
        with_guide = trained(name, kind="prior", guide="ridge").record
        assert alone.delta is None
        assert with_guide.delta > 0
        assert with_guide.valid["ndcg@20"] > alone.valid["ndcg@20"]


def test_a_refit_takes_the_weight_of_the_guide():
    bundle = trained("guided", refit=True, kind="prior")
    assert bundle.record.delta == trained("guided", kind="prior").record.delta
    given = trained("guided", refit=True, kind="prior", delta=3.0)
    assert given.record.delta == 3.0
    assert isinstance(given.scorer, SumScorer)


def test_a_weight_without_a_guide_is_refused():
    for name, options in {"directau": {}, "guided": {"guide": "none"}}.items():
        with pytest.raises(ConfigError, match=f"score.delta: {name} has no guide to weigh"):
            trained(name, delta=1.0, **options)
    assert isinstance(trained("guided", delta=0.0).scorer, DotScorer)


@pytest.mark.parametrize("start", [0.0, 0.3, 2.0, 999.0])
def test_a_climb_over_uneven_values(start):
    values = (0.0, 0.5, 1.0, 4.0, 64.0)
    for peak in values:
        asked = []
        found = climb(lambda v, p=peak, a=asked: a.append(v) or -abs(v - p), values, start)
        assert found == peak
        assert len(asked) == len(set(asked))


def test_ials_may_be_scored_by_degree():
    pytest.importorskip("implicit")
    bundle, plain = trained("ials", kind="degree"), trained("ials")
    assert plain.record.gamma is None
    gamma = bundle.record.gamma
    assert gamma in FINE["degree"]
    degrees = torch.from_numpy(bundle.item_degrees)
    expected = rescored(plain.scorer, "degree", gamma, degrees)
    torch.testing.assert_close(bundle.scorer.items, expected.items, rtol=1e-4, atol=1e-5)
    assert ndcg(expected, bundle) == pytest.approx(bundle.record.valid["ndcg@20"], abs=1e-6)


def test_validation_shows_no_progress_bar_during_training():
    open_phases, inside = [], []

    @contextmanager
    def reporter(name, total):
        inside.extend((name, outer) for outer in open_phases)
        open_phases.append(name)
        yield lambda amount: None
        open_phases.remove(name)

    with reporting(reporter):
        trained(kind="degree", gamma=0.5)
    assert ("svd", "preparing mgformer") in inside
    assert [name for name, outer in inside if outer == "training"] == []
