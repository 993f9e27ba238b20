"""SmoothMix (Lee et al., 2020): a smooth bump of the partner, of K widths around one centre."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from ..checks import check_spatial
from ..geometry.boxes import random_center
from ..geometry.bump import bump_masks, sharpness
from ..options import Range, between, checked_range
from ..plan import MaskPlan, PairPlan
from .pair import PairMethod


@dataclass(frozen=True, kw_only=True)
class SmoothMix(PairMethod):
    """x̂_k = (1 − m_k) x + m_k x', m_k = exp(−D² / 2 w_k²): D is the distance from one uniformly drawn centre, in sides.

    The width w_k is the one for which the mean of m_k is λ_k. With ``width`` the widths are drawn instead, the path stretched
    over that range: (0.25, 0.5) and α = 1 is the published law. The target always follows the mean of the mask.
    """

    name = "smoothmix"
    width: float | Range | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is not None and checked_range("width", self.width, 0, math.inf)[0] == 0:
            raise ValueError(f"width must be positive, got {self.width!r}")

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        **given: Any,
    ) -> PairPlan:
        if lam is not None or self.width is None:
            return super().draw(x, generator=generator, partner=partner, lam=lam, **given)
        partner = self.pairs(x, partner, generator)
        width = between(checked_range("width", self.width, 0, math.inf), self.path(x, generator))
        return self._plan(x, partner, 0.5 / width.square(), self._center(x, width.shape[1], generator))

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        center = self._center(x, self.rows(x, lam), generator)
        return self._plan(x, partner, sharpness(lam, center, x.shape[2:]), center)

    def _center(self, x: Tensor, rows: int, generator: Generator) -> Tensor:
        check_spatial(x, "SmoothMix")
        size = x.shape[2:]
        return random_center(rows, size, "continuous", generator) / torch.tensor(size, dtype=torch.float64)

    def _plan(self, x: Tensor, partner: Tensor, q: Tensor, center: Tensor) -> PairPlan:
        return MaskPlan(partner=partner, share=bump_masks(q, center, x.shape[2:]), size=x.shape[2:])
