"""SGL and what serves it alone."""

from mgformer.models.sgl.model import SGL

__all__ = ["SGL"]
