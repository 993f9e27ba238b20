"""GuidedMixup (Kang and Kim, 2023): K soft masks by saliency, of pairs that look at different places."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from ..checks import check_spatial, checked_saliency
from ..devices import uploaded, widest_float
from ..geometry.translated import smooth_maps, soft_shares
from ..plan import MaskPlan, PairPlan
from .base import PairMethod
from .registry import register
from .sage import check_blur

Pairing = Literal["far", "random"]
BLOCK, PART = 32, 2048  # rows of a product of maps, and places


@register(
    "guidedmixup",
    aliases=("guidedmix", "guided_mixup"),
    published={"condition": "pairing", "blur": "blur_size"},
    shared="pair (far apart in saliency), saliency pass",
    order="soft masks ordered pointwise, both ends exact",
    examples=({}, {"pairing": "random", "blur_size": 3}),
    exceptions={
        "one mask for the batch": "a mask follows its own two maps",
        "geometry": "nothing is left to draw once pair and path are given",
    },
)
@dataclass(frozen=True, kw_only=True)
class GuidedMixup(PairMethod):
    """x̂_k = (1 − m_k) ⊙ x + m_k ⊙ x', m_k = λ_k s' / ((1 − λ_k) s + λ_k s'): whoever is more salient at a place shows more there.

    s is blurred by a Gaussian of ``blur_size`` places and width ``blur_sigma``, with sum 1. λ = ½ is the published ratio
    s' / (s + s'). ``pairing="far"`` chains samples whose maps are far apart (:func:`far_partner`); ``random`` draws pairs as
    other methods do, and only there ``derange`` counts.
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
        saliency = smooth_maps(checked_saliency(given.pop("saliency"), x), self.blur_size, self.blur_sigma)
        if partner is None and self.pairing == "far":
            partner = far_partner(saliency, generator)
        return super().draw(x, generator=generator, saliency=saliency, partner=partner, lam=lam, **given)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, saliency: Tensor) -> PairPlan:
        partner, rho = uploaded(x.device, partner, 1 - lam)
        share = soft_shares(saliency, saliency, partner, rho)
        return MaskPlan(partner=partner, size=x.shape[2:], share=share)


def far_partner(maps: Tensor, generator: Generator) -> Tensor:
    """``partner [B]``: one cycle through the batch, from the two ``maps [B, …]`` that are farthest apart on, each followed by
    the farthest of those that are left, by their Euclidean distance.

    Maps that are equally far are taken in a random order. Nobody is its own partner in a batch of two or more.
    """
    order = torch.randperm(len(maps), generator=generator)
    products = _products(maps.flatten(1))
    squares = products.diagonal()
    # NumPy's calls take a tenth of the time of torch's for one row.
    far = (squares + squares.unsqueeze(1) - 2 * products).cpu()[order][:, order].fill_diagonal_(-1.0).numpy()
    cycle = [int(far.argmax()) // len(maps)]
    while len(cycle) < len(maps):
        far[:, cycle[-1]] = -1.0
        cycle.append(int(far[cycle[-1]].argmax()))
    here = order[cycle]
    return torch.empty_like(order).scatter_(0, here, here.roll(-1))


def _products(rows: Tensor) -> Tensor:
    """The scalar products of all ``rows``, less a number that they have in common, to which squares would lose digits."""
    wide, common = widest_float(rows.device), rows.mean()
    if rows.device.type != "cpu":
        rows = rows.to(wide) - common
        return rows @ rows.T
    # In parts that stay in the cache, and little more than one half of them, since they are symmetric.
    products = rows.new_zeros(len(rows), len(rows), dtype=wide)
    for part in torch.split(rows, PART, 1):
        part = part.to(wide) - common
        for start in range(0, len(rows), BLOCK):
            products[start : start + BLOCK, start:].addmm_(part[start : start + BLOCK], part[start:].T)
    return products.triu_().add_(products.triu(1).T)
