"""Who takes part, with the grid of options that each is tuned on."""

import random
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Grid = Mapping[str, tuple[Any, ...]]
FACTORS = (32, 64, 128, 256)


class Contestant(NamedTuple):
    """A model, the module that runs it, and the options that it is tuned on."""

    module: str
    grid: Grid

    def trials(self, number: int, name: str) -> Iterator[dict[str, Any]]:
        """Yield the default options (none), then random draws without repetition."""
        rng = random.Random(zlib.crc32(name.encode()))
        drawn: list[dict[str, Any]] = [{}]
        while len(drawn) < number:
            options = {option: rng.choice(values) for option, values in self.grid.items()}
            if options not in drawn:
                drawn.append(options)
        yield from drawn[:number]


OURS, THEIRS = "ours", "theirs"
CONTESTANTS: dict[str, Contestant] = {
    "ridge": Contestant(
        OURS,
        {
            "model.num_predictors": (100, 200, 400),
            "model.l2": (20.0, 60.0, 150.0, 400.0, 1000.0),
        },
    ),
    "ease": Contestant(
        OURS, {"model.l2": (30.0, 60.0, 120.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0)}
    ),
    "guided": Contestant(
        OURS,
        {
            "model.dim": (64,),
            "model.l2": (30.0, 60.0, 150.0, 400.0),
            "model.uniformity_weight": (0.3, 0.5, 1.0, 2.0),
            "model.attention_weight": (0.5, 1.0),
        },
    ),
    "implicit ALS": Contestant(
        THEIRS,
        {
            "factors": FACTORS,
            "regularization": (0.01, 0.1, 1.0),
            "alpha": (1.0, 5.0, 20.0),
            "iterations": (10, 20),
        },
    ),
    "implicit BPR": Contestant(
        THEIRS,
        {
            "factors": FACTORS,
            "learning_rate": (0.01, 0.03, 0.1),
            "regularization": (0.001, 0.01, 0.05),
            "iterations": (100, 200),
        },
    ),
    "implicit cosine kNN": Contestant(THEIRS, {"K": (10, 50, 100, 200, 400)}),
    "implicit BM25 kNN": Contestant(
        THEIRS, {"K": (10, 50, 100, 200, 400), "K1": (0.3, 1.2, 10.0, 100.0), "B": (0.2, 0.5, 0.8)}
    ),
    "LensKit item kNN": Contestant(
        THEIRS, {"max_nbrs": (10, 20, 50, 100), "save_nbrs": (200, 1000), "min_sim": (1e-6, 0.01)}
    ),
    "LensKit implicit ALS": Contestant(
        THEIRS,
        {
            "embedding_size": FACTORS,
            "regularization": (0.01, 0.1, 1.0),
            "weight": (5.0, 20.0, 40.0, 100.0),
            "epochs": (10, 20),
        },
    ),
}
