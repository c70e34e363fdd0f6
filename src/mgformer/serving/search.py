"""How lists are searched for: among all items, or by an approximate index for large catalogs."""

import logging
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal, get_args

from mgformer.errors import ConfigError
from mgformer.ranking.index import build_index, is_indexable, missing_faiss
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle

Kind = Literal["exact", "ann", "auto"]
EXACT_UP_TO = 1_000_000
"""`auto` scores every item of catalogs up to this size."""
log = logging.getLogger("mgformer.serving")


@dataclass(frozen=True)
class Search:
    """The options --index and --exact-up-to."""

    kind: str = "auto"
    exact_up_to: int = EXACT_UP_TO

    def check(self) -> None:
        """Refuse an unknown kind, and an index on a computer without faiss."""
        if self.kind not in get_args(Kind):
            raise ConfigError(f"--index: got {self.kind!r}, expected exact, ann or auto")
        if self.kind == "ann" and find_spec("faiss") is None:
            raise missing_faiss()

    def wants(self, bundle: Bundle) -> bool:
        """Return whether a recommender is to have an index; refuse one that cannot."""
        large = len(bundle.items) > self.exact_up_to
        if self.kind == "exact" or (self.kind == "auto" and not large):
            return False
        if not is_indexable(bundle.scorer):
            if self.kind == "ann":
                raise ConfigError(
                    f"--index ann: {bundle.record.model} has no vectors to search among; use"
                    " --index exact, or train a model with embeddings, such as guided"
                )
            return False
        self.check()
        if find_spec("faiss") is None:
            message = "all %s items are scored for a list; pip install 'mgformer[ann]' for an index"
            log.warning(message, f"{len(bundle.items):,}")
            return False
        return True

    def prepared(self, recommender: Recommender) -> Recommender:
        """Return the recommender with an index, if it is to have one; its recall is logged."""
        bundle = recommender.bundle
        if not self.wants(bundle):
            return recommender
        seen = bundle.known if bundle.record.histories else None
        index = build_index(bundle.scorer, seen)
        log.info(
            "index of %s items (%s): recall@20 %.4f against exact lists, built in %.0f s",
            f"{len(bundle.items):,}",
            index.described,
            index.recall,
            index.seconds,
        )
        return Recommender(replace(bundle, index=index), recommender.frame)


EXACT = Search("exact")
