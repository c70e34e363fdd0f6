"""The table of models with and without order: which runs it has, and what it says."""

import pytest

from mgformer.errors import ConfigError
from mgformer.experiments.order_rows import (
    DATASETS,
    MODELS,
    agreement,
    order_rows,
    order_table,
    split_of,
)
from mgformer.experiments.reproduce import order_provenance
from mgformer.experiments.summary import Figure, Summary


def measured(test: float, valid: float, protocol: str = "given") -> Summary:
    figures = [
        {"recall@20": Figure(mean=2 * ndcg), "ndcg@20": Figure(mean=ndcg)} for ndcg in (test, valid)
    ]
    return Summary(
        dataset="gowalla", fingerprint="1x1-1", protocol=protocol, split="given", seeds=[0],
        test=figures[0], valid=figures[1], epochs=[0], commits=["abc"],
    )  # fmt: skip


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_ways_of_a_model_differ_in_validation_and_time_only(dataset):
    rows, ways = order_rows(dataset), DATASETS[dataset]
    assert len(rows) == len(ways) * len(MODELS)
    for start in range(0, len(rows), len(ways)):
        order, no_order, *others = (row.config for row in rows[start : start + len(ways)])
        assert (order.score.time, no_order.score.time) == ("auto", "off")
        assert order.split == no_order.split
        for config in (order, no_order, *others):
            assert (config.model, config.train) == (order.model, order.train)
            assert (config.dataset, config.split.kind) == (dataset, split_of(dataset))
        for random in others:
            assert (order.split.valid_kind, random.split.valid_kind) == ("auto", "random")
            assert random.score.time == "off"
        assert rows[start].against == rows[start + 1].name


def test_options_come_from_the_preset_of_the_split():
    (row, *_) = order_rows("yelp2018", ["guided"])
    assert row.config.model.graph_weight == 1  # guided-lightgcn.toml; guided.toml has no hop
    (row, *_) = order_rows("gowalla", ["simgcl-onepass"])
    assert row.config.model.passes == "one"
    (row, *_) = order_rows("ml-latest-small", ["simgcl-onepass"])
    assert row.config.model.passes == "one"
    (row, *_) = order_rows("amazon-beauty", ["ridge"])
    assert row.config.model.l2 == order_rows("amazon-beauty", ["guided"])[0].config.model.l2
    (row, *_) = order_rows("ml-latest-small", ["ridge"])
    assert row.config.model.l2 is None


def test_other_datasets_and_models_are_refused():
    with pytest.raises(ConfigError, match=r"expected one of gowalla, .*, got 'demo'"):
        order_rows("demo")
    with pytest.raises(ConfigError, match="no model 'gpt'"):
        order_rows("gowalla", ["gpt"])


def test_the_table_has_a_line_for_each_model():
    found = {
        "gfcf-order": measured(0.3, 0.33),
        "gfcf-no-order": measured(0.2, 0.25),
        "ease-random": measured(0.9, 0.15),
    }
    table = order_table(found, {"gfcf-order": 0.004})
    lines = {line[0]: line[1:] for line in table.rows}
    assert lines == {
        "ease": ["–", "–", "–", "–", "–", "0.1500"],
        "gfcf": ["0.6000 / 0.3000", "0.4000 / 0.2000", "0.004", "0.3300", "0.2500", "–"],
    }


def test_without_random_validation_the_table_has_no_column_for_it():
    table = order_table({"ease-order": measured(0.2, 0.3)}, {})
    assert table.columns[-2:] == ["validation NDCG@20: with order", "validation without"]
    assert len({*table.columns}) == len(table.columns), "JSON would lose a column of the same name"
    assert table.rows == [["ease", "0.4000 / 0.2000", "–", "–", "0.3000", "–"]]


def test_ranks_of_validation_and_test():
    found = {}
    for place, model in enumerate(("ease", "ridge", "gfcf", "guided")):
        found[f"{model}-no-order"] = measured(test=0.1 + place, valid=0.2 + place)
        found[f"{model}-random"] = measured(test=0.0, valid=1 - place)
    assert "over 4 models without order: last fifth 1.000, random tenth -1.000" in agreement(found)
    assert agreement({"ease-no-order": measured(1, 1), "ease-random": measured(1, 1)}) == ""
    assert "Commits: abc" in order_provenance(found, "mgformer reproduce order")
