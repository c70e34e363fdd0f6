"""MGFormer: the model, its layers of attention, and attention from the structure of the graph."""

from mgformer.models.mgformer.model import MGFormer

__all__ = ["MGFormer"]
