"""SimGCL (Yu et al., SIGIR 2022, arXiv:2112.08679) and XSimGCL (TKDE 2023, arXiv:2209.02544).

LightGCN with a contrastive term between views that differ by small random shifts. The shifts are
added to the embeddings after every layer. Layer 0 is not part of the mean, as in the authors' code.
SimGCL makes one pass without shifts for ranking and two with shifts for contrast. XSimGCL makes one
pass with shifts, ranks by its mean, and contrasts the mean with one of its layers. The L2 term is
that of LightGCN, on rows of X.

Shapes: N nodes (users, then items), d channels; q nodes of a batch.
"""

from typing import Annotated, Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.models.lightgcn import LightGCN, contrast_within
from mgformer.models.space import Float
from mgformer.nn.embeddings import rows_at


class SimGCL(LightGCN):
    """score(u, i) = z_u · z_i, with z = (ÂX + … + Âᴸ X) / L."""

    deviation = None

    class Config(LightGCN.Config):
        """Options of SimGCL."""

        passes: Literal["three", "one"] = "three"
        """Passes over the graph in each step. three: SimGCL; one: XSimGCL."""
        noise: Annotated[NonNegativeFloat, Float(0.01, 0.5, log=True)] = 0.1
        """ε, length of the shift of an embedding; 0.2 is usual with one pass."""
        contrast_weight: Annotated[NonNegativeFloat, Float(0.01, 2.0, log=True)] = 0.5
        """λ, weight of the contrastive term; 0.2 is usual with one pass."""
        temperature: Annotated[PositiveFloat, Float(0.05, 0.5, log=True)] = 0.2
        """τ of the contrastive term; 0.15 is usual with one pass."""
        contrast_layer: PositiveInt = 1
        """l*, the layer that is contrasted with the mean of all layers, with one pass."""

        @model_validator(mode="after")
        def _has_the_layer(self) -> "SimGCL.Config":
            if self.passes == "one" and self.contrast_layer > self.num_layers:
                raise ValueError(
                    f"contrast_layer: got {self.contrast_layer}, expected at most num_layers ="
                    f" {self.num_layers}"
                )
            return self

    config: Config

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        return torch.stack(self.layers(nodes)).mean(0)

    def layers(
        self,
        nodes: Tensor | None = None,
        *,
        first: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> list[Tensor]:
        """Return layers 1 to L of all nodes [N, d], or their rows [q, d] for nodes.

        `first` is ÂX [N, d] if it is known already. Without a generator there are no shifts.
        """
        x: Tensor = self.embeddings
        found = []
        for layer in range(1, self.config.num_layers + 1):
            # Of the last layer, only the rows of the nodes are needed.
            last = nodes if layer == self.config.num_layers else None
            if layer == 1 and first is not None:
                x = first if last is None else first[last]
            else:
                x = self.propagation(x) if last is None else self.propagation.rows(x, last)
            if generator is not None:
                x = shifted(x, self.config.noise, generator)
            found.append(x if nodes is None or last is not None else rows_at(x, nodes))
        return found

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        triple = self.triple(batch, generator)
        if self.config.passes == "one":
            layers = self.layers(triple.nodes, generator=generator)
            z = torch.stack(layers).mean(0)
            views = z, layers[self.config.contrast_layer - 1]
        else:
            first = self.propagation(self.embeddings)  # shared: shifts are added after it
            z, one, other = (
                torch.stack(self.layers(triple.nodes, first=first, generator=source)).mean(0)
                for source in (None, generator, generator)
            )
            views = one, other
        ranking = self.ranking_loss(triple, z)
        contrast = contrast_within(triple, *views, self.config.temperature)
        return ranking + self.config.contrast_weight * contrast


def shifted(x: Tensor, length: float, generator: torch.Generator) -> Tensor:
    """Return x [N, d] with rows moved by `length` in a random direction that keeps their signs."""
    drawn = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    return x + length * x.detach().sign() * functional.normalize(drawn)
