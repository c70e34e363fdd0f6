"""Configs and records of older versions."""

import pytest

from mgformer.errors import ConfigError
from mgformer.models.mgformer import MGFormer
from mgformer.models.renamed import renamed
from mgformer.runs.config import build_config

RECORD = {
    "dim": 64, "rank": 32, "normalized": True, "encoding_scale": 0.2, "attention": "neighbors",
    "num_layers": 1, "num_heads": 1, "num_neighbors": 16, "num_landmarks": 4096,
    "active_landmarks": 8, "sharpness": 5.0, "residual": "shaped", "attention_weight": 0.5,
    "centered": False, "local_weight": 0.25, "mask": "none", "degree_dim": 16,
    "features": "simplex", "redraw": False, "query_init": "structure", "uniformity_weight": 3.0,
    "uniformity_t": 1.5, "uniformity_sides": "mean",
}  # fmt: skip
"""All options of an old run, as its bundle keeps them; options that are None are left out."""


def test_options_of_today_are_left_alone():
    for options in (
        {}, {"dim": 8, "sharpness": "none", "key_sample": 7, "residual": 0, "mask": "sine"},
        # Not an old config: the error must name the option.
        {"residual": 1.0, "num_neighbors": 8},
    ):  # fmt: skip
        assert renamed("mgformer", options) == ("mgformer", options)
    for name in ("itemknn", "ultragcn"):
        assert renamed(name, {"num_neighbors": 8}) == (name, {"num_neighbors": 8})
    with pytest.raises(ConfigError, match=r"model\.num_neighbors: unknown option of mgformer"):
        build_config({"model": {"name": "mgformer", "residual": 1.0, "num_neighbors": 8}})


def test_the_options_are_not_changed_in_place():
    given = dict(RECORD)
    renamed("mgformer", given)[1]["dim"] = 1
    assert given == RECORD


def test_neighbors_are_now_guided():
    assert renamed("mgformer", RECORD) == (
        "guided",
        {
            "guide": "spectral", "dim": 64, "rank": 32, "encoding_scale": 0.2,
            "num_neighbors": 16, "sharpness": 5.0, "attention_weight": 0.5,
            "graph_weight": 0.25, "uniformity_weight": 3.0, "uniformity_t": 1.5,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_neighbors": 4}, {"num_neighbors": 4}),
        ({"uniformity_sides": "mean", "dim": 8}, {"dim": 8}),
        ({"uniformity_sides": "sum"}, {"uniformity_weight": 2.0}),
        ({"uniformity_sides": "sum", "uniformity_weight": 0.5}, {"uniformity_weight": 1.0}),
        ({"residual": "shaped"}, {}),
        ({"attention": "neighbors", "num_neighbours": 4}, {"num_neighbours": 4}),
    ],
)
def test_neighbors_were_the_default(options, expected):
    defaults = {"guide": "spectral", "num_neighbors": 32, "uniformity_weight": 1.0}
    expected = {**defaults, **expected}
    assert renamed("mgformer", options) == ("guided", expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Without a mask, and with all nodes as keys: these were the defaults.
        ({}, {"mask": "none", "key_sample": "none", "uniformity_weight": 0.5}),
        (
            {"mask": "sine", "key_sample": 9, "centered": True, "redraw": True, "degree_dim": 4},
            {"mask": "sine", "key_sample": 9, "uniformity_weight": 0.5},
        ),
        (
            {"mask": "adjacency", "key_sample": 9, "num_heads": 4, "features": "iid"},
            {
                "mask": "adjacency", "key_sample": "none", "uniformity_weight": 0.5,
                "num_heads": 4, "features": "iid",
            },
        ),
        (
            {"residual": "none", "attention_weight": 0.5, "uniformity_sides": "sum"},
            {"mask": "none", "key_sample": "none", "residual": 0.0, "uniformity_weight": 1.0},
        ),
        (
            {"query_init": "xavier", "sharpness": 4.0, "uniformity_weight": 3.0},
            {
                "mask": "none", "key_sample": "none", "sharpness": "none",
                "uniformity_weight": 1.5,
            },
        ),
    ],
)  # fmt: skip
def test_kernel_attention_is_the_model_of_today(options, expected):
    found = renamed("mgformer", {"attention": "kernel", **options})
    assert found == ("mgformer", expected)
    assert MGFormer.Config(**found[1]).residual == (options.get("residual") != "none")


def test_the_old_preset_of_the_paper_is_that_of_today():
    old = {
        "name": "mgformer", "dim": 64, "rank": 64, "normalized": False, "encoding_scale": 1.0,
        "attention": "kernel", "features": "simplex", "mask": "sine", "residual": "none",
        "query_init": "xavier", "uniformity_weight": 1.0, "uniformity_t": 1.0,
        "uniformity_sides": "sum",
    }  # fmt: skip
    new = {
        "dim": 64, "rank": 64, "normalized": False, "residual": 0, "sharpness": None,
        "key_sample": None, "uniformity_weight": 1.0, "uniformity_t": 1.0,
    }  # fmt: skip
    assert build_config({"model": old}).model == MGFormer.Config(**new)


def test_whole_records_of_kernel_attention_and_of_none_can_be_read():
    record = {**RECORD, "local_weight": 0.0}
    kernel = build_config({"model": {"name": "mgformer", **record, "attention": "kernel"}})
    assert kernel.model == MGFormer.Config(
        dim=64, rank=32, mask="none", attention_weight=0.5, sharpness=5.0,
        key_sample=None, uniformity_weight=1.5, uniformity_t=1.5,
    )  # fmt: skip
    off = build_config({"model": {"name": "mgformer", **record, "attention": "none"}})
    assert off.model == MGFormer.Config(
        dim=64, rank=32, attention_weight=0, uniformity_weight=1.5, uniformity_t=1.5
    )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"attention": "landmarks"}, "attention = landmarks"),
        ({"attention": "softmax"}, "attention = softmax"),
        ({"attention": "neighbors", "mask": "sine"}, "mask = sine with attention = neighbors"),
        ({"num_neighbors": 3, "num_heads": 2}, "num_heads = 2 with attention = neighbors"),
        ({"residual": "none"}, "residual = none with attention = neighbors"),
        ({"neighbor_rank": 7}, "neighbor_rank = 7 with attention = neighbors"),
        ({"attention": "none", "local_weight": 1.0}, "local_weight = 1.0 with attention = none"),
        (
            {"attention": "kernel", "local_weight": 1.0},
            "local_weight = 1.0 with attention = kernel",
        ),
    ],
)
def test_what_is_gone_is_refused_in_one_line(options, what):
    with pytest.raises(ConfigError) as caught:
        build_config({"model": {"name": "mgformer", **options}}, "old.toml")
    assert str(caught.value) == (
        f"old.toml: model.{what}: mgformer no longer has this form of attention, so it cannot be"
        " trained or rebuilt; a run that was trained with it still recommends"
    )
