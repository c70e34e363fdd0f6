"""GFormer: the model, its attention along edges, its sampled graphs and its positions."""

from mgformer.models.gformer.model import GFormer

__all__ = ["GFormer"]
