"""mgformer: train, compare and use recommenders learned from who interacted with what."""

from typing import TYPE_CHECKING, Any

from mgformer.version import __version__

if TYPE_CHECKING:
    from mgformer.recommend.answer import Answer, Recommendation
    from mgformer.recommend.recommender import Recommender

__all__ = ["Answer", "Recommendation", "Recommender", "__version__"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: importing the package must not cost the seconds that torch takes.
    if name in __all__:
        from mgformer.recommend import recommender

        return getattr(recommender, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
