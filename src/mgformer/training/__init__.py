"""Gradient training: the only loop, its optimisers, its checkpoints and its log."""
