"""How long a model may take on some data: a rough guess, made before it is trained.

Rates are those of one core of an ordinary computer. Guesses serve to try cheap models first, and to
leave out a model that would take far longer than there is time. What models really took corrects
later guesses.

Shapes: U users, I items, E pairs, N nodes.
"""

import numpy as np

from mgformer.data.interactions import Interactions

SPARSE_RATE, SMALL_RATE, LARGE_RATE = 3e7, 1e10, 4e10
"""Entries of a sparse product; operations on small or thin, and on large dense
matrices, in a second."""
PREDICTORS, PENALTIES_TRIED = 200, 3
"""Of ridge: items that predict an item, and the times that each system is solved."""
FACTORS, STEPS = 264, 9
"""Of gfcf: columns of a block of the decomposition, and blocks."""
SECONDS_PER_PAIR, SECONDS_PER_ENTRY = 5e-5, 4e-9
"""Of a training step of guided: for each pair, and for each entry of its table."""
BATCH, DIM, FEWEST_EPOCHS = 1024, 128, 1


def epoch_seconds(num_nodes: int, num_pairs: int, dim: int, *, rows: bool = False) -> float:
    """Return seconds of an epoch of guided; with `rows`, a step leaves most of the table alone."""
    table = 0 if rows else num_nodes * dim
    return num_pairs * SECONDS_PER_PAIR + num_pairs / BATCH * table * SECONDS_PER_ENTRY


def guess_seconds(pairs: Interactions) -> dict[str, float]:
    """Return seconds of training for each model that `auto` tries.

    For a model that is trained step by step, these are the seconds of one epoch.
    """
    num_users, num_items, num_pairs = pairs.num_users, pairs.num_items, len(pairs)
    small = min(num_users, num_items)
    shared = float(np.square(np.diff(pairs.indptr).astype(np.float64)).sum()) / SPARSE_RATE
    width = min(FACTORS * STEPS, small)
    filter_ = (num_users + num_items) * width**2 * 2 / SMALL_RATE
    filter_ += 2 * num_pairs * FACTORS * STEPS / SMALL_RATE
    predictors = min(PREDICTORS, num_items)
    regression = num_items * predictors**2 * (predictors / 3 + 10) * PENALTIES_TRIED / SMALL_RATE
    through_users = num_users < num_items
    inverse = 2.0 * small**3 if through_users else 2.0 * num_items**3
    inverse += 2.0 * num_items * (num_pairs + num_users * num_items / 8) if through_users else 0.0
    epoch = epoch_seconds(num_users + num_items, num_pairs, DIM)
    ridge = 3 * shared + 2 * regression
    return {
        "popularity": 0.0,
        "itemknn": shared,
        "rp3beta": 1.5 * shared,
        "gfcf": filter_,
        "ease": inverse / LARGE_RATE,
        "ridge": ridge,
        "guided": ridge + PREDICTORS * num_pairs / SPARSE_RATE + FEWEST_EPOCHS * epoch,
    }
