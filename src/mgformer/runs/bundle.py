"""A trained recommender: everything needed to recommend without the training data.

`bundle_files.py` stores it on disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import numpy as np
import polars as pl
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.data.attribute_features import features_of
from mgformer.data.attributes import NAME, NO_ATTRIBUTES, Attributes
from mgformer.data.chronology import Chronology
from mgformer.data.filters import Filters
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.data.search import Searchable
from mgformer.ranking.cold import Own
from mgformer.ranking.index import Index
from mgformer.ranking.scorers import Scorer, vectors_of, with_vectors
from mgformer.runs.record import Record
from mgformer.runs.rules import NO_RULES, Ruled, Rules


@dataclass(frozen=True, eq=False, kw_only=True)
class Bundle:
    """A trained recommender and the data it was trained on."""

    scorer: Scorer
    train: Interactions
    """What the model was trained on; it carries the ids."""
    valid: Interactions
    test: Interactions
    history: Interactions | None
    """Known items of held-out users; None if no users are held out. After a refresh, known pairs
    with items that the model has not learned."""
    record: Record
    about_items: Attributes = NO_ATTRIBUTES
    """[I] names and other attributes of items."""
    about_users: Attributes = NO_ATTRIBUTES
    """[U] attributes of users."""
    rules: Rules = NO_RULES
    """What every list follows."""
    per_user: pl.DataFrame | None = None
    """Test metrics of each user, with the column `user`."""
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    """Parameters of the model, to train it further; empty for models without training steps."""
    folded_users: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Users whose pairs came with a refresh, by number. The model was not trained on them: they are
    scored by their items."""
    predicted_users: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Users without pairs, by number. They are scored by what their attributes predict."""
    own_vectors: Own | None = None
    """Vectors of items with few pairs before attributes were blended in."""
    missing: NDArray[np.int64] | None = None
    """[U] test items of each user that have no id here; they count as misses."""
    index: Index | None = None
    """Makes lists of large catalogs approximate; None for exact lists. It is not saved."""
    stored_degrees: NDArray[np.int64] | None = None
    """[I] users of each item in train, if the pairs themselves were left out of the bundle."""

    @property
    def users(self) -> Ids:
        return self.train.users

    @property
    def items(self) -> Ids:
        return self.train.items

    @cached_property
    def all_pairs(self) -> Interactions:
        """The pairs of all parts."""
        parts = [self.train, self.valid, self.test, *([self.history] if self.history else [])]
        return reduce(Interactions.union, (part for part in parts[1:] if len(part)), parts[0])

    @property
    def known(self) -> sp.csr_array:
        """[U, I] all pairs of the dataset. Known pairs are not recommended again."""
        return self.all_pairs.matrix

    @cached_property
    def item_degrees(self) -> NDArray[np.int64]:
        """[I] users of each item in train."""
        if self.stored_degrees is not None:
            return self.stored_degrees
        return np.bincount(self.train.indices, minlength=self.train.num_items)

    @cached_property
    def popularity(self) -> Tensor:
        """[I] users of each item in train, times its trend as far as the score follows trends."""
        counts = torch.from_numpy(self.item_degrees).float()
        eta = self.record.chosen.weights.eta
        if not eta or self.train.order is None or not len(self.train):
            return counts
        return counts * torch.from_numpy(Chronology(self.train).trend).pow(eta)

    @cached_property
    def trained_items(self) -> sp.csr_array:
        """[U, I] `known` without items that are not in train: the model does not know them.

        If the score ages histories, older items count less.
        """
        trained = self.item_degrees > 0
        if trained.all() and not self.record.kappa:
            return self.known
        pairs = self.all_pairs.subset(trained[self.all_pairs.indices])
        return Chronology(pairs).histories(self.record.kappa) if self.record.kappa else pairs.matrix

    @cached_property
    def cold_users(self) -> NDArray[np.int64]:
        """Users without pairs in train, by number. Only their items describe them.

        Users who are predicted from their attributes are not among them.
        """
        if not self.record.histories:  # they were folded in when the pairs were left out
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero((np.diff(self.train.indptr) == 0) & ~self.is_predicted)

    @cached_property
    def is_folded(self) -> NDArray[np.bool_]:
        """[U] whether a user is one of `folded_users`."""
        mask = np.zeros(len(self.users), dtype=bool)
        mask[self.folded_users] = True
        return mask

    @cached_property
    def is_predicted(self) -> NDArray[np.bool_]:
        """[U] whether a user is one of `predicted_users`."""
        mask = np.zeros(len(self.users), dtype=bool)
        mask[self.predicted_users] = True
        return mask

    @property
    def cold_items(self) -> NDArray[np.int64] | None:
        """The items that were held out whole for test, by number; None if none were."""
        if self.record.config.get("split", {}).get("kind") != "items":
            return None
        return np.unique(self.test.indices).astype(np.int64)

    @cached_property
    def filters(self) -> Filters:
        """Finds the items for which conditions on attributes hold."""
        return Filters(self.about_items, len(self.items))

    @cached_property
    def ruled(self) -> Ruled:
        """The rules, worked out for the items."""
        return Ruled(self.rules, self.filters, self.items, "rules")

    @cached_property
    def features(self) -> sp.csr_array:
        """[I, F] attributes of items as numbers, without names; no channels without attributes."""
        about = {name: own for name, own in self.about_items.items() if name != NAME}
        return sp.csr_array(features_of(Attributes(about), len(self.items)).table[:, 1:])

    @cached_property
    def complete_scorer(self) -> Scorer:
        """The scorer with vectors of cold users folded in, if it has vectors.

        Training leaves their vectors at their random start.
        """
        vectors = vectors_of(self.scorer)
        if vectors is None or not len(self.cold_users):
            return self.scorer
        users = vectors.users.clone()
        folded = vectors.fold_in(sp.csr_array(self.trained_items[self.cold_users]))
        users[torch.from_numpy(self.cold_users)] = folded.users.to(users.dtype)
        return with_vectors(self.scorer, replace(vectors, users=users))

    @cached_property
    def searchable_items(self) -> tuple[NDArray[np.int64], Searchable]:
        """The items by popularity: their numbers, and their ids and names for searches."""
        order = np.argsort(-self.item_degrees, kind="stable")
        names = self.about_items.names
        names = None if names is None else names.gather(order)
        return order, Searchable(self.items.decode(order), names)

    @cached_property
    def searchable_users(self) -> Searchable:
        """The ids of users, for searches."""
        return Searchable(self.users.values)

    def name_of(self, item: int) -> str | None:
        """Return the name of an item; None if it has none."""
        names = self.about_items.names
        return None if names is None else names[int(item)]
