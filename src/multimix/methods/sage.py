"""SAGE (Ma et al., 2022): K soft masks by saliency over a partner that one translation has brought out of the sample's way."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from ..batch import Batch, Criterion, Mixed
from ..checks import check_number, check_share, check_spatial, checked_saliency, is_whole
from ..devices import uploaded
from ..geometry.translated import (
    TranslatedPlan,
    best_shift,
    by_cell,
    cell_sides,
    pooled,
    random_shifts,
    ratio_to_moved,
    smooth_maps,
)
from ..plan import PairPlan
from ..precision import float32_or_better
from ..saliency import clean_logits, clean_pass
from .base import PairMethod, Traits
from .registry import Look, register

SaliencyMode = Literal["train", "eval"]
Search = Literal["cells", "pixels"]


@register(
    "sage",
    published={
        "mixup_alpha": "alpha",
        "upper_lambda": "bound",
        "rand_pos": "positions",
        "kernel_size": "blur_size",
        "eval_mode": "saliency_mode",
    },
    shared="pair, saliency pass, one translation",
    order="soft masks ordered pointwise",
    examples=({"bound": 1.0}, {"bound": 1.0, "positions": 0.05, "stay": False, "blur_size": 1}),
    exceptions={
        "partner at 1": "the path ends at the moved partner",
        "one mask for the batch": "a mask follows its own two maps",
        "a step is K = 1": "the translation is the best for all K steps together",
    },
    # A hundredth of all translations is thousands at this size, each tried at every position of the slider: at most 200.
    look=Look(lambda side: {"positions": min(0.01, 200 / (2 * side - 1) ** 2)}),
)
@dataclass(frozen=True, kw_only=True)
class SAGE(PairMethod):
    """x̂_k = M_k ⊙ x + (1 − M_k) ⊙ τ(x'), M_k = S_k / (S_k + S'_k): the share of x is ρ_k s against (1 − ρ_k) τ(s').

    ρ_k = ``bound`` · (1 − λ_k). s is the gradient's mean absolute value over channels, blurred by a Gaussian of ``blur_size``
    places and width ``blur_sigma``, with sum 1. One translation τ per pair serves all K: of a random share ``positions`` of all,
    and of none if ``stay``, the one under which most saliency is seen, summed over k, the first of several. Where τ(x') has
    nothing to show x stays. ``search="cells"`` compares translations on maps pooled to at most 32 cells a side, each brought to
    the next whole cell; ``"pixels"`` on the maps as they are, as published, which is the same up to 32 places a side.

    With ``update_ratio`` u below 1 the loss is (1 − u) times the clean one and u times the mixed one, by
    :func:`multimix.mixed_loss`. ``saliency_mode="train"`` asks the model in the mode it is in, as the authors do, so batch norm
    sees the clean batch, too; ``"eval"`` leaves no trace in it.
    """

    bound: float = 0.6
    positions: float = 0.01
    stay: bool = True
    search: Search = "cells"
    blur_size: int = 5
    blur_sigma: float = 1.0
    update_ratio: float = 1.0
    saliency_mode: SaliencyMode = "train"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bound", "positions", "update_ratio"):
            check_share(name, getattr(self, name))
        for name in ("bound", "update_ratio"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")
        check_blur(self.blur_size, self.blur_sigma)
        if self.update_ratio < 1 and self.saliency_mode == "eval":
            raise ValueError(
                f"saliency_mode='eval' makes no clean loss, which update_ratio={self.update_ratio:g} needs: use 'train'"
            )

    @property
    def traits(self) -> Traits:
        own = f"adds a clean loss of weight {1 - self.update_ratio:g}" if self.update_ratio < 1 else None
        return self._traits._replace(own_loss=own)

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        if "saliency" in batch.given:
            return {"clean_logits": clean_logits(batch.model, batch.x, batch.output)} if self.update_ratio < 1 else {}
        training = self.saliency_mode == "train"
        clean = clean_pass(batch.model, batch.x, batch.y, training=training, output=batch.output)
        saliency = {"saliency": float32_or_better(clean.gradient).abs().mean(1)}
        return {**saliency, "clean_logits": clean.logits} if self.update_ratio < 1 else saliency

    def loss(self, batch: Batch, mixed: Mixed, criterion: Criterion) -> Tensor:
        value = super().loss(batch, mixed, criterion)
        if self.update_ratio == 1:
            return value
        value = self.update_ratio * value
        if mixed.first:
            logits = batch.given["clean_logits"]
            value = value + (1 - self.update_ratio) * criterion(logits, batch.target_rows(logits.shape[1]))
        return value

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, saliency: Tensor) -> PairPlan:
        check_spatial(x, "SAGE")
        size = x.shape[2:]
        count = max(1, int(self.positions * math.prod(2 * side - 1 for side in size)))
        shifts = random_shifts(count, size, generator)
        if self.stay:
            shifts = [(0,) * len(size), *shifts]
        sides = cell_sides(size) if self.search == "cells" else (1,) * len(size)
        tried = by_cell(shifts, sides)
        partner, rho, table, itself = uploaded(
            x.device, partner, self.bound * (1 - lam), torch.tensor(list(tried.values())), partner == torch.arange(len(x))
        )
        own = smooth_maps(checked_saliency(saliency, x), self.blur_size, self.blur_sigma)
        coarse = pooled(own, sides)
        best = table[best_shift(coarse, coarse[partner], rho, list(tried))]
        shift = torch.where(itself.unsqueeze(1), 0, best)  # a sample that is its own partner stays as it is
        odds = (rho / (1 - rho)).float()
        return TranslatedPlan(partner=partner, size=size, odds=odds, ratio=ratio_to_moved(own, partner, shift), shift=shift)


def check_blur(length: int, sigma: float) -> None:
    """Raise ValueError unless a Gaussian of ``length`` places and width ``sigma`` can blur."""
    if not is_whole(length) or length < 1 or length % 2 == 0:
        raise ValueError(f"blur_size must be an odd number of places, 1 for no blur, got {length!r}")
    check_number("blur_sigma", sigma, above=0)
