"""mgformer: train, compare and use recommenders learned from who interacted with what."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mgformer.version import __version__

if TYPE_CHECKING:
    from mgformer.recommend.answer import Answer, Recommendation
    from mgformer.recommend.query import Query
    from mgformer.recommend.recommender import Recommender

__all__ = ["Answer", "Query", "Recommendation", "Recommender", "__version__"]
_MODULES = {"Answer": "answer", "Query": "query", "Recommendation": "answer"}


def __getattr__(name: str) -> Any:
    # Imported on first use, because importing torch takes seconds.
    if name in __all__:
        module = import_module(f"mgformer.recommend.{_MODULES.get(name, 'recommender')}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
