"""Read files and tables into numbered interactions, and split them."""

DEFAULT_DATASET = "demo"
"""The dataset of a run that names none."""
