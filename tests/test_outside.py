"""Metrics and splits from outside: what is used, left out, or refused."""

import numpy as np
import pytest

from mgformer import outside
from mgformer.data.dataset import open_dataset
from mgformer.data.options import SplitConfig
from mgformer.data.splits import split_dataset
from mgformer.errors import ConfigError, DataError
from mgformer.outside import import_object
from mgformer.ranking import metrics
from mgformer.runs.config import build_config


def halved_recall(hits, relevant, k):
    return metrics.recall(hits, relevant, k) / 2


def recall(hits, relevant, k):
    return metrics.recall(hits, relevant, k)


def by_user(pairs, options, rng):
    """Test is the last pair of every user, validation the one before."""
    labels = np.zeros(len(pairs), dtype=np.int8)
    ends = pairs.indptr[1:]
    labels[ends - 1], labels[ends - 2] = 2, 1
    return labels


def wrong_labels(pairs, options, rng):
    return np.full(len(pairs), 3)


def too_few(pairs, options, rng):
    return np.zeros(3)


def here(function) -> str:
    return f"{__name__}:{function.__name__}"


@pytest.fixture(autouse=True)
def _nothing_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgformer.outside.imported", {})


def test_a_metric_is_used_by_the_name_of_its_function() -> None:
    import_object(here(halved_recall))
    assert metrics.outside_metrics([here(halved_recall)]) == {"halved_recall": halved_recall}


def test_a_metric_that_the_user_did_not_name_is_left_out(caplog) -> None:
    with caplog.at_level("INFO", "mgformer"):
        assert metrics.outside_metrics([here(halved_recall)]) == {}
    assert f"add --metric {here(halved_recall)}" in caplog.text


def test_a_metric_cannot_replace_one_of_ours() -> None:
    import_object(here(recall))
    with pytest.raises(ConfigError, match="name is none of recall, ndcg"):
        metrics.outside_metrics([here(recall)])
    outside.imported["somewhere:number"] = 3
    with pytest.raises(ConfigError, match="must be a function"):
        metrics.outside_metrics(["somewhere:number"])


def test_a_config_imports_only_what_the_user_wrote() -> None:
    raw = {
        "model": {"name": "ease"},
        "evaluation": {"metrics": [here(halved_recall)]},
        "split": {"kind": here(by_user)},
    }
    untrusted = build_config(raw, trusted=False)
    assert metrics.outside_metrics(untrusted.evaluation.metrics) == {}
    trusted = build_config(raw)
    assert metrics.outside_metrics(trusted.evaluation.metrics) == {"halved_recall": halved_recall}
    with pytest.raises(ConfigError, match="config: no module 'not_there'"):
        build_config({"split": {"kind": "not_there:split"}})


def test_runs_without_outside_metrics_have_the_mapping_they_always_had() -> None:
    assert set(build_config({"model": {"name": "ease"}}).to_mapping()["evaluation"]) == {
        "ks",
        "memory_mb",
    }


def test_a_split_from_outside_labels_the_pairs() -> None:
    import_object(here(by_user))
    dataset, rng = open_dataset("demo"), np.random.default_rng(0)
    split = split_dataset(dataset, SplitConfig(kind=here(by_user)), rng)
    assert split.kind == here(by_user)
    assert len(split.test) == len(split.valid) == dataset.interactions.num_users
    assert len(split.train) == len(dataset.interactions) - 2 * dataset.interactions.num_users


@pytest.mark.parametrize("function", [wrong_labels, too_few])
def test_labels_that_are_no_parts_are_refused(function) -> None:
    import_object(here(function))
    with pytest.raises(DataError, match="expected 12260 labels that are 0"):
        split_dataset(
            open_dataset("demo"), SplitConfig(kind=here(function)), np.random.default_rng(0)
        )


def test_a_split_that_the_user_did_not_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"add --set split\.kind=somewhere:split"):
        split_dataset(
            open_dataset("demo"), SplitConfig(kind="somewhere:split"), np.random.default_rng(0)
        )
