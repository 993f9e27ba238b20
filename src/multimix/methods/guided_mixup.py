"""GuidedMixup (Kang and Kim, 2023): K soft masks by saliency, for pairs with distant maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from ..core.checks import check_spatial, checked_saliency
from ..core.devices import uploaded, widest_float
from ..core.plan import MaskPlan, PairPlan
from ..geometry.translated import shares_by_odds, smooth_maps
from .path import PairMethod
from .registry import register
from .sage import check_blur

Pairing = Literal["far", "random"]


@register(
    "guidedmixup",
    aliases=("guidedmix", "guided_mixup"),
    published={"condition": "pairing", "blur": "blur_size"},
    shared="pair (far apart in saliency), saliency pass",
    order="soft masks ordered pointwise, both ends exact",
    examples=({}, {"pairing": "random", "blur_size": 3}),
    exceptions={
        "one mask for the batch": "a mask depends on the two maps of its pair",
        "geometry": "pair and path determine the mask",
    },
)
@dataclass(frozen=True, kw_only=True)
class GuidedMixup(PairMethod):
    """GuidedMixup: x̂_k = (1 − m_k) ⊙ x + m_k ⊙ x', m_k = λ_k s' / ((1 − λ_k) s + λ_k s').

    s and s' are the blurred saliency maps of the pair, so the more salient sample has the larger
    share at each place. λ = ½ gives the published ratio s' / (s + s').

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        pairing: ``far`` pairs samples with distant saliency maps (:func:`far_partner`). ``random``
            draws partners; ``derange`` has an effect only here.
        blur_size: Side of the Gaussian kernel that blurs the maps, an odd number of places. 1
            disables the blur.
        blur_sigma: Standard deviation of the Gaussian, in places.

    Example::

        mixed_forward(model, GuidedMixup(k=5), x, y).loss().backward()
    """

    pairing: Pairing = "far"
    blur_size: int = 7
    blur_sigma: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_blur(self.blur_size, self.blur_sigma)

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        **given: Any,
    ) -> PairPlan:
        check_spatial(x, "GuidedMixup")
        saliency = smooth_maps(
            checked_saliency(given.pop("saliency"), x), self.blur_size, self.blur_sigma
        )
        if partner is None and self.pairing == "far":
            partner = far_partner(saliency, generator)
        return super().draw(
            x, generator=generator, saliency=saliency, partner=partner, lam=lam, **given
        )

    def build(
        self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, saliency: Tensor
    ) -> PairPlan:
        partner, rho = uploaded(x.device, partner, 1 - lam)
        odds = (rho / (1 - rho)).float()
        share = shares_by_odds(saliency / saliency[partner], odds)
        return MaskPlan(partner=partner, size=x.shape[2:], share=share)


def far_partner(maps: Tensor, generator: Generator) -> Tensor:
    """Pair samples whose maps are far apart.

    A greedy cycle visits the whole batch. It starts with the two maps that are farthest apart; each
    next sample is the farthest unvisited one from the last. Ties are broken at random.

    Args:
        maps: ``[B, …]``.
        generator: A CPU generator.

    Returns:
        ``partner [B]`` without fixed points for B ≥ 2.
    """
    order = torch.randperm(len(maps), generator=generator)
    rows = maps.flatten(1).to(widest_float(maps.device))
    rows = rows - rows.mean()  # a common offset would lose precision
    products = rows @ rows.T
    # Make it exactly symmetric, so that rounding does not decide where the cycle starts.
    products = products.triu() + products.triu(1).T
    squares = products.diagonal()
    distances = (
        (squares + squares.unsqueeze(1) - 2 * products)
        .cpu()[order][:, order]
        .fill_diagonal_(-1.0)
        .numpy()
    )
    cycle = [int(distances.argmax()) // len(maps)]
    while len(cycle) < len(maps):
        distances[:, cycle[-1]] = -1.0
        cycle.append(int(distances[cycle[-1]].argmax()))
    samples = order[cycle]
    return torch.empty_like(order).scatter_(0, samples, samples.roll(-1))
