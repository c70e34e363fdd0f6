"""Time our LightGCN beside the formulation of the public LightGCN-PyTorch.

    python -m benchmarks.baselines [--dataset gowalla] [--steps 10] [--repeats 5]

The public one is re-created here: a sparse adjacency by coordinates, `torch.sparse.mm` for every
layer of all nodes, layers stacked and averaged, dense Adam. Its sampling, a Python loop over users,
is left out: both train on the same batches, and ours also draws its negatives. A round is `steps`
steps of each.
"""

import argparse
from itertools import chain, count
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.measure import report
from mgformer.data.dataset import open_dataset
from mgformer.data.sampling import UnseenItems, num_batches, shuffled_batches
from mgformer.data.splits import split_dataset
from mgformer.experiments.timing import interleaved, median_ratio, stepper
from mgformer.graph.bipartite import Graph
from mgformer.runs.config import build_config
from mgformer.training.memory import keep_freed_memory

BATCH, DIM, LAYERS, LR, L2 = 2048, 64, 3, 1e-3, 1e-4


class PublicLightGCN(nn.Module):
    """LightGCN-PyTorch's model, `computer` and `bpr_loss`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.users = nn.Embedding(graph.num_users, DIM)
        self.items = nn.Embedding(graph.num_items, DIM)
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.items.weight, std=0.1)
        entries = graph.adjacency.tocoo()
        places = torch.from_numpy(np.stack([entries.row, entries.col])).long()
        self.graph = torch.sparse_coo_tensor(
            places, torch.from_numpy(entries.data), entries.shape, check_invariants=True
        ).coalesce()

    def loss(self, users: torch.Tensor, items: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.users.weight, self.items.weight])
        layers = [x]
        for _ in range(LAYERS):
            x = torch.sparse.mm(self.graph, x)
            layers.append(x)
        z = torch.stack(layers, dim=1).mean(dim=1)
        of_users, of_items = z.split([self.users.num_embeddings, self.items.num_embeddings])
        u, i, j = of_users[users], of_items[items], of_items[others]
        egos = self.users(users), self.items(items), self.items(others)
        l2 = 0.5 * sum(ego.norm(2).pow(2) for ego in egos) / len(users)
        ranking = functional.softplus((u * j).sum(1) - (u * i).sum(1)).mean()
        return ranking + L2 * l2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="gowalla")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    keep_freed_memory()
    config = build_config({"dataset": options.dataset})
    dataset = open_dataset(config.dataset, config.data)
    pairs = split_dataset(dataset, config.split, np.random.default_rng(0)).train
    graph, generator = Graph(pairs.matrix), torch.Generator().manual_seed(0)

    model = {"name": "lightgcn", "dim": DIM, "num_layers": LAYERS, "l2": L2}
    ours = {"model": model, "train": {"batch_size": BATCH, "lr": LR}}
    public = PublicLightGCN(graph)
    their_optimizer = torch.optim.Adam(public.parameters(), lr=LR)
    rng, unseen = np.random.default_rng(0), UnseenItems(graph.interactions)
    their_batches = chain.from_iterable(shuffled_batches(pairs, BATCH, rng) for _ in count())

    def their_steps() -> None:
        for _ in range(options.steps):
            batch = next(their_batches)
            others = unseen.draw(batch.users, 1, generator)[:, 0]
            loss = public.loss(batch.users, batch.items, others)
            their_optimizer.zero_grad()
            loss.backward()
            their_optimizer.step()

    tasks = {"ours": stepper(build_config(ours), pairs, options.steps), "public": their_steps}
    seconds = interleaved(tasks, options.repeats)
    steps = num_batches(pairs, BATCH)
    epochs = {name: median(times) / options.steps * steps for name, times in seconds.items()}
    ratio = median_ratio(seconds, "public", "ours")
    report(
        "baselines",
        [
            (f"LightGCN, epoch of {steps} steps on {options.dataset}, ours", _s(epochs["ours"])),
            ("the public formulation", _s(epochs["public"])),
            ("public ÷ ours", f"{ratio:.2f}"),
        ],
        {"dataset": options.dataset, "epoch_seconds": epochs, "ratio": ratio},
        save=options.save,
    )


def _s(seconds: float) -> str:
    return f"{seconds:.1f} s"


if __name__ == "__main__":
    main()
