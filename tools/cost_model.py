"""The cost model of docs/scaling.md: what it says beside what `benchmarks.large` measured.

Memory comes from the formulas of `runs/needs.py`, which refuse runs too. Seconds grow with pairs:
their constants are those of the largest graph that was measured.
"""

from typing import Any, NamedTuple

from mgformer.experiments.tables import Table
from mgformer.models.base import Size
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.needs import phases_of

BILLION = 1_000_000_000
PAIRS_PER_NODE = 10
PREPARING = ("item neighbors", "item regression", "guide lists", "attention and tokens")


class Memory(NamedTuple):
    """Bytes of the most demanding moments of a run."""

    preparing: float
    training: float
    ranking: float


def cost_table(figures: dict[str, Any]) -> str:
    """Return predicted and measured costs of every size, and those of a billion nodes."""
    sizes, config = figures["sizes"], config_of(figures)
    base = 1e6 * sizes[0]["phases"]["graph"]["peak_mb"] - predicted(config, sizes[0]).training
    lines = []
    for name in Memory._fields:
        row = [f"memory, {name}: model (measured)"]
        for one in sizes:
            said = base + getattr(predicted(config, one), name)
            row.append(f"{said / 1e9:.1f} ({getattr(measured(one), name) / 1e9:.1f}) GB")
        whole = getattr(predicted(config, of_size(BILLION)), name)
        lines.append([*row, f"{whole / 1e12:.2f} TB"])
    last = sizes[-1]
    for label, names in (
        ("preparing", PREPARING),
        ("reading and splitting", ("reading", "splitting")),
    ):
        taken = [sum(one["phases"][name]["seconds"] for name in names) for one in sizes]
        rate = taken[-1] / last["pairs"]
        row = [
            f"{rate * one['pairs'] / 60:,.1f} ({seconds / 60:,.1f}) min"
            for one, seconds in zip(sizes, taken, strict=True)
        ]
        hours = rate * BILLION * PAIRS_PER_NODE / 3600
        lines.append([f"{label}: model (measured)", *row, f"{hours:,.0f} h"])
    epochs = [one["step_ms"] * one["steps_of_an_epoch"] / 3.6e6 for one in sizes]
    steps = BILLION * PAIRS_PER_NODE * last["steps_of_an_epoch"] / last["pairs"]
    whole = last["step_ms"] * steps / 3.6e6
    row = ["an epoch, from the time of a step", *(f"{hours:,.2f} h" for hours in epochs)]
    lines.append([*row, f"{whole:,.0f} h"])
    heads = ["", *(f"{one['nodes']:,} nodes" for one in sizes), f"{BILLION:,} nodes, extrapolated"]
    return Table(heads, lines).markdown()


def config_of(figures: dict[str, Any]) -> RunConfig:
    """Return the run that was measured."""
    model = {"name": "guided", "dim": figures["dim"], "num_neighbors": figures["neighbors"]}
    model |= {"num_predictors": figures["predictors"], "l2": 60.0}
    train = {"optimizer": "rows", "batch_size": figures["batch"]}
    return build_config({"model": model, "train": train})


def of_size(nodes: int) -> dict[str, Any]:
    """Return a size that was not measured."""
    return {"nodes": nodes, "pairs": PAIRS_PER_NODE * nodes}


def predicted(config: RunConfig, one: dict[str, Any]) -> Memory:
    """Return the memory that the formulas say, without that of an empty process."""
    size = Size(one["nodes"] // 2, one["nodes"] // 2, one["pairs"])
    own = config.model_class.footprint(config.model, size)
    # The pairs that were read, and their ids, are there before.
    read = 4 * size.num_pairs + 8 * size.num_users + 8 * size.num_nodes
    found = {need.phase.split(",")[0]: need for need in phases_of(config, size, own)}
    return Memory(*(read + found[name].expected for name in Memory._fields))


def measured(one: dict[str, Any]) -> Memory:
    """Return the memory of the process that was measured."""

    def most(*starts: str) -> float:
        peaks = (own["peak_mb"] for name, own in one["phases"].items() if name.startswith(starts))
        return 1e6 * max(peaks)

    steps = next(name for name in one["phases"] if name.endswith(" steps"))
    return Memory(most(*PREPARING), most(steps), most("scorer", "evaluating", "lists of"))
