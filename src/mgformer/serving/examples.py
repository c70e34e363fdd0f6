"""Example users for the page: what they have, and what is recommended to them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mgformer.ranking.scorers import HistoryScorer
from mgformer.recommend.lists import answer_users, items_of, with_names
from mgformer.recommend.query import ListOptions
from mgformer.runs.bundle import Bundle
from mgformer.serving.schemas import Example, Item

EXAMPLES, SHOWN = 5, 4
"""Number of users, and of items in each of their lists."""
LOOKED_AT = 200
"""Users to choose from, so that the cost does not grow with their number."""
FEWEST, MOST = 5, 60
"""Numbers of items between which a user shows a taste and is quick to read."""


class _Candidate(NamedTuple):
    user: int
    items: NDArray[np.int32]

    @property
    def is_typical(self) -> bool:
        return FEWEST <= len(self.items) <= MOST

    def shared(self, others: set[int]) -> float:
        """Return the share of the items that others have too."""
        return len(others.intersection(self.items.tolist())) / max(len(self.items), 1)


def example_users(bundle: Bundle) -> list[Example]:
    """Return a few users who have little in common. Their latest item comes first."""
    if not bundle.record.histories and isinstance(bundle.scorer, HistoryScorer):
        return []  # such a bundle recommends to given histories only
    chosen = _different(_candidates(bundle), EXAMPLES)
    if not chosen:
        return []
    numbers = np.array([one.user for one in chosen], dtype=np.int32)
    ids = bundle.users.decode(numbers)
    answers = answer_users(bundle, ids, numbers, ListOptions(k=SHOWN))
    return [
        Example(
            user=answer.user,
            total=len(one.items),
            items=[Item(**row) for row in with_names(bundle, one.items[::-1][:SHOWN]).to_dicts()],
            recommended=[Item(item=found.item, name=found.name) for found in answer.items],
        )
        for one, answer in zip(chosen, answers, strict=True)
    ]


def _candidates(bundle: Bundle) -> list[_Candidate]:
    """Return users at even distances."""
    count = len(bundle.users)
    users = np.linspace(0, count - 1, min(count, LOOKED_AT)).astype(int).tolist()
    return [_Candidate(user, items_of(bundle, user)) for user in users]


def _different(left: list[_Candidate], count: int) -> list[_Candidate]:
    """Return users one by one, each the one who shares least with those before."""
    chosen: list[_Candidate] = []
    seen: set[int] = set()
    for _ in range(min(count, len(left))):
        one = min(left, key=lambda other: (not other.is_typical, other.shared(seen)))
        left = [other for other in left if other is not one]
        chosen.append(one)
        seen.update(one.items.tolist())
    return chosen
