import math
from itertools import permutations

import pytest
import torch

from mgformer.nn import naive_attention as naive
from mgformer.nn.features import FEATURE_MAPS, positive_log_features, simplex_projection
from mgformer.nn.kernel_attention import (
    Summary,
    attend,
    edge_attention,
    edge_scores,
    kernel_attention,
    linear_attention,
    log_key_features,
    log_query_features,
    merge,
    sine_mask,
    softmax_attention,
    summarize,
    summarize_chunked,
)

SIZES = [1, 2, 7, 33, 257]
DIM = 4


class Nodes:
    """Random queries, keys, values and angles of nodes, and a projection to two blocks."""

    def __init__(self, rng, count, *, zero=0, scale=1.0, dtype=torch.float64):
        def draw(*shape):
            return torch.from_numpy(rng.standard_normal(shape))

        self.queries, self.keys = draw(count, DIM) * scale, draw(count, DIM) * scale
        self.values = draw(count, 3) + 0.5
        self.angles = torch.from_numpy(rng.uniform(0.05, math.pi / 4, count))
        self.angles[:zero] = 0
        self.direction = draw(count, 3)
        self.projection = simplex_projection(2 * DIM, DIM, rng)
        for name, tensor in vars(self).items():
            needs = name not in {"direction", "projection"}
            setattr(self, name, tensor.to(dtype).requires_grad_(needs))

    def inputs(self, *, masked=True):
        return [self.queries, self.keys, self.values] + [self.angles] * masked

    def slow(self, *, masked=True):
        q = naive.positive_features(self.queries, self.projection)
        k = naive.positive_features(self.keys, self.projection)
        mask = naive.sine_weights(self.angles, self.angles) if masked else 1.0
        return naive.masked_attention(q, k, self.values, mask)

    def fast(self, *, masked=True, chunk=None):
        angles = self.angles if masked else None
        return kernel_attention(
            self.queries, self.keys, self.values, self.projection, angles, chunk=chunk
        )


def gradients(result, nodes, inputs):
    return torch.autograd.grad((result * nodes.direction).sum(), inputs, retain_graph=True)


def assert_same_with_gradients(fast, slow, nodes, inputs):
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    assert slow.abs().max() > 1e-1  # the comparison is not vacuous
    expected = gradients(slow, nodes, inputs)
    for found, gradient in zip(gradients(fast, nodes, inputs), expected, strict=True):
        torch.testing.assert_close(found, gradient, rtol=0, atol=1e-10)
        assert gradient.abs().max() > 1e-4 or len(slow) == 1  # one key: only its value matters


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("chunk", [None, 5, 1000])
def test_kernel_attention_matches_the_quadratic_formula(count, masked, chunk, rng):
    nodes = Nodes(rng, count)
    fast, slow = nodes.fast(masked=masked, chunk=chunk), nodes.slow(masked=masked)
    assert_same_with_gradients(fast, slow, nodes, nodes.inputs(masked=masked))


@pytest.mark.parametrize("count", [2, 7, 33])
@pytest.mark.parametrize("chunk", [None, 2])
def test_angle_zero_has_the_values_and_gradients_of_the_formula(count, chunk, rng):
    nodes = Nodes(rng, count, zero=count // 2)
    assert_same_with_gradients(nodes.fast(chunk=chunk), nodes.slow(), nodes, nodes.inputs())
    assert gradients(nodes.fast(chunk=chunk), nodes, [nodes.angles])[0][0].abs() > 1e-3


def test_right_angles_match_the_formula(rng):
    nodes = Nodes(rng, 7)
    with torch.no_grad():
        nodes.angles[:3] = math.pi / 2  # pairs of them have a weight of about 1e-16
    assert_same_with_gradients(nodes.fast(), nodes.slow(), nodes, nodes.inputs())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("angle", [0.0, math.pi / 2])
@pytest.mark.parametrize("chunk", [None, 3])
def test_angles_of_zero_weight_mean_no_mask(dtype, angle, chunk, rng):
    nodes = Nodes(rng, 7, dtype=dtype)
    with torch.no_grad():
        nodes.angles[:] = angle  # sin(c_i + c_j) = 0 for all pairs
    plain = nodes.fast(masked=False)
    torch.testing.assert_close(nodes.fast(chunk=chunk), plain)
    exact = softmax_attention(nodes.queries, nodes.keys, nodes.values, nodes.angles)
    unmasked = softmax_attention(nodes.queries, nodes.keys, nodes.values)
    if angle == 0:
        torch.testing.assert_close(exact, unmasked)
    for result in (nodes.fast(chunk=chunk), exact):
        assert all(g.isfinite().all() for g in gradients(result, nodes, nodes.inputs()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
@pytest.mark.parametrize("chunk", [None, 5])
def test_any_scale_is_finite(dtype, scale, chunk, rng):
    nodes = Nodes(rng, 33, zero=5, scale=scale, dtype=dtype)
    result = nodes.fast(chunk=chunk)
    assert result.isfinite().all()
    assert (result >= nodes.values.amin(0) - 1e-5).all()  # a mean of values
    assert (result <= nodes.values.amax(0) + 1e-5).all()
    assert result.abs().max() > 0.1
    assert all(g.isfinite().all() for g in gradients(result, nodes, nodes.inputs()))


def test_float32_is_close_to_the_formula(rng):
    nodes = Nodes(rng, 257)
    slow = nodes.slow()
    single = [x.detach().float() for x in (nodes.queries, nodes.keys, nodes.values)]
    fast = kernel_attention(*single, nodes.projection.float(), nodes.angles.detach().float())
    torch.testing.assert_close(fast.double(), slow, rtol=0, atol=1e-5)


def test_queries_may_be_some_of_the_nodes(rng):
    nodes, some = Nodes(rng, 33), torch.tensor([3, 30, 3])
    arguments = nodes.queries[some], nodes.keys, nodes.values
    for chunk in (None, 2):
        found = kernel_attention(
            *arguments,
            nodes.projection,
            nodes.angles,
            query_angles=nodes.angles[some],
            chunk=chunk,
        )
        torch.testing.assert_close(found, nodes.fast()[some], rtol=0, atol=1e-12)


def test_relabelling_nodes_permutes_the_result(rng):
    nodes = Nodes(rng, 33)
    order = torch.from_numpy(rng.permutation(33))
    arguments = [x[order] for x in (nodes.queries, nodes.keys, nodes.values)]
    found = kernel_attention(*arguments, nodes.projection, nodes.angles[order])
    torch.testing.assert_close(found, nodes.fast()[order], rtol=0, atol=1e-12)
    assert (nodes.fast()[order] - nodes.fast()).abs().max() > 1e-2


def test_summaries_merge_in_any_order(rng):
    nodes = Nodes(rng, 20)
    features = log_key_features(nodes.keys, nodes.projection, nodes.angles)
    whole = summarize(features, nodes.values)
    cuts = [slice(0, 1), slice(1, 12), slice(12, 12), slice(12, 20)]  # one of them of no keys
    parts = [summarize(features[cut], nodes.values[cut]) for cut in cuts]
    for a, b, c, d in permutations(parts):
        for merged in (merge(merge(merge(a, b), c), d), merge(a, merge(b, merge(c, d)))):
            for found, expected in zip(merged, whole, strict=True):
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    merged = merge(merge(parts[3], parts[2]), merge(parts[0], parts[1]))
    for name in ("keys", "values", "angles"):
        found, expected = (
            torch.autograd.grad(
                summary.means.square().sum() + summary.log_mass.square().sum(),
                getattr(nodes, name),
                retain_graph=True,
            )[0]
            for summary in (merged, whole)
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
        assert expected.abs().max() > 1e-2


@pytest.mark.parametrize("chunk", [1, 6, 33, 100])
def test_chunked_summary_is_the_summary(chunk, rng):
    nodes = Nodes(rng, 33, zero=2)
    nodes.projection.requires_grad_()
    inputs = [nodes.keys, nodes.values, nodes.projection, nodes.angles]
    weights = torch.from_numpy(rng.standard_normal((4 * DIM, 4)))

    def loss(summary: Summary) -> torch.Tensor:
        return (summary.means * weights[:, :3]).sum() + summary.log_mass @ weights[:, 3]

    slow = loss(
        summarize(log_key_features(nodes.keys, nodes.projection, nodes.angles), nodes.values)
    )
    fast = loss(summarize_chunked(nodes.keys, nodes.values, nodes.projection, nodes.angles, chunk))
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-11)
    expected = torch.autograd.grad(slow, inputs)
    for found, gradient in zip(torch.autograd.grad(fast, inputs), expected, strict=True):
        torch.testing.assert_close(found, gradient, rtol=0, atol=1e-10)
        assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("masked", [True, False])
def test_chunks_keep_no_features_for_the_backward_pass(masked, rng):
    nodes = Nodes(rng, 256)
    inputs = {tensor.data_ptr() for tensor in vars(nodes).values()}

    def kept(chunk):
        """Bytes kept for the backward pass, beyond the inputs."""
        storages = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = nodes.fast(masked=masked, chunk=chunk)
        assert result.requires_grad  # what was kept is still there, none of it counted twice
        return sum(size for place, size in storages.items() if place not in inputs)

    assert kept(None) >= 2 * 256 * 2 * DIM * 8  # features of queries and keys
    assert kept(64) < kept(None) / 4


def test_a_constant_in_a_query_has_no_effect(rng):
    nodes = Nodes(rng, 7)
    summary = summarize(log_key_features(nodes.keys, nodes.projection, None), nodes.values)
    features = log_query_features(nodes.queries, nodes.projection, None)
    shifts = torch.from_numpy(rng.standard_normal((7, 1))) * 100
    torch.testing.assert_close(attend(features + shifts, summary), attend(features, summary))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("name", [name for name in FEATURE_MAPS if not FEATURE_MAPS[name].log])
@pytest.mark.parametrize("masked", [True, False])
def test_plain_features_match_the_quadratic_formula(count, name, masked, rng):
    nodes, feature_map = Nodes(rng, count, zero=count // 3, scale=0.3), FEATURE_MAPS[name]
    projection = None if feature_map.project is None else nodes.projection
    q, k = (feature_map(x + 0.3, projection) for x in (nodes.queries, nodes.keys))
    mask = naive.sine_weights(nodes.angles, nodes.angles) if masked else 1.0
    slow = naive.masked_attention(q, k, nodes.values, mask)
    fast = linear_attention(*(sine_mask(q, k, nodes.angles) if masked else (q, k)), nodes.values)
    assert_same_with_gradients(fast, slow, nodes, nodes.inputs(masked=masked))


def test_sine_mask_takes_the_angles_of_some_queries(rng):
    nodes, some = Nodes(rng, 7), torch.tensor([4, 1])
    q, k = (x.abs() for x in (nodes.queries, nodes.keys))
    masked = sine_mask(q[some], k, nodes.angles, nodes.angles[some])
    every = linear_attention(*sine_mask(q, k, nodes.angles), nodes.values)
    found = linear_attention(*masked, nodes.values)
    torch.testing.assert_close(found, every[some], rtol=0, atol=1e-12)


def test_the_denominator_is_kept_away_from_zero():
    q = torch.tensor([[1.0, 1.0], [1.0, 0.9999], [0.9999, 1.0], [0.0, 0.0]], requires_grad=True)
    k = torch.tensor([[1.0, -1.0]])
    found = linear_attention(q, k, torch.tensor([[2.0]]), floor=0.5)
    # q·k over half the sum of magnitudes, with the sign of q·k
    torch.testing.assert_close(found[:, 0], torch.tensor([0.0, 2e-4, 2e-4, 0.0]), rtol=0, atol=1e-6)
    (gradient,) = torch.autograd.grad(found.sum(), q)
    assert gradient[:3].isfinite().all()


@pytest.mark.parametrize("count", [1, 2, 7, 33])
@pytest.mark.parametrize("chunk", [3, 65_536])
def test_edge_attention_matches_the_dense_mask(count, chunk, rng):
    nodes = Nodes(rng, count)
    adjacency = torch.from_numpy(rng.random((count, count)) < 0.4)
    adjacency[0, 0] = True
    adjacency[count // 2 + 1 :: 3] = False  # nodes without neighbors
    rows, columns = adjacency.nonzero(as_tuple=True)
    logs = [positive_log_features(x, nodes.projection) for x in (nodes.queries, nodes.keys)]
    scores = edge_scores(*logs, rows, columns, chunk=chunk)
    fast = edge_attention(scores, rows, columns, nodes.values, count)
    q, k = (naive.positive_features(x, nodes.projection) for x in (nodes.queries, nodes.keys))
    slow = naive.masked_attention(q, k, nodes.values, adjacency.double())
    assert_same_with_gradients(fast, slow, nodes, nodes.inputs(masked=False))
    assert not fast[~adjacency.any(1)].any()


def test_a_complete_graph_is_attention_without_a_mask(rng):
    nodes = Nodes(rng, 7)
    rows, columns = torch.ones(7, 7).nonzero(as_tuple=True)
    logs = [positive_log_features(x, nodes.projection) for x in (nodes.queries, nodes.keys)]
    found = edge_attention(edge_scores(*logs, rows, columns), rows, columns, nodes.values, 7)
    torch.testing.assert_close(found, nodes.fast(masked=False), rtol=0, atol=1e-12)


def test_edge_attention_is_finite_for_large_scores():
    scores = torch.tensor([1e4, -1e4, -1e4], requires_grad=True)
    rows, columns = torch.tensor([0, 0, 2]), torch.tensor([1, 2, 0])
    values = torch.tensor([[1.0], [2.0], [3.0]])
    found = edge_attention(scores, rows, columns, values, 4)
    assert found[:, 0].tolist() == [2.0, 0.0, 1.0, 0.0]
    found.sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("most", [1, 70, 2**24])
def test_softmax_attention_matches_the_formula(count, masked, most, rng):
    nodes = Nodes(rng, count, zero=count // 3)
    mask = naive.sine_weights(nodes.angles, nodes.angles) if masked else 1.0
    slow = naive.softmax_attention(nodes.queries, nodes.keys, nodes.values, mask)
    angles = nodes.angles if masked else None
    fast = softmax_attention(nodes.queries, nodes.keys, nodes.values, angles, max_scores=most)
    assert_same_with_gradients(fast, slow, nodes, nodes.inputs(masked=masked))


def test_many_features_come_close_to_softmax(rng):
    nodes = Nodes(rng, 33, scale=0.25)
    exact = softmax_attention(nodes.queries, nodes.keys, nodes.values, nodes.angles)
    errors = []
    for blocks in (1, 1600):
        projection = simplex_projection(blocks * DIM, DIM, rng)
        found = kernel_attention(nodes.queries, nodes.keys, nodes.values, projection, nodes.angles)
        errors.append((found - exact).square().mean().sqrt().item())
    assert errors[1] < errors[0] / 10  # √1600 = 40 in expectation
    assert errors[1] < 0.1 * (exact - exact.mean(0)).square().mean().sqrt().item()
