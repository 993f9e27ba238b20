"""SAGE (Ma et al., 2022): K soft masks by saliency, over a translated partner."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor

from ..core.batch import Batch
from ..core.checks import (
    can_inspect,
    check_number,
    check_share,
    check_spatial,
    checked_saliency,
    is_whole,
)
from ..core.compiled import has_numba, load_kernels
from ..core.devices import float32_or_better, uploaded, widest_float
from ..core.plan import PairPlan
from ..core.saliency import CleanPass
from ..geometry.translated import TranslatedPlan, smooth_maps, translated
from .path import PairMethod
from .registry import register

SaliencyMode = Literal["train", "eval"]
Search = Literal["cells", "pixels"]
MAX_CELLS = 32
"""Cells per side when translations are compared by cells."""


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
)
@dataclass(frozen=True, kw_only=True)
class SAGE(PairMethod):
    """SAGE: x̂_k = M_k ⊙ x + (1 − M_k) ⊙ τ(x'), M_k = ρ_k s / (ρ_k s + (1 − ρ_k) τ(s')).

    ρ_k = ``bound`` · (1 − λ_k). The saliency s is the mean absolute gradient over channels, blurred
    and normalized to sum 1. All K steps of a pair share one translation τ: the candidate that shows
    the most saliency, summed over k. Places that τ(x') does not cover show x.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        bound: Upper bound in (0, 1] of the sample's weight ρ.
        positions: Share of all translations that are drawn as candidates, in [0, 1].
        stay: Include the zero translation among the candidates.
        search: ``cells`` compares translations on maps pooled to at most 32 cells per side.
            ``pixels`` compares them on the full maps, as published. Both agree for sides of up to
            32 places.
        blur_size: Side of the Gaussian kernel that blurs the maps, an odd number of places. 1
            disables the blur.
        blur_sigma: Standard deviation of the Gaussian, in places.
        update_ratio: u in (0, 1]. The loss is u times the mixed loss plus 1 − u times the clean
            loss.
        saliency_mode: ``train`` runs the clean pass in the model's current mode, as the authors do,
            which updates batch-norm statistics. ``eval`` leaves the model unchanged.

    Example::

        mixed_forward(model, SAGE(k=5, update_ratio=0.5), x, y).loss().backward()
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
        if self.loss_weights[1] > 0 and self.saliency_mode == "eval":
            raise ValueError(
                "update_ratio below 1 and clean_weight above 0 need a clean loss, which "
                "saliency_mode='eval' does not compute: use 'train'"
            )

    @property
    def loss_weights(self) -> tuple[float, float]:
        return self.update_ratio, 1 - self.update_ratio + self.clean_weight

    def clean_pass(self, batch: Batch, *, training: bool) -> CleanPass:
        return super().clean_pass(batch, training=self.saliency_mode == "train")

    def saliency_of(self, clean: CleanPass) -> Tensor:
        return float32_or_better(clean.gradient).abs().mean(1)

    def build(
        self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, saliency: Tensor
    ) -> PairPlan:
        check_spatial(x, "SAGE")
        size = x.shape[2:]
        count = max(1, int(self.positions * math.prod(2 * side - 1 for side in size)))
        shifts = random_shifts(count, size, generator)
        if self.stay:
            shifts = [(0,) * len(size), *shifts]
        sides = cell_sides(size) if self.search == "cells" else (1,) * len(size)
        candidates = by_cell(shifts, sides)
        partner, rho, table, is_own_partner = uploaded(
            x.device,
            partner,
            self.bound * (1 - lam),
            torch.tensor(list(candidates.values())),
            partner == torch.arange(len(x)),
        )
        maps = smooth_maps(checked_saliency(saliency, x), self.blur_size, self.blur_sigma)
        coarse = pooled(maps, sides)
        best = table[best_shift(coarse, coarse[partner], rho, list(candidates))]
        shift = torch.where(is_own_partner.unsqueeze(1), 0, best)
        ratio = maps / translated(maps[partner].unsqueeze(1), shift).squeeze(1)
        odds = (rho / (1 - rho)).float()
        return TranslatedPlan(partner=partner, size=size, odds=odds, ratio=ratio, shift=shift)


def random_shifts(count: int, size: torch.Size, generator: Generator) -> list[tuple[int, ...]]:
    """Draw different translations, uniformly among all that leave an overlap.

    Args:
        count: Number of translations.
        size: The image's sides.
        generator: A CPU generator.

    Returns:
        ``count`` tuples of offsets along each axis.
    """
    sides = [2 * side - 1 for side in size]
    drawn = torch.randperm(math.prod(sides), generator=generator, device="cpu")[:count].numpy()
    axes = zip(np.unravel_index(drawn, sides), sides, strict=True)
    along = [(places - side // 2).tolist() for places, side in axes]
    return list(zip(*along, strict=True))


def cell_sides(size: torch.Size) -> tuple[int, ...]:
    """Return the places per cell along each axis, for at most ``MAX_CELLS`` cells."""
    return tuple(-(-side // MAX_CELLS) for side in size)


def pooled(values: Tensor, sides: tuple[int, ...]) -> Tensor:
    """Sum values over cells.

    Args:
        values: ``[B, *size]``.
        sides: Sides of a cell in places. The last cell along an axis may be shorter.

    Returns:
        ``[B, *cells]``.
    """
    for axis, side in enumerate(sides, start=1):
        count = -(-values.shape[axis] // side)
        missing = count * side - values.shape[axis]
        values = torch.nn.functional.pad(values, (0, 0) * (values.ndim - axis - 1) + (0, missing))
        values = torch.unflatten(values, axis, (count, side)).sum(axis + 1)
    return values


def by_cell(
    shifts: list[tuple[int, ...]], sides: tuple[int, ...]
) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Group translations that are equal after rounding to whole cells.

    Args:
        shifts: Translations in places.
        sides: Sides of a cell in places.

    Returns:
        Each different translation in cells, with the first of ``shifts`` that rounds to it.
    """
    first: dict[tuple[int, ...], tuple[int, ...]] = {}
    cells = np.round(np.array(shifts) / sides).astype(int).tolist()
    for cell, shift in zip(cells, shifts, strict=True):
        first.setdefault(tuple(cell), shift)
    return first


def best_shift(
    maps: Tensor, pair_maps: Tensor, rho: Tensor, shifts: list[tuple[int, ...]]
) -> Tensor:
    """Find the translation of the partner's map that shows the most saliency.

    The visible saliency at a place is (a² + b²) / (a + b) with a = ρ_k s and b = (1 − ρ_k) τ(s'). A
    translation adds b (b − a) / (a + b) at the places it covers, summed over places and k.

    Args:
        maps: ``[B, *size]``, the samples' maps.
        pair_maps: ``[B, *size]``, their partners' maps.
        rho: ``[K, 1 or B]`` weights of the sample.
        shifts: Candidate translations.

    Returns:
        ``[B]``: the index of the first best candidate.
    """
    if can_inspect(maps) and has_numba():
        kernels = load_kernels("multimix.methods.sage_kernel", "SAGE")
        gains: Tensor = kernels.gains(maps, pair_maps, rho, shifts)
        return gains.argmax(0)
    rho = rho.float().to(maps.device)
    rho = rho.reshape(*rho.shape, *[1] * (maps.ndim - 1))
    a, b = rho * maps, (1 - rho) * pair_maps
    axes, wide = (0, *range(2, a.ndim)), widest_float(maps.device)
    sums = [_gain(*_overlap(a, b, shift)).sum(axes, dtype=wide) for shift in shifts]
    return torch.stack(sums).argmax(0)


def _gain(a: Tensor, b: Tensor) -> Tensor:
    return (b - a) * b / (a + b).clamp(min=torch.finfo(a.dtype).tiny)


def _overlap(a: Tensor, b: Tensor, shift: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the overlap of ``a [K, B, *size]`` and ``b`` moved by ``shift``, as views of both."""
    for axis, offset in enumerate(shift, start=2):
        count = a.shape[axis] - abs(offset)
        a, b = a.narrow(axis, max(0, offset), count), b.narrow(axis, max(0, -offset), count)
    return a, b


def check_blur(length: int, sigma: float) -> None:
    """Raise ValueError unless ``length`` and ``sigma`` are valid as blur_size and blur_sigma."""
    if not is_whole(length) or length < 1 or length % 2 == 0:
        raise ValueError(f"blur_size must be an odd integer, 1 for no blur, got {length!r}")
    check_number("blur_sigma", sigma, above=0)
