"""iALS (Hu et al., ICDM 2008; Rendle et al., RecSys 2022, arXiv:2110.14037): implicit ALS.

It alternates between exact solutions for all users and for all items. The objective gives a small
weight to every unseen pair:

    Σ_(u,i)∈R (w_u·h_i − 1)² + α₀ Σ_u,i (w_u·h_i)²
        + λ Σ_u (d_u + α₀I)‖w_u‖² + λ Σ_i (d_i + α₀U)‖h_i‖²

The package `implicit` solves it. Its own objective is Hu's: weight c and target 1 on seen pairs,
weight 1 on others, one ridge ρ for all rows. The two agree if c = (1 + α₀) / α₀, if
ρ = λ(d + α₀n)(1 + α₀) / α₀ for rows of degree d, and if its factors are √(1 + α₀) times ours.
With weights of pairs, c_ui = (w_ui + α₀) / α₀; degrees stay numbers of pairs.
Rows are therefore solved in groups of equal degree.

Shapes: U users, I items, D channels; w is [U, D], h is [I, D].
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from pydantic import PositiveFloat, PositiveInt

from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Float, Int
from mgformer.progress import phase
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer


class IALS(Model):
    """score(u, i) = w_u · h_i."""

    score_kinds: ClassVar[tuple[Kind, ...]] = ("dot",)
    weights: ClassVar[str | None] = "confidence: the squared error of a pair counts w times"

    class Config(ModelConfig):
        """Options of iALS."""

        rank: Annotated[PositiveInt, Int(16, 512, log=True)] = 64
        """D, channels of the factors. More channels usually help."""
        unobserved_weight: Annotated[PositiveFloat, Float(1e-3, 1.0, log=True)] = 0.1
        """α₀, weight of every pair, seen or unseen."""
        l2: Annotated[PositiveFloat, Float(1e-4, 0.1, log=True)] = 0.003
        """λ, weight of the squared norms. It is scaled by the total weight of each row."""
        num_iterations: PositiveInt = 16
        """Times to solve for users and then items; users are solved once more at the end."""

    config: Config

    def scorer(self) -> DotScorer:
        try:
            from implicit.cpu.als import AlternatingLeastSquares
            from threadpoolctl import threadpool_limits
        except ImportError as error:
            raise ConfigError(
                "ials: the package implicit is not installed; pip install 'mgformer[ials]'"
            ) from error
        config, graph = self.config, self.graph
        scale = 1 + config.unobserved_weight
        items = self.rng.standard_normal((graph.num_items, config.rank), dtype=np.float32)
        # One BLAS thread: implicit runs its own threads, and the two would compete.
        with threadpool_limits(1, "blas"), phase("ials", config.num_iterations + 1) as advance:
            als = AlternatingLeastSquares(config.rank, alpha=scale / config.unobserved_weight)
            als.user_factors = np.zeros((graph.num_users, config.rank), dtype=np.float32)
            als.item_factors = items * np.float32(0.1 / np.sqrt(config.rank))
            seen = _confidences(graph, config.unobserved_weight)
            rows, columns = (sp.csr_matrix(m) for m in (seen, seen.T))
            for _ in range(config.num_iterations):
                self._solve(als, als.partial_fit_users, rows, graph.user_degrees)
                self._solve(als, als.partial_fit_items, columns, graph.item_degrees)
                advance(1)
            self._solve(als, als.partial_fit_users, rows, graph.user_degrees)
            advance(1)
        users, items = (
            torch.from_numpy(f) / scale**0.5 for f in (als.user_factors, als.item_factors)
        )
        return DotScorer(users, items, config.unobserved_weight, config.l2)

    def _solve(
        self,
        als: Any,
        partial_fit: Callable[[NDArray[np.int64], sp.csr_matrix], None],
        rows: sp.csr_matrix,
        degrees: NDArray[np.int64],
    ) -> None:
        """Solve for all rows of one side with the other side fixed."""
        weight = self.config.unobserved_weight
        order = np.argsort(degrees, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(degrees[order])) + 1):
            ridge = self.config.l2 * (degrees[group[0]] + weight * rows.shape[1])
            als.regularization = float(ridge * (1 + weight) / weight)
            partial_fit(group, rows[group])


def _confidences(graph: Graph, unobserved_weight: float) -> sp.csr_array:
    """Return R with the entries (w + α₀) / (1 + α₀); `implicit` multiplies by (1 + α₀) / α₀."""
    r = graph.interactions
    if graph.strengths is None:
        return r
    entries = (graph.strengths + np.float32(unobserved_weight)) / np.float32(1 + unobserved_weight)
    return sp.csr_array((entries, r.indices, r.indptr), shape=r.shape)
