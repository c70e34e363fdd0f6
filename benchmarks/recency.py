"""Time folding in of histories whose older items count less, beside plain histories.

    python -m benchmarks.recency [--dim 128] [--requests 500] [--repeats 9] [--save]

Two services run side by side, with the same random vectors of the size of yelp2018. One of them
ages histories. A client sends the same histories of 20 items to both in turn, round by round.
"""

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.client import ask_in_turn, post, served
from benchmarks.measure import report
from benchmarks.serving import HISTORY, K, checked
from benchmarks.synthetic import YELP2018, synthetic_bundle
from mgformer.runs.bundle_files import save_bundle

KAPPAS = {"without recency": None, "with recency": 2.0}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--requests", type=int, default=500, help="requests of each round")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    bundle, rng = synthetic_bundle(dim=options.dim, **YELP2018), np.random.default_rng(1)
    # Only pairs with an order can have a recency.
    bundle = replace(bundle, train=replace(bundle.train, times=np.arange(len(bundle.train))))
    histories = [
        bundle.items.decode(rng.choice(len(bundle.items), HISTORY, replace=False)).to_list()
        for _ in range(options.requests)
    ]
    requests = [post("/recommend", {"history": own, "k": K}) for own in histories]
    rounds: dict[str, list[float]] = {name: [] for name in KAPPAS}
    with ExitStack() as stack:
        ports = {}
        for name, kappa in KAPPAS.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            record = bundle.record.model_copy(update={"kappa": kappa})
            save_bundle(replace(bundle, record=record), folder)
            ports[name] = stack.enter_context(served(folder))
        for _ in range(options.repeats + 1):  # the first round warms up
            for name, port in ports.items():
                seconds = checked(ask_in_turn(port, requests))
                rounds[name].append(1e3 * float(np.quantile(seconds, 0.5)))
    plain, aged = (found[1:] for found in rounds.values())
    ratio = median(a / b for a, b in zip(aged, plain, strict=True))
    rows = [
        *((f"p50, {name}", f"{median(found[1:]):.2f} ms") for name, found in rounds.items()),
        ("with ÷ without (at most 1.1)", f"{ratio:.3f}"),
    ]
    figures = {"p50_ms": {name: median(found[1:]) for name, found in rounds.items()}}
    report("recency", rows, {**figures, "ratio": ratio}, save=options.save)


if __name__ == "__main__":
    main()
