"""Pure functions of tensors that models are put together from: features, attention, losses."""
