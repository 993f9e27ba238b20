"""AttentiveMix (Walawalkar et al., 2020) with the λ path of AttentiveMix+: K nested sets of the partner's most attended cells."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from ..checks import check_spatial, checked_saliency
from ..geometry.cells import cell_grid, cell_means, spread_cells
from ..geometry.threshold import nested_masks
from ..pairing import random_partner
from ..path import EDGE
from ..plan import MaskPlan, PairPlan
from .base import PairMethod


@dataclass(frozen=True, kw_only=True)
class AttentiveMix(PairMethod):
    """x̂_k is x' in its λ_k·N most salient cells of a grid of N = ``cells``² (in each place, x outside); signals and volumes, too.

    A cell is as salient as the mean of its places in ``saliency``: the gradient of the model, or an attention map handed in.
    λ_k comes from Beta(α, α), or with ``beta`` from Beta(α, ``beta``): few cells for 8. The number of cells is rounded up or down
    by one coin for all k. The target follows the realised area.
    """

    name = "attentivemix"
    aliases = ("attentivemix+", "attentive_mix", "attentive_cutmix")
    alpha: float = 2.0
    beta: float | None = None
    cells: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.cells, int) or isinstance(self.cells, bool) or self.cells < 1:
            raise ValueError(f"cells must be a whole number of cells per side, at least 1, got {self.cells!r}")
        if self.beta is not None and not (isinstance(self.beta, int | float) and 0 < self.beta < math.inf):
            raise ValueError(f"beta must be finite and above 0, or None for alpha, got {self.beta!r}")
        if self.beta is not None and self.sampler == "stratified":
            raise ValueError(f"sampler 'stratified' knows Beta(α, α) only, got beta={self.beta!r}")

    @property
    def needs(self) -> tuple[str, ...]:
        """``saliency [B, *size]`` or ``[B, 1, *size]``, of which a partner's own map counts."""
        return ("saliency",)

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        **given: Any,
    ) -> PairPlan:
        if lam is None and self.beta is not None and self.sampler == "iid":
            if partner is None:
                partner = random_partner(len(x), derange=self.derange, generator=generator)
            lam = beta_path(self.k, self.alpha, self.beta, len(x) if self.per_pair else 1, generator)
        return super().draw(x, generator=generator, partner=partner, lam=lam, **given)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, saliency: Tensor) -> PairPlan:
        check_spatial(x, "AttentiveMix")
        grid, rows = cell_grid(x.shape[2:], self.cells), self.rows(x, lam)
        count = math.prod(grid)
        # Equally salient cells, as in an even map, are taken in a random order: the first corner is not favoured.
        order = torch.rand(rows, count, generator=generator).argsort(dim=1).expand(len(x), count)
        round_up = torch.rand(rows, generator=generator) < 0.5
        attended = cell_means(checked_saliency(saliency, x).double(), grid).flatten(1).cpu()[partner]
        taken = nested_masks(attended.gather(1, order), lam, round_up)
        mask = torch.empty_like(taken).scatter_(-1, order.reshape(1, len(x), 1, count).expand_as(taken), taken)
        share = spread_cells(mask.reshape(*mask.shape[:3], *grid), x.shape[2:])
        return MaskPlan(partner=partner, size=x.shape[2:], share=share)


def beta_path(k: int, alpha: float, beta: float, rows: int, generator: Generator) -> Tensor:
    """``lam [K, rows]`` in float64: K independent draws from Beta(α, ``beta``), ascending, 0 < λ < 1."""
    # Gamma(a) = Gamma(a + 1) · U^(1/a) in logs, as in multimix.path: nothing underflows however small α is.
    shape = torch.tensor([alpha, beta], dtype=torch.float64).reshape(2, 1, 1).expand(2, k, rows)
    gamma = torch._standard_gamma(shape + 1, generator=generator)
    uniform = torch.rand(2, k, rows, dtype=torch.float64, generator=generator)
    log_gamma = gamma.log() + torch.log1p(-uniform) / shape
    return (log_gamma[0] - log_gamma[1]).sort(dim=0).values.sigmoid().clamp(EDGE, 1 - EDGE)
