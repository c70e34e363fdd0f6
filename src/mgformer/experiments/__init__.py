"""Runs beside runs: compared, tuned, reproduced from the paper, reported."""
