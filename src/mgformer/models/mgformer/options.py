"""The options of MGFormer, and which of them go together."""

from typing import Annotated, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from mgformer.models.base import EmbeddingDim, ModelConfig, heads_must_divide
from mgformer.models.space import Choice, Float, Int
from mgformer.nn.features import FEATURE_MAPS


class MGFormerConfig(ModelConfig):
    """Options of MGFormer."""

    dim: EmbeddingDim = 128
    """d, channels of the tokens."""
    rank: Annotated[NonNegativeInt, Choice((32, 64, 128, 256))] = 128
    """r, channels of the structural encodings. The paper has r = d. 0: no encodings."""
    normalized: bool = True
    """Whether encodings come from D_u^(-1/2) R D_i^(-1/2) and have unit length. With false they
    come from R and keep their length, as in the paper."""
    encoding_scale: Annotated[PositiveFloat, Float(0.05, 1.0, log=True)] = 0.2
    """Factor of the encodings in x; 1 in the paper."""
    attention: Literal["kernel", "landmarks", "neighbors", "softmax", "none"] = "neighbors"
    """Form of attention. kernel: random features, as in the paper; landmarks: sharper features,
    the closeness to centers of the encodings; neighbors: softmax over the nearest nodes by
    encoding, the sharpest; softmax: all pairs exactly, for small graphs; none: no attention."""
    num_layers: PositiveInt = 1
    """Number of layers; each attends to the output of the one before."""
    num_heads: PositiveInt = 1
    """H, heads of attention; they split the channels evenly."""
    num_neighbors: Annotated[PositiveInt, Int(8, 64, log=True, when={"attention": "neighbors"})] = (
        32
    )
    """K, nodes that each node attends to, with attention = neighbors."""
    neighbor_rank: PositiveInt | None = None
    """Rank of the encodings that define neighbors and landmarks. The default is `rank`."""
    num_landmarks: PositiveInt = 4096
    """R, number of landmarks, with attention = landmarks."""
    active_landmarks: Annotated[
        PositiveInt, Int(2, 32, log=True, when={"attention": "landmarks"})
    ] = 8
    """Nearest landmarks that describe a node, with attention = landmarks."""
    sharpness: Annotated[PositiveFloat, Float(2.0, 30.0, log=True)] = 10.0
    """Factor of the cosine of two encodings in the attention scores. With `kernel` and
    `softmax` it is a starting value."""
    residual: Literal["none", "shaped"] = "shaped"
    """none: h = A x, as in the paper; shaped: h = x + attention_weight (A x − C x)."""
    attention_weight: Annotated[
        NonNegativeFloat, Float(0.1, 2.0, log=True, when={"residual": "shaped"})
    ] = 1.0
    """Weight of attention, with residual = shaped."""
    centered: bool = False
    """Whether to subtract C x, the mean of the values of all keys, from attention, with
    residual = shaped. It needs attention to all nodes or to a sample of them."""
    local_weight: NonNegativeFloat = 0.0
    """Weight of Â x, the sum over neighbors on the graph, with residual = shaped. The paper has
    no such term: 0."""
    mask: Literal["sine", "none", "adjacency"] = "none"
    """Mask of attention. sine: sin(π/4 (z_i + z_j)) with z learned from degrees, as in the
    paper; adjacency: neighbors on the graph only, with attention = kernel."""
    degree_dim: NonNegativeInt = 16
    """Channels of the embedding of a degree, from which the sine mask computes z."""
    features: Literal["simplex", "orthogonal", "iid", "fourier", "elu", "relu", "focused"] = (
        "simplex"
    )
    """Feature map, with attention = kernel; simplex in the paper."""
    num_features: PositiveInt | None = None
    """F, features of each head, a multiple of its m/H channels. The default is m/H."""
    redraw: bool = False
    """Whether to draw new random features for every epoch."""
    query_init: Literal["structure", "xavier"] = "structure"
    """Starting values of W_Q and W_K, with `kernel` and `softmax`. structure: they read only
    the encodings; xavier: random."""
    key_sample: PositiveInt | None = None
    """Number of keys drawn for each training step, with `kernel` and `softmax`. The default is
    all nodes, which are always the keys after training."""
    uniformity_weight: Annotated[NonNegativeFloat, Float(0.1, 10.0, log=True)] = 1.0
    """λ, weight of uniformity in the loss."""
    uniformity_t: float = Field(2.0, gt=0, le=20)
    """t in exp(−t ‖·‖²); 1 in the paper, 2 in DirectAU's code."""
    uniformity_sides: Literal["sum", "mean"] = "mean"
    """Whether uniformity of users and items is summed, as in the paper, or averaged, as in
    DirectAU's code."""

    @model_validator(mode="after")
    def _can_be_built(self) -> "MGFormerConfig":
        heads_must_divide("dim + rank", self.dim + self.rank, self.num_heads)
        for message, wrong in self._problems().items():
            if wrong:
                raise ValueError(message)
        return self

    @property
    def structural(self) -> bool:
        """Whether the encodings alone fix the weights of attention."""
        return self.attention in ("neighbors", "landmarks")

    def _problems(self) -> dict[str, object]:
        """Return for each message whether it applies."""
        heads, form, count = self.num_heads, self.attention, self.num_features or 0
        width = (self.dim + self.rank) // heads
        learned, shaped = form in ("kernel", "softmax"), self.residual == "shaped"
        sine, adjacency = self.mask == "sine", self.mask == "adjacency"
        no_encodings = self.structural and not (self.neighbor_rank or self.rank)
        random = FEATURE_MAPS[self.features].project is not None
        # Only a few nodes are computed with these, and their mean would depend on the batch.
        few_keys = form in ("none", "neighbors") or adjacency
        advice = max(1, round(count / width)) * width
        return {
            "attention = none needs residual = shaped": form == "none" and not shaped,
            "local_weight needs residual = shaped": self.local_weight and not shaped,
            f"attention = {form} needs encodings; set rank or neighbor_rank": no_encodings,
            "query_init = structure needs encodings; set rank, or query_init = xavier": (
                self.query_init == "structure" and learned and not self.rank
            ),
            f"centered needs attention to all nodes, got attention = {form}, mask = {self.mask}": (
                self.centered and few_keys
            ),
            f"mask = sine does not work with attention = {form}; set mask = none": (
                sine and form in ("none", "landmarks")
            ),
            "mask = sine needs degrees; set degree_dim to at least 1": sine and not self.degree_dim,
            f"mask = adjacency needs attention = kernel, got {form}": adjacency
            and form != "kernel",
            f"mask = adjacency needs positive random features, got {self.features}": (
                adjacency and not FEATURE_MAPS[self.features].log
            ),
            f"attention = landmarks has one head, got num_heads = {heads}": (
                heads > 1 and form == "landmarks"
            ),
            f"num_features has no use with features = {self.features}; leave it out": (
                count and not random
            ),
            f"num_features: got {count}, expected a multiple of the {width} channels of a head;"
            f" choose {advice}": count % width,
            "redraw needs attention = kernel and random features": (
                self.redraw and not (form == "kernel" and random)
            ),
            f"key_sample needs attention = kernel or softmax, got {form}": (
                self.key_sample is not None and not learned
            ),
        }
