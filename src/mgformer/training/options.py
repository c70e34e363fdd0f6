"""Training options, the same for all models."""

from typing import Literal

from pydantic import (
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

from mgformer.data.options import OPTIONS
from mgformer.device import PATTERN
from mgformer.models.space import Choice, Float, Space

Precision = Literal["fp32", "bf16"]
SPACE: Space = {
    "lr": Float(2e-4, 1e-2, log=True),
    "batch_size": Choice((512, 1024, 2048, 4096)),
    "weight_decay": Float(1e-8, 1e-3, log=True),
}
"""The search space of tuning for training options."""


class TrainConfig(BaseModel):
    """Training options."""

    model_config = OPTIONS

    epochs: PositiveInt = 60
    """Maximum number of passes over the training pairs."""
    batch_size: PositiveInt = 1024
    """Pairs per step. It is part of the objective if the loss compares rows of a batch."""
    lr: PositiveFloat = 2e-3
    """Learning rate of Adam."""
    decay: Literal["none", "cosine"] = "none"
    """Schedule of the learning rate: constant, or a cosine that falls to zero."""
    weight_decay: float = Field(0.0, ge=0)
    """L2 penalty on tables and matrices, added to their gradients."""
    optimizer: Literal["adam", "rows"] = "adam"
    """adam: update every row of a table at every step; rows: update only the rows that the batch
    touched, which is faster if the tables are much larger than a batch."""
    device: str = Field("auto", pattern=PATTERN)
    """Where to train and rank: auto, cpu, cuda, cuda:1 (the second GPU), or mps. auto: the first
    that there is of cuda, mps and cpu."""
    precision: Precision = "fp32"
    """bf16: large products of the loss have factors of 8 bits; parameters stay in fp32. Only models
    that gain by it and keep their quality take it."""
    recency: float = Field(0.0, ge=0, le=50)
    """Draw recent pairs more often, where the score uses time: a pair at position p of its user's
    history is drawn with a chance proportional to exp(−recency (1 − p))."""
    evaluate_every: PositiveInt = 1
    """Epochs between validations."""
    validation_users: NonNegativeInt = 8192
    """Size of the sample of users that judges epochs; 0: all. Reported figures use all users."""
    patience: PositiveInt = 5
    """Training ends after so many validations in a row without a better NDCG@20."""
    tensorboard: bool = False
    """Also write the log for TensorBoard (pip install 'mgformer[tensorboard]')."""
    mlflow: bool = False
    """Also send the log to MLflow (pip install 'mgformer[mlflow]'), to MLFLOW_TRACKING_URI."""
