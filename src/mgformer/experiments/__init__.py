"""Compare models, tune them, reproduce the paper, and report runs."""
