"""Exported vectors rank like the library, and the ONNX model computes the same new users."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch

from mgformer.data.ids import Ids
from mgformer.errors import BundleError, ConfigError
from mgformer.ranking.scorers import DotScorer, HistoryScorer
from mgformer.recommend.export import FORMS, export, parts
from mgformer.recommend.export.card import model_card
from mgformer.recommend.export.index import reranked, to_faiss
from mgformer.recommend.export.onnx_models import to_onnx
from mgformer.recommend.lists import items_of
from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender
from tests.command import assert_one_line, mgformer, succeed


@pytest.fixture(scope="module", params=["prior", "degree", "dot"])
def recommender(request) -> Recommender:
    return Recommender.fit(
        "demo", "directau", score={"kind": request.param}, train={"epochs": 2}, options={"dim": 16}
    )


def test_exported_vectors_rank_like_the_library(recommender, tmp_path: Path):
    user = recommender.bundle.users.values[7]
    best = recommender.recommend([user], 5, exclude_seen=False)
    export(recommender.bundle, "parquet", tmp_path)
    users, items = (pl.read_parquet(tmp_path / f"{s}_vectors.parquet") for s in ("user", "item"))
    vector = users.filter(pl.col("id") == user)["vector"][0].to_numpy()
    scores = items["vector"].to_numpy() @ vector
    assert items["id"].gather(np.argsort(-scores)[:5]).to_list() == best["item"].to_list()
    assert items["name"].gather(np.argsort(-scores)[:5]).to_list() == best["name"].to_list()
    export(recommender.bundle, "npz", tmp_path)
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as arrays:
        assert arrays["user_ids"].tolist() == users["id"].to_list()
        np.testing.assert_array_equal(arrays["items"], items["vector"].to_numpy())


def test_vectors_of_cold_users_are_solved_for_from_their_items(tmp_path: Path):
    options = {"score": {"kind": "prior"}, "train": {"epochs": 2}, "options": {"dim": 16}}
    held_out = Recommender.fit("demo", "directau", split={"kind": "users"}, **options)
    bundle, scorer = held_out.bundle, held_out.bundle.scorer
    cold = np.flatnonzero(np.diff(bundle.history.indptr))
    assert len(cold) == 160
    export(bundle, "npz", tmp_path)
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as arrays:
        for number in cold[:5]:
            own = bundle.items.decode(bundle.known[[int(number)]].indices).to_list()
            vector = held_out.embed_user(own)
            np.testing.assert_allclose(arrays["users"][number], vector, atol=1e-6)
            assert np.abs(scorer.users[number].numpy() - vector).max() > 1e-2
        others = np.setdiff1d(np.arange(800), cold)
        np.testing.assert_array_equal(arrays["users"][others], scorer.users[others].numpy())


def test_the_recall_of_the_faiss_index_is_measured(recommender, tmp_path: Path):
    import faiss

    done = export(recommender.bundle, "faiss", tmp_path)
    assert done["index"] == "flat, exact"
    assert done["recall@20"] > 0.999  # items with equal scores may change places
    assert done["milliseconds_per_search"] > 0
    index = faiss.read_index(str(tmp_path / "items.faiss"))
    assert isinstance(index, faiss.IndexFlat)
    scorer = recommender.bundle.scorer
    _, found = index.search(scorer.users[:1].numpy(), 1)
    assert found[0, 0] == int((scorer.items @ scorer.users[0]).argmax())


def test_the_onnx_model_computes_the_vector_of_a_new_user(recommender, tmp_path: Path):
    import onnxruntime

    done = export(recommender.bundle, "onnx", tmp_path)
    assert done["largest_difference"] < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "fold_in.onnx"))
    numbers = pl.read_parquet(tmp_path / "item_ids.parquet")
    history = ["jazz-03", "jazz-04", "rock-01"]
    asked = numbers.filter(pl.col("id").is_in(history))["number"].to_numpy()
    (vector,) = session.run(None, {"history": asked})
    np.testing.assert_allclose(vector, recommender.embed_user(history), atol=1e-4)
    (one,) = session.run(None, {"history": asked[:1]})
    np.testing.assert_allclose(one, recommender.embed_user(history[:1]), atol=1e-4)


@pytest.fixture(scope="module")
def guided() -> Recommender:
    return Recommender.fit(
        "demo", "guided", score={"delta": 2.0}, train={"epochs": 2}, options={"dim": 16}
    )


def own_items(recommender: Recommender, user: int) -> list[Any]:
    train = recommender.bundle.train
    return train.items.decode(train.indices[train.indptr[user] : train.indptr[user + 1]]).to_list()


def test_exported_vectors_and_guide_rank_like_the_library(guided, tmp_path: Path):
    number = 7
    user = guided.bundle.users.values[number]
    best = guided.recommend([user], 5, exclude_seen=False)
    export(guided.bundle, "parquet", tmp_path)
    users, items = (pl.read_parquet(tmp_path / f"{s}_vectors.parquet") for s in ("user", "item"))
    guide = pl.read_parquet(tmp_path / "guide.parquet")
    vector = users.filter(pl.col("id") == user)["vector"][0].to_numpy()
    own = own_items(guided, number)
    added = guide.filter(pl.col("item").is_in(own)).group_by("adds_to").agg(pl.sum("weight"))
    by_item = dict(added.iter_rows())
    products = items["vector"].to_numpy() @ vector
    scores = [score + by_item.get(i, 0.0) for i, score in zip(items["id"], products, strict=True)]
    order = np.argsort(-np.array(scores))[:5]
    assert items["id"].gather(order).to_list() == best["item"].to_list()
    np.testing.assert_allclose(np.array(scores)[order], best["score"], atol=1e-5)
    export(guided.bundle, "npz", tmp_path)
    weights = sp.load_npz(tmp_path / "guide.npz")
    np.testing.assert_array_equal(weights.toarray(), guided.bundle.scorer.history.weights.toarray())


def test_the_faiss_index_and_the_guide_together(guided, tmp_path: Path):
    done = export(guided.bundle, "faiss", tmp_path)
    assert done["recall@20"] > 0.95
    assert {"items.faiss", "guide.npz"} <= {*done["files"]}


def test_reranking_adds_both_parts():
    rng = np.random.default_rng(0)
    vectors, items = (rng.standard_normal((n, 3)).astype(np.float32) for n in (6, 40))
    added = (3 * rng.random((6, 40)) * (rng.random((6, 40)) < 0.1)).astype(np.float32)
    near = np.argsort(-(vectors @ items.T))[:, :20]
    near[:, 19] = -1  # an index that found fewer
    expected = np.argsort(-(vectors @ items.T + added))[:, :5]
    found = reranked(vectors, items, near, sp.csr_array(added), 5)
    np.testing.assert_array_equal(found, expected)
    assert (expected != near[:, :5]).any()


def test_the_onnx_model_has_both_parts(guided, tmp_path: Path):
    import onnxruntime

    done = export(guided.bundle, "onnx", tmp_path)
    assert done["largest_difference"] < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "fold_in.onnx"))
    numbers = pl.read_parquet(tmp_path / "item_ids.parquet")
    history = ["jazz-03", "jazz-04", "rock-01"]
    asked = numbers.filter(pl.col("id").is_in(history))["number"].to_numpy()
    user, added = session.run(["user", "guide"], {"history": asked})
    scores = guided.bundle.scorer.vectors.items.numpy() @ user + added
    scores[asked] = -np.inf
    best = numbers["id"].gather(np.argsort(-scores)[:5]).to_list()
    assert [item.item for item in guided.answer(Query(history=history, k=5)).items] == best


def test_exports_age_histories_like_the_library(tmp_path: Path):
    import onnxruntime

    score = {"delta": 2.0, "kappa": 2.5}
    aged = Recommender.fit("demo", "guided", score=score, train={"epochs": 1}, options={"dim": 16})
    assert export(aged.bundle, "onnx", tmp_path)["largest_difference"] < 1e-4
    export(aged.bundle, "npz", tmp_path)
    assert np.load(tmp_path / "vectors.npz")["kappa"] == 2.5
    session = onnxruntime.InferenceSession(str(tmp_path / "fold_in.onnx"))
    ids = pl.read_parquet(tmp_path / "item_ids.parquet")["id"].to_list()
    found = []
    for history in (["jazz-03", "sailing-02"], ["sailing-02", "jazz-03"]):
        asked = np.array([ids.index(item) for item in history])
        user, added = session.run(["user", "guide"], {"history": asked})
        scores = aged.bundle.scorer.vectors.items.numpy() @ user + added
        expected = aged.recommend_for([ids[n] for n in asked], len(ids), exclude_seen=False)
        places = [ids.index(item) for item in expected["item"]]
        np.testing.assert_allclose(expected["score"], scores[places], atol=1e-4)
        found.append(scores)
    assert np.abs(found[0] - found[1]).max() > 0.01  # the order matters


def test_many_items_get_a_graph_of_neighbors_and_poor_recall_is_said(
    recommender, tmp_path: Path, monkeypatch, caplog
):
    import faiss

    monkeypatch.setitem(FORMS, "faiss", partial(to_faiss, most_exact=0))
    done = export(recommender.bundle, "faiss", tmp_path)
    index = faiss.downcast_index(faiss.read_index(str(tmp_path / "items.faiss")))
    assert done["index"] == f"HNSW, efSearch {index.hnsw.efSearch}"
    assert done["recall@20"] > 0.95
    assert not [r for r in caplog.records if "items.faiss" in r.getMessage()]
    # An index whose vectors are shuffled finds other items.
    monkeypatch.setattr(faiss.IndexFlatIP, "add", lambda index, rows: None)
    monkeypatch.setitem(FORMS, "faiss", to_faiss)
    assert export(recommender.bundle, "faiss", tmp_path)["recall@20"] == 0
    (warning,) = [r.getMessage() for r in caplog.records if "items.faiss" in r.getMessage()]
    assert "finds only 0.0% of the exact top 20" in warning


@pytest.mark.parametrize("model", ["itemknn", "rp3beta", "ease", "ridge", "puresvd", "gfcf"])
def test_models_that_compare_items_export_their_weights(model: str, tmp_path: Path):
    import onnxruntime

    score = {"eta": 0.3, "kappa": 1.5}
    bundle = Recommender.fit("demo", model, score=score).bundle
    scorer, users = bundle.scorer, torch.tensor([3, 200])
    assert isinstance(scorer, HistoryScorer)
    assert scorer.item_factors is not None
    expected = scorer.scores(users).numpy()
    for form in ("npz", "parquet", "onnx"):
        export(bundle, form, tmp_path)
    dense = (tmp_path / "item_weights.npy").exists()
    assert dense == (model in ("ease", "puresvd", "gfcf"))
    if dense:
        weights = np.load(tmp_path / "item_weights.npy")
    else:
        weights = sp.load_npz(tmp_path / "item_weights.npz")
    assert weights.shape == (400, 400)
    arrays = np.load(tmp_path / "items.npz")
    assert arrays["item_ids"].tolist() == bundle.items.values.to_list()
    assert arrays["kappa"] == 1.5
    session = onnxruntime.InferenceSession(tmp_path / "scores.onnx")
    histories = [items_of(bundle, int(user)) for user in users]
    for history, row in zip(histories, expected, strict=True):
        places = np.arange(1, len(history) + 1) / len(history)
        counts = np.exp(-1.5 * (1 - places))  # the latest is last
        np.testing.assert_allclose(counts @ weights[history], row, atol=1e-5)
        (scores,) = session.run(["scores"], {"history": history.astype(np.int64)})
        np.testing.assert_allclose(scores, row, atol=1e-5)
        backwards = session.run(["scores"], {"history": history[::-1].astype(np.int64)})[0]
        assert np.abs(backwards - row).max() > 1e-3  # the order matters
    assert np.abs(expected).max() > 0.01
    table = pl.read_parquet(tmp_path / "item_weights.parquet")
    if dense:
        assert table["item"].to_list() == bundle.items.values.to_list()
        np.testing.assert_array_equal(table["weights"].to_numpy(), weights)
    else:
        rows, columns = (bundle.items.encode(table[name].to_list()) for name in ("item", "adds_to"))
        read = sp.csr_array((table["weight"].to_numpy(), (rows, columns)), shape=weights.shape)
        np.testing.assert_array_equal(read.toarray(), weights.toarray())
    with pytest.raises(ConfigError, match=f"{model} has no vectors to search among"):
        export(bundle, "faiss", tmp_path)


def test_a_matrix_that_is_too_large_is_refused(tmp_path: Path, monkeypatch):
    bundle = Recommender.fit("demo", "ease").bundle
    monkeypatch.setattr(parts, "MOST_WEIGHTS", 400 * 400 - 1)
    for form in ("npz", "onnx"):
        with pytest.raises(ConfigError, match="160,000 entries, expected at most 159,999; train"):
            export(bundle, form, tmp_path)


def test_a_dense_guide_is_exported_too(tmp_path: Path):
    bundle = Recommender.fit(
        "demo", "guided", score={"guide": "gfcf", "delta": 1.0}, train={"epochs": 1}
    ).bundle
    for form in ("npz", "onnx", "faiss"):
        done = export(bundle, form, tmp_path)
    assert done["recall@20"] > 0.999
    weights = np.load(tmp_path / "guide.npy")
    rows = bundle.scorer.history.histories[:3]
    expected = bundle.scorer.history.scores(torch.arange(3)).numpy()
    np.testing.assert_allclose(rows @ weights, expected, atol=1e-5)
    assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize("fault", ["wrong", "not finite"])
def test_an_onnx_model_that_differs_from_the_library_is_not_written(
    fault, recommender, tmp_path: Path, monkeypatch
):
    if fault == "wrong":
        monkeypatch.setitem(FORMS, "onnx", partial(to_onnx, rounds=1))
    else:
        fold_in = DotScorer.fold_in

        def broken(scorer: DotScorer, histories: Any) -> DotScorer:
            return replace(scorer, users=fold_in(scorer, histories).users * torch.nan)

        monkeypatch.setattr(DotScorer, "fold_in", broken)
    with pytest.raises(BundleError, match="it differs from the library by"):
        export(recommender.bundle, "onnx", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_model_card_has_data_protocol_and_figures(recommender):
    card, record = model_card(recommender.bundle), recommender.bundle.record
    assert record.fingerprint in card
    assert record.protocol in card
    figures = (record.figures(part)["ndcg@20"] for part in ("test", "popularity", "valid"))
    assert f"| ndcg@20 | {' | '.join(f'{figure:.4f}' for figure in figures)} |" in card
    assert "- seed: 0\n" in card
    assert f"- epochs: {record.epochs}\n" in card


def test_the_model_card_of_a_model_without_epochs(tmp_path: Path):
    export(Recommender.fit("demo", "itemknn").bundle, "card", tmp_path)
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert card.startswith("# itemknn on demo")
    assert "epochs:" not in card


def test_export_and_similar_on_the_command_line(recommender, tmp_path: Path):
    recommender.save(tmp_path / "run")
    done = json.loads(succeed("export", tmp_path / "run", "--format", "npz", "--json"))
    assert (Path(done["folder"]) / "vectors.npz").exists()
    assert_one_line(mgformer("export", tmp_path / "run", "--format", "csv"), "expected one of")
    (tmp_path / "file").write_text("")
    for taken in (tmp_path / "file", tmp_path / "file" / "below"):
        done = mgformer("export", tmp_path / "run", "--format", "card", "--out", taken)
        assert_one_line(done, "is a file, expected a folder")
    shown = succeed("similar", tmp_path / "run", "--item", "jazz-03", "-k", 2)
    assert recommender.similar_items("jazz-03", 1)["item"][0] in shown
    found = json.loads(
        succeed("similar", tmp_path / "run", "--user", "amir-186", "-k", 2, "--json")
    )
    assert len(found["similar"]) == 2
    assert_one_line(mgformer("similar", tmp_path / "run"), "either --item ID or --user ID")


def test_an_item_without_similar_items(tmp_path: Path):
    Recommender.fit(([1, 1, 2], [5, 6, 7]), "itemknn", split={"valid": 0, "test": 0}).save(
        tmp_path / "run"
    )
    assert succeed("similar", tmp_path / "run", "--item", 7) == "nothing is similar to 7\n"


def test_integer_ids_are_exported_as_integers(tmp_path: Path):
    rng = np.random.default_rng(0)
    pairs = (rng.integers(0, 30, 300), rng.integers(0, 20, 300))
    bundle = Recommender.fit(pairs, "bprmf", train={"epochs": 1}).bundle
    assert isinstance(bundle.users, Ids)
    export(bundle, "npz", tmp_path)
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as arrays:
        assert arrays["user_ids"].dtype == np.int64
