"""SaliencyMix (Uddin et al., 2021) with K boxes around the most salient place of the partner."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from ..core.checks import (
    check_channels,
    check_choice,
    check_spatial,
    checked_numbers,
    checked_saliency,
    per_channel,
)
from ..core.compiled import has_numba, load_kernels
from ..core.devices import widest_float
from ..core.mixing import is_plain_cpu
from ..core.plan import PairPlan
from ..geometry.boxes import BoxPlan, Fit, Grid, centered_boxes
from .base import Traits
from .path import PairMethod
from .registry import register

SURROUNDS = (12, 24, 48, 28, 56, 112)
"""Reach of the six surrounds, in places."""

RED_GREEN_BLUE = (0.299, 0.587, 0.114)
"""Weights of the channels in a gray image."""

DIGITS = 9
"""Decimals to which maps are rounded, so that equally salient places tie."""


def fine_saliency(
    x: Tensor,
    *,
    mean: float | tuple[float, ...] = 0.0,
    std: float | tuple[float, ...] | None = None,
) -> Tensor:
    """Compute how much each place is brighter or darker than its surroundings.

        on_n = max(g − s_n, 0),  off_n = max(s_n − g, 0)
        S = Σ on_n / max Σ on_n + Σ off_n / max Σ off_n

    g is the gray image (0.299 R + 0.587 G + 0.114 B for three channels, else their mean), blurred
    twice by [1, 2, 1]/4 along each axis. s_n is the mean over offsets −n + 1 … n along each axis,
    clipped at the border, without the place itself. A constant image has a map of zeros.

    Args:
        x: ``[B, C, *size]``, signals, images or volumes.
        mean: Mean that ``x`` was normalized with: a number, or one per channel.
        std: Standard deviation that ``x`` was normalized with. None rescales each sample to [0, 1].

    Returns:
        ``[B, *size]`` in [0, 2], detached, in float64 if the device supports it.

    Raises:
        ValueError: If ``mean`` or ``std`` does not fit the channels of ``x``.
    """
    x = x.detach()
    x = x if x.dtype == torch.float64 else x.float()
    if x.ndim < 5 and is_plain_cpu(x) and has_numba():
        return _compiled_maps(x, mean, std)
    # One sample at a time on the CPU, to bound memory; all at once on a GPU.
    parts = torch.split(x, 1 if x.device.type == "cpu" else len(x))
    wide = widest_float(x.device)
    return torch.cat([_map(_blurred(_blurred(_gray(part.to(wide), mean, std)))) for part in parts])


def peaks(saliency: Tensor) -> Tensor:
    """Find the most salient place of each map.

    Args:
        saliency: ``[B, *size]``.

    Returns:
        ``[B, d]``: the first maximum, or the middle of a constant map.
    """
    size = saliency.shape[1:]
    flat = saliency.flatten(1)
    first = flat.argmax(1)
    is_constant = flat.amin(1) == flat.amax(1)
    place = []
    for side in reversed(size):
        place.append(torch.where(is_constant, side // 2, first % side))
        first = first // side
    return torch.stack(place[::-1], 1)


def _compiled_maps(
    x: Tensor, mean: float | tuple[float, ...], std: float | tuple[float, ...] | None
) -> Tensor:
    """Compute the maps of signals and images on the CPU, by the compiled kernel."""
    kernels = load_kernels("multimix.methods.fine_saliency_kernel", "fine_saliency")
    images = x if x.ndim == 4 else x.unsqueeze(2)  # a signal is one row
    channels = x.shape[1]
    share = torch.tensor(
        RED_GREEN_BLUE if channels == 3 else (1 / channels,) * channels,
        dtype=torch.float64,
        device="cpu",
    )
    if std is None:
        low, high = (end.double() for end in (x.flatten(1).amin(1), x.flatten(1).amax(1)))
        span = (high - low).clamp(min=1e-300)  # keeps 255 / span finite
        weight = 255 * share / span[:, None]
    else:
        check_channels("mean", mean, x)  # only checked: a constant shift changes no contrast
        low = torch.zeros(len(x), dtype=torch.float64)
        scale = per_channel("std", std, x).flatten()
        weight = (255 * share * scale).expand(len(x), channels)
    maps: Tensor = kernels.fine_maps(images, low, weight, _surrounds(x.shape[2:]), DIGITS)
    return maps.reshape(len(x), *x.shape[2:])


def _surrounds(size: torch.Size) -> Counter[int]:
    """Count the surrounds by reach. Those larger than the image are equal and are merged."""
    return Counter(min(n, max(size)) for n in SURROUNDS)


def _map(gray: Tensor) -> Tensor:
    """Compute S of blurred gray images ``[B, *size]``, using the integral image."""
    size = gray.shape[1:]
    surrounds = _surrounds(size)
    margin = max(surrounds)
    integral = gray
    for axis in range(1, gray.ndim):
        integral = integral.cumsum(axis)
    integral = pad(integral.unsqueeze(1), (1, 0) * len(size))
    integral = pad(integral, (margin, margin) * len(size), mode="replicate").squeeze(1)
    on, off = torch.zeros_like(gray), torch.zeros_like(gray)
    for reach, count in surrounds.items():
        rest, area = integral, torch.ones((), dtype=gray.dtype, device=gray.device)
        for axis, side in enumerate(size, 1):
            end, begin = margin + reach + 1, margin - reach + 1
            rest = rest.narrow(axis, end, side) - rest.narrow(axis, begin, side)
            place = torch.arange(side, device=gray.device)
            length = (place + reach + 1).clamp(max=side) - (place - reach + 1).clamp(min=0)
            area = area.unsqueeze(-1) * length
        # A single place has no surround: compute 0 / 1 instead of 0 / 0.
        contrast = gray - (rest - gray) / (area - 1).clamp(min=1)
        on.add_(contrast.clamp(min=0), alpha=count)
        off.sub_(contrast.clamp(max=0), alpha=count)
    return (_to_one(on) + _to_one(off)).round(decimals=DIGITS)


def _gray(
    x: Tensor, mean: float | tuple[float, ...], std: float | tuple[float, ...] | None
) -> Tensor:
    """Compute brightness ``[B, *size]`` on the scale 0 … 255, minus each sample's minimum."""
    if std is None:
        axes = list(range(1, x.ndim))
        low, high = x.amin(axes, keepdim=True), x.amax(axes, keepdim=True)
        x = (x - low) / (high - low).clamp(min=torch.finfo(x.dtype).tiny)
    else:
        x = x * per_channel("std", std, x) + per_channel("mean", mean, x)
    if x.shape[1] == 3:
        red, green, blue = (
            weight * channel for weight, channel in zip(RED_GREEN_BLUE, x.unbind(1), strict=True)
        )
        gray = 255 * (red + green + blue)
    else:
        gray = 255 * x.mean(1)
    # Subtract the minimum so that constant images are exactly 0.
    return gray - gray.amin(list(range(1, gray.ndim)), keepdim=True)


def _blurred(gray: Tensor) -> Tensor:
    """Blur by [1, 2, 1]/4 along every axis, with reflection padding."""
    for axis in range(1, gray.ndim):
        side = gray.shape[axis]
        ends = (gray.narrow(axis, place, 1) for place in (min(1, side - 1), max(side - 2, 0)))
        longer = torch.cat([next(ends), gray, next(ends)], axis)
        gray = (longer.narrow(axis, 0, side) + 2 * gray + longer.narrow(axis, 2, side)) / 4
    return gray


def _to_one(part: Tensor) -> Tensor:
    highest = part.amax(list(range(1, part.ndim)), keepdim=True)
    return part / torch.where(highest > 0, highest, 1.0)


SaliencyMap = Literal["fine", "gradient"]


@register(
    "saliencymix",
    published={"beta": "alpha"},
    shared="pair, the partner's most salient place",
    order='boxes nest; both ends with `box="shift"`',
    examples=(
        {},
        {"box": "shift", "grid": "continuous"},
        {"reference": True},
        {"saliency_from": "gradient"},
    ),
    exceptions={
        "partner at 1": "clipped boxes lose what falls outside; box='shift' gives the end point",
        "one mask for the batch": "the box follows the partner",
        "geometry": "the box lies where the partner is most salient: nothing is drawn",
    },
)
@dataclass(frozen=True, kw_only=True)
class SaliencyMix(PairMethod):
    """SaliencyMix: x̂_k is x' inside box k and x outside, around the most salient place of x'.

    A map passed to ``plan`` as ``saliency=`` replaces that of ``saliency_from``. The target follows
    the realized area.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        saliency_from: Source of the saliency map. ``fine`` (the paper) uses
            :func:`multimix.methods.saliency_mix.fine_saliency`, which needs no model. ``gradient``
            uses :func:`multimix.input_saliency`. A function must map ``x [B, C, *size]`` to
            ``[B, *size]``.
        reference: Use the most salient place of the first sample's partner for all pairs, as the
            published code does.
        box: ``clip`` clips boxes at the border, ``shift`` moves them inside: see
            :class:`multimix.CutMix`.
        grid: ``continuous`` or ``integer`` centers and sides of boxes: see
            :class:`multimix.CutMix`.
        mean: Mean that ``x`` was normalized with; used by ``fine``.
        std: Standard deviation that ``x`` was normalized with; used by ``fine``. None rescales each
            sample to [0, 1].

    Example::

        mixed_forward(model, SaliencyMix(k=5), x, y).loss().backward()
    """

    saliency_from: SaliencyMap | Callable[[Tensor], Tensor] = "fine"
    reference: bool = False
    box: Fit = "clip"
    grid: Grid = "integer"
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.saliency_from):
            check_choice(
                "saliency_from", self.saliency_from, (*get_args(SaliencyMap), "a function of x")
            )
        object.__setattr__(self, "mean", checked_numbers("mean", self.mean))
        if self.std is not None:
            object.__setattr__(self, "std", checked_numbers("std", self.std, positive=True))

    @property
    def traits(self) -> Traits:
        """The traits; ``saliency [B, *size]`` is required with ``saliency_from="gradient"``."""
        return super().traits._replace(
            needs=("saliency",) if self.saliency_from == "gradient" else ()
        )

    def build(
        self,
        x: Tensor,
        partner: Tensor,
        lam: Tensor,
        *,
        generator: Generator,
        saliency: Tensor | None = None,
    ) -> PairPlan:
        check_spatial(x, "SaliencyMix")
        if x.is_meta:
            raise ValueError(
                "SaliencyMix reads the values of x, and tensors on the device 'meta' have none"
            )
        saliency = None if saliency is None else checked_saliency(saliency, x)
        # Compute peaks in batch order and index them on the CPU, where ``partner`` is.
        samples = slice(int(partner[0]), int(partner[0]) + 1) if self.reference else slice(None)
        peak = peaks(self._map(x[samples]) if saliency is None else saliency[samples]).cpu()
        place = (peak if self.reference else peak[partner]).to(lam.dtype)
        # On the continuous grid, a place is an interval of length 1: center the box in it.
        center = place if self.grid == "integer" else place + 0.5
        low, high = centered_boxes(lam, center, x.shape[2:], self.box, self.grid)
        return BoxPlan(partner=partner, low=low, high=high, size=x.shape[2:])

    def _map(self, x: Tensor) -> Tensor:
        if callable(self.saliency_from):
            return checked_saliency(self.saliency_from(x.detach()), x)
        return fine_saliency(x, mean=self.mean, std=self.std)
