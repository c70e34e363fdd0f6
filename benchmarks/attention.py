"""Time masked kernel attention over all nodes, as a share of the machine's speed.

    python -m benchmarks.attention [--nodes 1000000] [--channels 128] [--repeats 5]

All nodes are keys and queries, as in evaluation and export: 2 m F + 4 F D multiply-adds for a key
and as many for a query, F = m features doubled by the mask. The profiler gives the rate of its
matrix products, which is compared with the rate of one large product. Memory is what it needs
besides inputs and result.
"""

import argparse
from statistics import median

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import peak_memory_mb, report
from mgformer.experiments.timing import interleaved
from mgformer.models.mgformer import CHUNK
from mgformer.nn.features import FEATURE_MAPS
from mgformer.nn.kernel_attention import kernel_attention
from mgformer.training.memory import keep_freed_memory

PRODUCTS = ("aten::mm", "aten::addmm")
LARGE = 4096
COPIED = 512_000_000
"""Bytes; far more than the caches hold."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    torch.manual_seed(0)
    n, m = options.nodes, options.channels
    x, values = torch.randn(n, m) / m**0.25, torch.randn(n, m)
    angles = torch.rand(n)
    project = FEATURE_MAPS["simplex"].project
    assert project is not None
    projection = project(m, m, np.random.default_rng(0)).float()
    a, b = torch.randn(LARGE, LARGE), torch.randn(LARGE, LARGE)

    @torch.no_grad()
    def attention() -> torch.Tensor:
        return kernel_attention(x, x, values, projection, angles, chunk=CHUNK)

    # Measured first: later, freed memory is reused and does not show.
    extra = peak_memory_mb(attention) - 4 * n * m / 1e6
    keep_freed_memory()
    source, target = torch.ones(COPIED // 4), torch.empty(COPIED // 4)
    tasks = {
        "attention": attention,
        "product": lambda: a @ b,
        "copy": lambda: target.copy_(source),
    }
    seconds = interleaved(tasks, options.repeats)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        attention()
    in_products = sum(
        event.self_cpu_time_total for event in profiler.key_averages() if event.key in PRODUCTS
    )
    # Keys: [n, m]·[m, F] and [R, n]·[n, D]; queries: [n, m]·[m, F] and [n, R]·[R, D]; R = 2F.
    work = 2 * (2 * n * m * m + 2 * n * 2 * m * m)
    best = 2 * LARGE**3 / median(seconds["product"])
    rate = work / (in_products / 1e6)
    whole = median(seconds["attention"])
    bandwidth = 2 * COPIED / median(seconds["copy"])  # read and written
    moved = 4 * (3 * n * m + n * m)  # keys, values and queries read, the result written
    report(
        "attention",
        [
            (f"exact pass over {n:,} nodes, {m} channels", f"{whole:.2f} s"),
            ("rate of one large product", f"{best / 1e9:.0f} GFLOP/s"),
            ("rate of the pass's products", f"{rate / 1e9:.0f} GFLOP/s, {rate / best:.2f} of it"),
            ("share of the pass in products", f"{in_products / 1e6 / whole:.2f}"),
            ("rate of the whole pass", f"{work / whole / 1e9:.0f} GFLOP/s"),
            ("bandwidth of memory, copying", f"{bandwidth / 1e9:.1f} GB/s"),
            (
                "inputs and result moved",
                f"{moved / whole / 1e9:.1f} GB/s, {moved / whole / bandwidth:.2f} of it",
            ),
            ("memory beyond inputs and result", f"{extra:.0f} MB"),
        ],
        {
            "seconds": whole, "gemm": best, "products": rate, "share_of_gemm": rate / best,
            "in_products": in_products / 1e6 / whole, "extra_mb": extra, "bandwidth": bandwidth,
        },
        save=options.save,
    )  # fmt: skip


if __name__ == "__main__":
    main()
