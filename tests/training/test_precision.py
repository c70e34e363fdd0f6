"""Mixed precision: factors of 8 bits in large products, and the same quality."""

import pytest
import torch

from mgformer.errors import ConfigError
from mgformer.recommend.recommender import Recommender
from mgformer.training import loop

OPTIONS = {
    "mgformer": {"dim": 32, "rank": 32, "key_sample": 256},
    "gotnet": {"dim": 16},
    "ultragcn": {"num_negatives": 100},
}


@pytest.mark.parametrize("model", OPTIONS)
def test_bf16_keeps_the_quality(model, monkeypatch):
    """Within what another seed changes, and it is not fp32 after all."""
    seen = []

    def noted(*arguments, **more):
        seen.append(more["precision"])
        return step_on(*arguments, **more)

    step_on = loop.step_on
    monkeypatch.setattr(loop, "step_on", noted)

    def trained(precision: str, seed: int = 0):
        train = {"epochs": 3, "lr": 1e-2, "precision": precision, "device": "cpu"}
        found = Recommender.fit("demo", model, seed=seed, options=OPTIONS[model], train=train)
        assert seen[-1] == precision
        return found.bundle

    full, half, other = trained("fp32"), trained("bf16"), trained("fp32", seed=1)
    ndcg = [bundle.record.test["ndcg@20"] for bundle in (full, half, other)]
    assert abs(ndcg[0] - ndcg[1]) < max(0.02, 2 * abs(ndcg[0] - ndcg[2]))
    assert all(value.dtype == torch.float32 for value in half.weights.values())
    assert any(not torch.equal(value, half.weights[name]) for name, value in full.weights.items())


def test_models_without_large_products_refuse_bf16():
    with pytest.raises(ConfigError, match=r"^train.precision: got bf16, but Guided has no"):
        Recommender.fit("demo", "guided", train={"precision": "bf16", "epochs": 1})
