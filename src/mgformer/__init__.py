"""mgformer: train, compare and use recommenders learned from who interacted with what."""

__version__ = "0.1.0"
