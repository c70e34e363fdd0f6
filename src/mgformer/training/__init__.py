"""Gradient training: the only loop, its optimizers, checkpoints and log."""
