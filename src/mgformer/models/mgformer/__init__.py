"""MGFormer and what serves it alone."""

from mgformer.models.mgformer.model import MGFormer

__all__ = ["MGFormer"]
