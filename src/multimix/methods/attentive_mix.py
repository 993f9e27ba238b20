"""AttentiveMix (Walawalkar et al., 2020): K nested sets of the partner's most salient cells."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..core.checks import check_spatial, check_whole, checked_saliency
from ..core.devices import uploaded, widest_float
from ..core.plan import MaskPlan, PairPlan
from ..core.sampling import check_beta, draw_path
from ..geometry.grid import block_means, spread
from ..geometry.threshold import nested_masks
from .path import PairMethod
from .registry import register


@register(
    "attentivemix",
    aliases=("attentivemix+", "attentive_mix", "attentive_cutmix"),
    shared="pair, order of the partner's cells by saliency",
    order="cells nest, both ends exact",
    examples=({}, {"cells": 3, "beta": 8.0}),
    exceptions={"one mask for the batch": "a mask depends on its partner's map"},
)
@dataclass(frozen=True, kw_only=True)
class AttentiveMix(PairMethod):
    """AttentiveMix: x̂_k is x' in its λ_k·N most salient cells of a grid, x outside.

    For signals, images and volumes. The saliency of a cell is the mean over its places. λ_k·N is
    rounded up or down by one draw for all k. The target follows the realized area.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: First parameter of Beta(α, β), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        beta: Second parameter of Beta(α, β); None uses α. A large value, such as 8, takes few cells
            from the partner.
        cells: Number of cells per side of the grid, N = cells^d. At most one cell per place.

    Example::

        saliency = input_saliency(model, x, y)
        plan = AttentiveMix(k=5).plan(x, saliency=saliency)
        x_mix = plan.mix(x)
    """

    alpha: float = 2.0
    beta: float | None = None
    cells: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("cells", self.cells)
        if self.beta is not None:
            check_beta(self.beta, self.sampler)

    def draw_path(self, x: Tensor, generator: Generator) -> Tensor:
        rows = len(x) if self.per_pair else 1
        return draw_path(self.k, self.alpha, self.beta, rows, self.sampler, generator)

    def build(
        self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, saliency: Tensor
    ) -> PairPlan:
        check_spatial(x, "AttentiveMix")
        grid, rows = tuple(min(self.cells, side) for side in x.shape[2:]), self.rows(x, lam)
        count = math.prod(grid)
        # Equally salient cells are ranked at random.
        order = torch.rand(rows, count, generator=generator).argsort(dim=1).expand(len(x), count)
        round_up = torch.rand(rows, generator=generator) < 0.5
        saliency_by_cell = (
            block_means(checked_saliency(saliency, x).to(widest_float(x.device)), grid)
            .flatten(1)
            .cpu()[partner]
        )
        taken = nested_masks(saliency_by_cell.gather(1, order), lam, round_up)
        mask = torch.empty_like(taken).scatter_(
            -1, order.reshape(1, len(x), 1, count).expand_as(taken), taken
        )
        # Copy cells to the device and expand them there, which moves less data.
        partner, mask = uploaded(x.device, partner, mask.reshape(*mask.shape[:3], *grid))
        return MaskPlan(partner=partner, size=x.shape[2:], share=spread(mask, x.shape[2:]))
