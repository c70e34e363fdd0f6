"""Building blocks that models share: features, attention, propagation, losses."""
