"""SimGCL (Yu et al., SIGIR 2022, arXiv:2112.08679) and XSimGCL (TKDE 2023, arXiv:2209.02544).

LightGCN that agrees with itself under small random shifts of the embeddings, added after every step
on the graph. Layer 0 is left out of the mean, for ranking and contrast alike, as in the authors'
code. SimGCL makes a clean pass and two shifted ones; XSimGCL makes one, ranks by it, and contrasts
its mean with one of its layers. The L2 term is LightGCN's: on rows of X.

Shapes: N nodes (users, then items), d channels; q nodes of a batch.
"""

from typing import ClassVar, Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.models.lightgcn import LightGCN, contrast_within
from mgformer.models.space import Float, Space


class SimGCL(LightGCN):
    """score(u, i) = z_u · z_i, with z = (ÂX + … + Âᴸ X) / L."""

    spread = None

    class Config(LightGCN.Config):
        """Options of SimGCL."""

        passes: Literal["three", "one"] = "three"
        """three: SimGCL; one: XSimGCL."""
        noise: NonNegativeFloat = 0.1
        """ε, length of the shift of a row; 0.2 is usual with one pass."""
        contrast_weight: NonNegativeFloat = 0.5
        """λ, weight of the agreement of the views; 0.2 is usual with one pass."""
        temperature: PositiveFloat = 0.2
        """τ; 0.15 is usual with one pass."""
        contrast_layer: PositiveInt = 1
        """l*, the layer that the mean is contrasted with, with one pass."""

        @model_validator(mode="after")
        def _has_the_layer(self) -> "SimGCL.Config":
            if self.passes == "one" and self.contrast_layer > self.num_layers:
                raise ValueError(
                    f"contrast_layer = {self.contrast_layer}, but num_layers = {self.num_layers}"
                )
            return self

    space: ClassVar[Space] = {
        **LightGCN.space,
        "noise": Float(0.01, 0.5, log=True),
        "contrast_weight": Float(0.01, 2.0, log=True),
        "temperature": Float(0.05, 0.5, log=True),
    }

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

        Args:
            nodes: Nodes wanted.
            first: ÂX [N, d], if it is known already.
            generator: Source of the shifts; without it there are none.
        """
        x: Tensor = self.embeddings
        found = []
        for layer in range(1, self.config.num_layers + 1):
            known = first if layer == 1 else None
            ends = nodes is not None and layer == self.config.num_layers
            if nodes is not None and ends:
                x = self.propagation.rows(x, nodes) if known is None else known[nodes]
            else:
                x = self.propagation(x) if known is None else known
            if generator is not None:
                x = shifted(x, self.config.noise, generator)
            found.append(x if nodes is None or ends else x[nodes])
        return found

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        triple = self.triple(batch, generator)
        if self.config.passes == "one":
            layers = self.layers(triple.nodes, generator=generator)
            z = torch.stack(layers).mean(0)
            views = z, layers[self.config.contrast_layer - 1]
        else:
            first = self.propagation(self.embeddings)  # the shifts come after it
            z, one, other = (
                torch.stack(self.layers(triple.nodes, first=first, generator=source)).mean(0)
                for source in (None, generator, generator)
            )
            views = one, other
        ranking = self.ranking_loss(triple, z)
        contrast = contrast_within(triple, *views, self.config.temperature)
        return ranking + self.config.contrast_weight * contrast


def shifted(x: Tensor, length: float, generator: torch.Generator) -> Tensor:
    """Return rows x [N, d] moved by `length` in a random direction that changes no sign."""
    drawn = torch.rand(x.shape, generator=generator, dtype=x.dtype)
    return x + length * x.detach().sign() * functional.normalize(drawn)
