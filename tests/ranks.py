"""Runs functions in several processes that train together, as torchrun would start them."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.multiprocessing as mp

from mgformer.data.sampling import shuffled_batches
from mgformer.graph.bipartite import Graph
from mgformer.graph.regression import local_ridges, nearest_items
from mgformer.graph.sparse import top_of_product
from mgformer.models import model_class
from mgformer.models.base import TrainableModel
from mgformer.nn.kernel_attention import kernel_attention
from mgformer.runs.config import build_config
from mgformer.runs.train import train
from mgformer.training import loop
from mgformer.training.optimizers import build_optimizers
from mgformer.training.options import TrainConfig
from mgformer.world import current, joined

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "guided": ("guided", {"dim": 8, "num_neighbors": 3}),
    "guided, one hop": ("guided", {"dim": 8, "num_neighbors": 3, "graph_weight": 0.5}),
    "directau": ("directau", {"dim": 8, "encoder": "mf"}),
    "bprmf": ("bprmf", {"dim": 8, "num_negatives": 3}),
    "mgformer": ("mgformer", {"dim": 8, "rank": 4, "key_sample": 20}),
    "mgformer, all keys": ("mgformer", {"dim": 8, "rank": 0, "residual": 0, "key_sample": None}),
    "mgformer, deep": (
        "mgformer",
        {"dim": 6, "rank": 6, "num_layers": 2, "num_heads": 2, "mask": "none", "key_sample": 5},
    ),
    "mgformer, paper": (
        "mgformer",
        {"dim": 8, "rank": 8, "residual": 0, "num_heads": 2, "features": "fourier"},
    ),
    "lightgcn": ("lightgcn", {"dim": 8, "num_layers": 2, "num_negatives": 2, "l2": 1.0}),
    "directau, graph": ("directau", {"dim": 8, "num_layers": 1}),
    "mgformer, no attention": ("mgformer", {"dim": 8, "rank": 4, "attention_weight": 0}),
}
TABLES = ("tokens", "embeddings")
OPTIMIZERS = ("adam", "rows")
DELICATE = {"mgformer, all keys", "mgformer, deep", "mgformer, paper"}
"""Adam enlarges the rounding errors of their small gradients: they are compared in float64 only."""
DEMO = {
    "dataset": "demo",
    "model": {"name": "guided", "dim": 16},
    "train": {"epochs": 3, "lr": 1e-2, "device": "cpu", "validation_users": 0},
}


KEYS_OF = slice(0, 5), slice(5, 5), slice(5, 12)
DENSE = {"lightgcn", "directau, graph"}
"""Every step reaches all their rows."""
QUERIES_OF = slice(0, 9), slice(9, 12), slice(12, 12)


def run(size: int, function: Callable[[], Any], folder: Path) -> list[Any]:
    """Return what a function returns in each of the processes; it must be plain JSON."""
    if size == 1:
        return [function()]
    mp.spawn(_rank, (size, free_port(), function, folder), nprocs=size)
    return [json.loads((folder / f"{size}-{rank}.json").read_text()) for rank in range(size)]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _rank(rank: int, size: int, port: int, function: Callable[[], Any], folder: Path) -> None:
    torch.set_num_threads(1)
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": size}
    os.environ.update({name: str(value) for name, value in settings.items()})
    with joined():
        result = function()
    (folder / f"{size}-{rank}.json").write_text(json.dumps(result))


def planted(num_users: int = 43, num_items: int = 31) -> Graph:
    """A graph whose users like one of three kinds of items; the last user has none."""
    rng = np.random.default_rng(5)
    alike = np.equal.outer(np.arange(num_users) % 3, np.arange(num_items) % 3)
    pairs = rng.random(alike.shape) < np.where(alike, 0.6, 0.1)
    pairs[-1] = False
    return Graph(sp.csr_array(pairs.astype(np.float32)))


def built(form: str, graph: Graph) -> TrainableModel:
    name, options = FORMS[form]
    model = model_class(name)(model_class(name).Config(**options), graph, np.random.default_rng(0))
    assert isinstance(model, TrainableModel)
    return model


def steps(
    form: str, optimizer: str, count: int = 20, size: int = 33, *, double: bool = False
) -> dict[str, Any]:
    """Return the losses of some steps, the vectors after them, and the bytes of a step."""
    from tests.models.test_contract import pairs_of

    graph, world = planted(), current()
    model, rng = built(form, graph), np.random.default_rng(1)
    if double:
        model.double()
    if world.size > 1:
        model.shard(world)
    optimizers = build_optimizers(model, TrainConfig(lr=3e-3, optimizer=optimizer))
    generator, losses, sent = torch.Generator().manual_seed(2), [], []
    while len(losses) < count:
        for batch in shuffled_batches(pairs_of(graph), size, rng):
            before = world.sent
            loss = loop.step_on(batch, model, optimizers, generator)
            sent.append(world.sent - before)
            losses.append(float(world.summed(loss)))
    with torch.no_grad():
        scorer = model.scorer()
    own = next(getattr(model, name) for name in TABLES if hasattr(model, name)).numel()
    vectors = torch.cat([scorer.users, scorer.items])
    return {"losses": losses[:count], "vectors": vectors.tolist(), "own": own, "sent": sent[0]}


def structure() -> dict[str, Any]:
    """Return lists and regressions in several blocks, and how many bytes were sent for them."""
    before, r = current().sent, planted(60, 40).interactions
    found = {
        "lists": top_of_product(sp.csr_array(r.T), r, 5, block_entries=400),
        "of one block": nearest_items(r, 7),
        "regression": local_ridges(r, 9, (1.0, 5.0), 0.1, block_entries=300)[1],
        "wanted": local_ridges(r, 9, (3.0,), 0.1, wanted=np.arange(40) % 7 == 0)[0],
    }
    parts = {
        name: [str(part.dtype), part.tolist()]
        for kind, m in found.items()
        for name, part in ((f"{kind}.{n}", getattr(m, n)) for n in ("indptr", "indices", "data"))
    }
    return {"parts": parts, "sent": current().sent - before}


def everything() -> dict[str, Any]:
    """Structure, steps of all models, and a whole run on the demo data."""
    found: dict[str, Any] = {form: steps(form, "adam", double=True) for form in FORMS}
    found |= {
        f"{form}/{optimizer}": steps(form, optimizer)
        for form in FORMS
        for optimizer in OPTIMIZERS
        if form not in DELICATE and not (optimizer == "rows" and form in DENSE)
    }
    found = {"steps": found, "structure": structure()}
    bundle = train(build_config(DEMO))
    record = bundle.record
    assert bundle.per_user is not None
    found["run"] = {
        "test": record.test,
        "valid": record.valid,
        "popularity": record.popularity,
        "users": len(bundle.per_user),
        "delta": record.delta,
        "epochs": record.epochs,
    }
    return found


def merged_attention() -> dict[str, list[Any]]:
    """Return own rows of attention over the keys of three processes, and gradients of own inputs.

    The second process has no keys, the third one no queries. The loss is summed over processes.
    """
    from tests.nn.test_kernel_attention import Nodes

    world, found = current(), {}
    for scale in (1.0, 4.0):
        nodes = Nodes(np.random.default_rng(3), 12, zero=1, scale=scale)
        keys, queries = (cuts[world.rank] for cuts in (KEYS_OF, QUERIES_OF))
        own = kernel_attention(
            nodes.queries[queries],
            nodes.keys[keys],
            nodes.values[keys],
            nodes.projection,
            nodes.angles[keys],
            query_angles=nodes.angles[queries],
            world=world,
        )
        (own * nodes.direction[queries]).sum().backward()
        gradients = [part.grad for part in nodes.inputs()]
        found[f"{scale:g}"] = [part.detach().tolist() for part in (own, *gradients)]
    return found


def bytes_of_a_step(form: str, num_nodes: int) -> int:
    """Return the bytes that a rank sends in one step on a generated graph."""
    from benchmarks.training import generated

    pairs = generated(num_nodes)
    model = built(form, Graph(pairs.matrix))
    model.shard(current())
    before = current().sent
    optimizers = build_optimizers(model, TrainConfig())
    batch = next(shuffled_batches(pairs, 64, np.random.default_rng(0)))
    loop.step_on(batch, model, optimizers, torch.Generator().manual_seed(0))
    return current().sent - before


def bytes_of_steps() -> dict[str, list[int]]:
    """Return the bytes of a step on graphs of two sizes."""
    forms = "guided", "mgformer, deep", "lightgcn"
    return {form: [bytes_of_a_step(form, size) for size in (400, 4_000)] for form in forms}
