"""FMix (Harris et al., 2020): K nested thresholds of one random grey field."""

import math
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Generator, Tensor

from ..checks import check_choice, check_spatial
from ..geometry.fourier import Spectrum, grey_field
from ..geometry.threshold import nested_masks
from ..plan import MaskPlan, PairPlan
from .pair import PairMethod


@dataclass(frozen=True, kw_only=True)
class FMix(PairMethod):
    """x̂_k takes the λ_k·N brightest places of one smooth random field from x'; signals, images and volumes.

    ``decay`` is the power by which frequencies fall off; ``softness`` (0 … 0.5) turns the edge of the mask into a ramp;
    ``spectrum="reference"`` reproduces a defect of the published code, for comparison.
    """

    name = "fmix"
    decay: float = 3.0
    softness: float = 0.0
    spectrum: Spectrum = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("spectrum", self.spectrum, get_args(Spectrum))
        if not 0 <= self.decay < math.inf:
            raise ValueError(f"decay must be finite and at least 0, got {self.decay}")
        if not 0 <= self.softness <= 0.5:
            raise ValueError(f"softness must lie in 0 … 0.5, got {self.softness}")

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "FMix")
        size = x.shape[2:]
        if self.spectrum == "reference" and (len(size) != 2 or size[0] < 2):
            raise ValueError(f"spectrum='reference' needs images with at least 2 rows, got x of shape {list(x.shape)}")
        rows = self.rows(x, lam)
        field = grey_field(rows, size, self.decay, self.spectrum, generator)
        round_up = torch.rand(rows, generator=generator) < 0.5
        return MaskPlan(partner=partner, share=nested_masks(field, lam, round_up, self.softness), size=size)
