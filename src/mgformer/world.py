"""The processes that train one model together; each is called a rank.

`torchrun` starts them. A rank owns a block of the users and a block of the items. It keeps their
rows of every table, and everything that belongs to these rows: optimizer state, lists, degrees.

All ranks draw the same batch from the same seed. For each row that the batch needs, every rank sums
what it can from its own rows, and the sums meet at the rank that works on this share of the batch.
So no table row travels, messages have a fixed size, and their size depends on the batch and the
channels only. The way back is the same: the gradients of a share go to all ranks, and each of them
adds what belongs to its own rows. Layers of a graph are the exception: they need all rows.

Every sum over ranks adds in the order of the ranks, so all ranks get the same bits.

Shapes: R ranks, N nodes (users, then items), n own nodes, B rows of a batch, c = ⌈B/R⌉ of a share.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from mgformer.device import HOST

T = TypeVar("T", bound=np.generic)
TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for the others: they prepare and write at different speeds."""
# The name before torch 2.13 is deprecated there.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
LOST = "another process of this training ended or cannot be reached"


class LostRankError(ConnectionError):
    """Another rank has ended: this one cannot go on."""


@dataclass
class World:
    """The ranks of a training; a single process is a world of its own."""

    rank: int = 0
    size: int = 1
    sent: int = field(default=0, compare=False)
    """Bytes that this rank has sent to others."""

    @property
    def leads(self) -> bool:
        """Whether this rank writes and prints."""
        return self.rank == 0

    def gathered(self, own: Tensor) -> Tensor:
        """Return the tensors of all ranks [R, …], which have the same shape."""
        if self.size == 1:
            return own[None]
        every = own.new_empty((self.size * max(1, own.numel()),))
        flat = own.detach().reshape(-1) if own.numel() else own.new_zeros(1)
        self._count(flat)
        with _lost():
            _all_gather(every, flat.contiguous())
        return every.reshape(self.size, -1)[:, : own.numel()].reshape(self.size, *own.shape)

    def concatenated(self, own: NDArray[T]) -> NDArray[T]:
        """Return the rows of the arrays [n, …] of all ranks, in the order of the ranks."""
        if self.size == 1:
            return own
        counts = self.gathered(torch.tensor([len(own)], device=HOST)).flatten().tolist()
        padded = np.zeros((max(counts), *own.shape[1:]), dtype=own.dtype)
        padded[: len(own)] = own
        every = self.gathered(torch.from_numpy(padded)).numpy()
        return np.concatenate([rows[:count] for rows, count in zip(every, counts, strict=True)])

    def part_of(self, count: int) -> slice:
        """Return the block of `count` things that belongs to this rank; blocks follow the ranks."""
        edges = bounds(count, self.size)
        return slice(edges[self.rank], edges[self.rank + 1])

    def exchanged(self, blocks: Tensor) -> Tensor:
        """Return block r of every rank's blocks [R, …], for the own rank r."""
        if self.size == 1:
            return blocks
        found, blocks = torch.empty_like(blocks), blocks.contiguous()
        self._count(blocks[0])
        with _lost():
            dist.all_to_all_single(found, blocks)
        return found

    def summed(self, own: Tensor) -> Tensor:
        """Return the sum over ranks, without gradients."""
        return self.gathered(own).sum(0) if self.size > 1 else own

    def largest(self, own: Tensor) -> Tensor:
        """Return the largest entries over ranks, without gradients."""
        return self.gathered(own).amax(0) if self.size > 1 else own.detach()

    def total(self, own: Tensor) -> Tensor:
        """Return the sum over ranks, with gradients: a loss of any rank may depend on it."""
        if self.size == 1:
            return own
        found: Tensor = _Total.apply(own, self)  # type: ignore[no-untyped-call]
        return found

    def agreed(self, mine: float) -> float:
        """Return the number of the first rank: clocks differ."""
        if self.size == 1:
            return mine
        return float(self.gathered(torch.tensor([mine], dtype=torch.float64, device="cpu"))[0])

    def together(self) -> None:
        """Wait until all ranks are here."""
        self.agreed(0.0)

    def _count(self, part: Tensor) -> None:
        self.sent += (self.size - 1) * part.numel() * part.element_size()


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo and nccl have no class of their own for it
        reason = " ".join(str(error).split())[:100]
        raise LostRankError(
            f"{LOST} ({reason}); start the same command again with --resume"
            " (torchrun --max-restarts does)"
        ) from error


ALONE = World()
_current = ALONE


def current() -> World:
    """Return the world of this process."""
    return _current


def is_launched() -> bool:
    """Return whether torchrun has started this process beside others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_restarted() -> bool:
    """Return whether torchrun has started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def is_first() -> bool:
    """Return whether this process writes and prints, before it has joined the others."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def joined(device: torch.device = HOST) -> Iterator[World]:
    """Join the ranks that torchrun has started, for a while; a single process stays alone."""
    global _current
    if not is_launched():
        yield ALONE
        return
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    with _lost():
        store, rank, size = next(rendezvous("env://"))
        # The store outlives a restart: addresses of processes that ended must not be found in it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        fresh = PrefixStore(f"mgformer/{attempt}", store)
        dist.init_process_group(backend, store=fresh, rank=rank, world_size=size, timeout=TIMEOUT)
    _current = World(dist.get_rank(), dist.get_world_size())
    try:
        yield _current
    finally:
        _current = ALONE
        dist.destroy_process_group()


def bounds(count: int, size: int) -> list[int]:
    """Return where the blocks of `count` things begin, and where the last one ends."""
    return [count * rank // size for rank in range(size + 1)]


class Shards:
    """Who owns which nodes, and how rows meet."""

    def __init__(self, world: World, num_users: int, num_items: int) -> None:
        self.world, self.num_nodes = world, num_users + num_items
        blocks = [
            [np.arange(start, stop) + first for start, stop in pairwise(bounds(count, world.size))]
            for count, first in ((num_users, 0), (num_items, num_users))
        ]
        self.nodes_of: list[NDArray[np.int64]] = [
            np.concatenate(both) for both in zip(*blocks, strict=True)
        ]
        self.own = torch.from_numpy(self.nodes_of[world.rank])  # [n]

    @property
    def longest(self) -> int:
        """Nodes of the rank that owns most."""
        return max(len(nodes) for nodes in self.nodes_of)

    def places(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return where own nodes stand in a flat list of nodes, and their own rows."""
        own = self.own.to(nodes.device)
        rows = torch.searchsorted(own, nodes).clamp_max(max(len(own) - 1, 0))
        mine = (own[rows] == nodes).nonzero()[:, 0] if len(own) else nodes[:0]
        return mine, rows[mine]

    def part(self, size: int) -> slice:
        """Return the share of this rank in a batch of B rows."""
        share = -(-size // self.world.size)
        start = min(size, self.world.rank * share)
        return slice(start, min(size, start + share))

    def share(self, partial: Tensor) -> Tensor:
        """Return the own share [≤ c, …] of the sum of all ranks' rows [B, …], with gradients."""
        found: Tensor = _Share.apply(partial, self)  # type: ignore[no-untyped-call]
        return found

    def every(self, own: Tensor, size: int) -> Tensor:
        """Return the rows [B, …] of all shares, without gradients."""
        share = -(-size // self.world.size)
        padded = own.new_zeros(share, *own.shape[1:])
        padded[: len(own)] = own.detach()
        return self.world.gathered(padded).flatten(0, 1)[:size]

    def whole(self, own: Tensor) -> Tensor:
        """Return the rows [N, …] of all nodes from the own rows [n, …], with gradients."""
        found: Tensor = _Whole.apply(own, self)  # type: ignore[no-untyped-call]
        return found

    def rows(self, table: Tensor, nodes: Tensor, *, sparse: bool = False) -> Tensor:
        """Return the own share of rows [B, …, d] for nodes [B, …], from own rows [n, d]."""
        return self.encoded(
            nodes, lambda rows: torch.nn.functional.embedding(rows, table, sparse=sparse)
        )

    def encoded(self, nodes: Tensor, encode: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the own share of rows [B, …, d] for nodes [B, …].

        Every rank calls `encode` for its own nodes among them; they may repeat.
        """
        mine, rows = self.places(nodes.flatten())
        found = encode(rows)
        partial = found.new_zeros(nodes.numel(), found.shape[1]).index_put((mine,), found)
        return self.share(partial.view(*nodes.shape, found.shape[1]))


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, world: World) -> Tensor:
        ctx.world = world
        return world.summed(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.world.summed(gradient), None


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, partial: Tensor, shards: Shards) -> Tensor:
        ctx.shards, ctx.size = shards, len(partial)
        ranks = shards.world.size
        share = -(-len(partial) // ranks)
        blocks = partial.new_zeros(ranks * share, *partial.shape[1:])
        blocks[: len(partial)] = partial
        own = shards.world.exchanged(blocks.view(ranks, share, *partial.shape[1:])).sum(0)
        part = shards.part(len(partial))
        return own[: part.stop - part.start]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.shards.every(gradient, ctx.size), None


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        padded = own.new_zeros(shards.longest, *own.shape[1:])
        padded[: len(own)] = own
        found = own.new_empty(shards.num_nodes, *own.shape[1:])
        for nodes, rows in zip(shards.nodes_of, shards.world.gathered(padded), strict=True):
            found[torch.from_numpy(nodes).to(found.device)] = rows[: len(nodes)]
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        shards: Shards = ctx.shards
        blocks = gradient.new_zeros(shards.world.size, shards.longest, *gradient.shape[1:])
        for rank, nodes in enumerate(shards.nodes_of):
            blocks[rank, : len(nodes)] = gradient[torch.from_numpy(nodes).to(gradient.device)]
        return shards.world.exchanged(blocks).sum(0)[: len(shards.own)], None
