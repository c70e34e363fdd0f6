"""How a model is trained: the options, for all models alike."""

from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

from mgformer.models.space import Choice, Float, Space

SPACE: Space = {
    "lr": Float(2e-4, 1e-2, log=True),
    "batch_size": Choice((512, 1024, 2048, 4096)),
    "weight_decay": Float(1e-8, 1e-3, log=True),
}
"""Where tuning looks for the options of training, of all models alike."""


class TrainConfig(BaseModel):
    """How a model is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    epochs: PositiveInt = 60
    """Passes over the training pairs, at most."""
    batch_size: PositiveInt = 1024
    """Pairs of a step. With losses that compare rows of a batch it is part of the objective."""
    lr: PositiveFloat = 2e-3
    """Learning rate of Adam."""
    decay: Literal["none", "cosine"] = "none"
    """Learning rate over the epochs: as it is, or falling to zero along a cosine."""
    weight_decay: float = Field(0.0, ge=0)
    """L2 added to the gradients of tables and matrices."""
    optimizer: Literal["adam", "rows"] = "adam"
    """adam: every row of a table at every step; rows: only those that the batch touched, which is
    faster for tables that are much larger than a batch."""
    evaluate_every: PositiveInt = 1
    """Epochs from one validation to the next."""
    validation_users: NonNegativeInt = 8192
    """Users, evenly spaced, by whom epochs are compared; 0: all. What is reported is of all."""
    patience: PositiveInt = 5
    """Validations in a row without a better NDCG@20 after which training ends."""
    tensorboard: bool = False
    """Write the log also for TensorBoard (pip install 'mgformer[tensorboard]')."""
