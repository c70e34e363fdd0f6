"""Options of MGFormer, and which of them go together.

TOML has no value for None, so None is written as the text "none".
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from mgformer.models.base import EmbeddingDim, ModelConfig, heads_must_divide
from mgformer.models.space import Choice, Float
from mgformer.nn.features import FEATURE_MAPS

NoneAsText = BeforeValidator(lambda value: None if value == "none" else value)


class MGFormerConfig(ModelConfig):
    """Options of MGFormer."""

    dim: EmbeddingDim = 128
    """d, channels of the tokens."""
    rank: Annotated[NonNegativeInt, Choice((32, 64, 128, 256))] = 128
    """r, channels of the structural encodings. The paper has r = d. 0: no encodings."""
    normalized: bool = True
    """Whether encodings come from D_u^(-1/2) R D_i^(-1/2) and have the same length. With false they
    come from R and keep their own length, as in the paper."""
    num_layers: PositiveInt = 1
    """Number of layers; each attends to the output of the one before."""
    num_heads: PositiveInt = 1
    """H, heads of attention; they split the channels evenly."""
    features: Literal["simplex", "orthogonal", "iid", "fourier", "elu", "relu", "focused"] = (
        "simplex"
    )
    """Feature map; simplex in the paper."""
    mask: Literal["sine", "none", "adjacency"] = "sine"
    """Mask of attention. sine: sin(π/4 (z_i + z_j)) with z learned from degrees, as in the
    paper; adjacency: neighbors on the graph only."""
    residual: NonNegativeFloat = 1.0
    """α in h = αx + β(Ax − Cx), where Cx is the mean of all keys (left out with mask = adjacency).
    0: h = Ax, as in the paper."""
    attention_weight: Annotated[
        NonNegativeFloat, Float(0.1, 2.0, log=True, when={"residual": 1.0})
    ] = 1.0
    """β. 0 turns attention off; the options of attention then have no effect."""
    sharpness: Annotated[PositiveFloat | None, NoneAsText, Float(2.0, 30.0, log=True)] = 10.0
    """Starting values of W_Q and W_K. They make this the factor of a cosine in the attention
    scores: of two encodings, or of two inputs x with residual = 0. none: random, as is usual."""
    key_sample: Annotated[PositiveInt | None, NoneAsText] = 1024
    """Number of keys drawn for each training step. none: all nodes, which are always the keys
    after training."""
    uniformity_weight: Annotated[NonNegativeFloat, Float(0.05, 5.0, log=True)] = 0.5
    """λ, weight of the uniformity of users plus that of items in the loss."""
    uniformity_t: float = Field(2.0, gt=0, le=20)
    """t in exp(−t ‖·‖²); 1 in the paper, 2 in DirectAU's code."""

    @property
    def attends(self) -> bool:
        """Whether there is attention at all."""
        return self.attention_weight > 0

    @property
    def has_large_tokens(self) -> bool:
        """Whether tokens start long, and W_Q and W_K as multiples of the identity."""
        return self.residual == 0 and self.sharpness is not None

    @model_validator(mode="after")
    def _can_be_built(self) -> "MGFormerConfig":
        heads_must_divide("dim + rank", self.dim + self.rank, self.num_heads)
        for message, wrong in self._problems().items():
            if wrong:
                raise ValueError(message)
        return self

    def _problems(self) -> dict[str, bool]:
        """Return for each message whether it applies."""
        adjacency = self.attends and self.mask == "adjacency"
        reads_encodings = self.attends and self.residual > 0 and self.sharpness is not None
        return {
            f"attention_weight: got {self.attention_weight}, expected 1 with residual = 0, where"
            " h = A x; leave it out": self.residual == 0 and self.attention_weight != 1,
            "normalized = false needs encodings; set rank, or leave it out": (
                not self.rank and not self.normalized
            ),
            "sharpness needs encodings with a residual; set rank, or sharpness = none": (
                reads_encodings and not self.rank
            ),
            # Their queries and keys would start at zero, where these maps have no gradient.
            f"features = {self.features} cannot train heads without encodings; set num_heads = 1,"
            " or sharpness = none": (
                reads_encodings
                and self.features in ("fourier", "relu", "focused")
                and (self.dim + self.rank) // self.num_heads <= self.dim
            ),
            f"mask = adjacency needs positive random features, got {self.features}": (
                adjacency and not FEATURE_MAPS[self.features].log
            ),
            "key_sample has no use with mask = adjacency, where the keys are the neighbors; set"
            " key_sample = none": adjacency and self.key_sample is not None,
            "uniformity_t has no use with uniformity_weight = 0; leave it out": (
                self.uniformity_weight == 0 and self.uniformity_t != 2
            ),
        }

    @model_serializer(mode="wrap")
    def _with_none_as_text(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written = write(self)
        return {name: written.get(name, "none") for name in type(self).model_fields}
