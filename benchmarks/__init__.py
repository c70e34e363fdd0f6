"""Ratios against peers and limits, measured side by side; one command each."""
