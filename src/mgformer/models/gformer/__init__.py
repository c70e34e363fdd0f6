"""GFormer and what serves it alone."""

from mgformer.models.gformer.model import GFormer

__all__ = ["GFormer"]
