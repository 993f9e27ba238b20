"""SaliencyMix (Uddin et al., 2021) with K boxes around the most salient place of the partner."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from ..checks import check_choice, check_spatial, checked_numbers, checked_saliency, per_channel
from ..devices import widest_float
from ..geometry.boxes import BoxPlan, Fit, Grid, centered_boxes
from ..mixing import can_write_in_place
from ..plan import PairPlan
from .base import PairMethod, Traits
from .registry import register

SURROUNDS = (12, 24, 48, 28, 56, 112)
"""How far the six surrounds reach, in places."""

# Of a map in 0 … 2: far above what rounding does, so that places which are equally salient tie, far below what anybody can see.
DIGITS = 9


def fine_saliency(x: Tensor, *, mean: float | tuple[float, ...] = 0.0, std: float | tuple[float, ...] | None = None) -> Tensor:
    """``[B, *size]``, 0 … 2: how much each place of ``x [B, C, *size]`` is brighter or darker than what surrounds it.

        on_n = max(g − s_n, 0),  off_n = max(s_n − g, 0),  S = Σ on_n / max Σ on_n + Σ off_n / max Σ off_n

    g is the grey image (0.299 R + 0.587 G + 0.114 B for three channels, else their mean), blurred twice by [1, 2, 1]/4 along each
    axis; s_n is the mean of the places from −n + 1 to n around, clipped at the border, without the place itself. A part that is
    0 everywhere stays 0, so a constant image has a map of zeros. Signals, images and volumes.

    ``mean`` and ``std`` say how x was normalised, so that std · x + mean are pixels; without ``std`` each sample is stretched to
    0 … 1, which weighs the channels as they come. Detached, in float64 where the device has it.
    """
    x = x.detach()
    x = x if x.dtype == torch.float64 else x.float()
    if x.ndim < 5 and can_write_in_place(x):
        return _compiled_maps(x, mean, std)
    # Volumes on the CPU one by one; an accelerator is told everything once.
    parts = torch.split(x, 1 if x.device.type == "cpu" else len(x))
    return torch.cat([_map(_blurred(_blurred(_grey(part.to(widest_float(x.device)), mean, std)))) for part in parts])


def peaks(saliency: Tensor) -> Tensor:
    """``[B, d]``: the first place, row by row, at which each map ``[B, *size]`` is highest; the middle of a map that is even."""
    size = saliency.shape[1:]
    flat = saliency.flatten(1)
    # On the CPU torch takes five times as long as numpy.
    first = torch.from_numpy(flat.numpy().argmax(1)) if can_write_in_place(flat) else flat.argmax(1)
    even = first == 0  # as it is in an even map, and hardly ever in another; an accelerator is not asked, which would stall it
    if not flat.is_cpu or bool(even.any()):
        even = even & (flat.amin(1) == flat[:, 0])
    place = []
    for side in reversed(size):
        place.append(torch.where(even, side // 2, first % side))
        first = first // side
    return torch.stack(place[::-1], 1)


def _compiled_maps(x: Tensor, mean: float | tuple[float, ...], std: float | tuple[float, ...] | None) -> Tensor:
    """The maps of signals and images on the CPU."""
    from .fine_saliency_kernel import fine_maps

    x = x.contiguous()
    images = x if x.ndim == 4 else x.unsqueeze(2)  # a signal is one row
    low, span = x.new_zeros(len(x)), x.new_ones(len(x))
    scale, shift = x.new_ones(x.shape[1]), x.new_zeros(x.shape[1])
    if std is None:
        low, high = (found.double() for found in (x.flatten(1).amin(1), x.flatten(1).amax(1)))
        span = (high - low).clamp(min=1e-300)  # as little as can be divided by
    else:
        scale, shift = (
            per_channel(name, value, x).flatten().expand(x.shape[1]) for name, value in (("std", std), ("mean", mean))
        )
    return fine_maps(images, low, span, scale, shift, _surrounds(x.shape[2:]), DIGITS).reshape(len(x), *x.shape[2:])


def _surrounds(size: torch.Size) -> Counter[int]:
    """How far surrounds reach, and how often: one that reaches over all of the image is the same for every n."""
    return Counter(min(n, max(size)) for n in SURROUNDS)


def _map(grey: Tensor) -> Tensor:
    """S of blurred grey images ``[B, *size]``; the sum over a surround is read off the integral image at its corners."""
    size = grey.shape[1:]
    surrounds = _surrounds(size)
    margin = max(surrounds)
    integral = grey
    for axis in range(1, grey.ndim):
        integral = integral.cumsum(axis)
    integral = pad(integral.unsqueeze(1), (1, 0) * len(size))
    integral = pad(integral, (margin, margin) * len(size), mode="replicate").squeeze(1)
    on, off = torch.zeros_like(grey), torch.zeros_like(grey)
    for reach, count in surrounds.items():
        rest, area = integral, torch.ones((), dtype=grey.dtype, device=grey.device)
        for axis, side in enumerate(size, 1):
            rest = rest.narrow(axis, margin + reach + 1, side) - rest.narrow(axis, margin - reach + 1, side)
            place = torch.arange(side, device=grey.device)
            area = area.unsqueeze(-1) * ((place + reach + 1).clamp(max=side) - (place - reach + 1).clamp(min=0))
        # Of a single place there is no surround: 0 / 1 instead of 0 / 0.
        contrast = grey - (rest - grey) / (area - 1).clamp(min=1)
        on.add_(contrast.clamp(min=0), alpha=count)
        off.sub_(contrast.clamp(max=0), alpha=count)
    return (_to_one(on) + _to_one(off)).round(decimals=DIGITS)


def _grey(x: Tensor, mean: float | tuple[float, ...], std: float | tuple[float, ...] | None) -> Tensor:
    """``[B, *size]``: brightness in 0 … 255, shifted so that the darkest place of each sample is 0."""
    if std is None:
        axes = list(range(1, x.ndim))
        low, high = x.amin(axes, keepdim=True), x.amax(axes, keepdim=True)
        x = (x - low) / (high - low).clamp(min=torch.finfo(x.dtype).tiny)
    else:
        x = x * per_channel("std", std, x) + per_channel("mean", mean, x)
    red_green_blue = x.unbind(1)
    if len(red_green_blue) == 3:
        grey = 255 * (0.299 * red_green_blue[0] + 0.587 * red_green_blue[1] + 0.114 * red_green_blue[2])
    else:
        grey = 255 * x.mean(1)
    # Only differences count. Of a constant image they shall be 0 and not what rounding leaves, which would be blown up to 1.
    return grey - grey.amin(list(range(1, grey.ndim)), keepdim=True)


def _blurred(grey: Tensor) -> Tensor:
    """[1, 2, 1]/4 along every axis; beyond the border the image is mirrored at its last place."""
    for axis in range(1, grey.ndim):
        side = grey.shape[axis]
        ends = (grey.narrow(axis, place, 1) for place in (min(1, side - 1), max(side - 2, 0)))
        longer = torch.cat([next(ends), grey, next(ends)], axis)
        grey = (longer.narrow(axis, 0, side) + 2 * grey + longer.narrow(axis, 2, side)) / 4
    return grey


def _to_one(part: Tensor) -> Tensor:
    highest = part.amax(list(range(1, part.ndim)), keepdim=True)
    return part / torch.where(highest > 0, highest, 1.0)


SaliencyMap = Literal["fine", "gradient"]


@register(
    "saliencymix",
    published={"beta": "alpha"},
    shared="pair, the partner's most salient place",
    order='boxes nest; both ends with `box="shift"`',
    examples=({}, {"box": "shift", "grid": "continuous"}, {"reference": True}, {"saliency_from": "gradient"}),
    exceptions={
        "partner at 1": "clipped boxes lose what falls outside; box='shift' gives the end point",
        "one mask for the batch": "the box follows the partner",
        "geometry": "the box lies where the partner is most salient: nothing is drawn",
    },
)
@dataclass(frozen=True, kw_only=True)
class SaliencyMix(PairMethod):
    """x̂_k is x' inside box k and x outside, at the same place; the boxes lie around the place where x' is most salient.

    ``saliency_from`` says what salient means: ``fine`` (the paper) is contrast with the surroundings
    (:func:`multimix.methods.saliency_mix.fine_saliency`) and needs no model, ``gradient`` is the map of
    :func:`multimix.input_saliency`, and a function makes a map ``[B, *size]`` of ``x [B, C, *size]``. A map handed to ``plan`` as
    ``saliency=`` is used instead. ``mean`` and ``std`` say how x was normalised; only ``fine`` asks.

    Every pair has boxes of its own. ``reference=True`` puts those of all pairs where the partner of the first sample is most
    salient, as the published code does. ``box`` and ``grid`` are those of :class:`multimix.CutMix`.
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
            check_choice("saliency_from", self.saliency_from, (*get_args(SaliencyMap), "a function of x"))
        object.__setattr__(self, "mean", checked_numbers("mean", self.mean))
        if self.std is not None:
            object.__setattr__(self, "std", checked_numbers("std", self.std, positive=True))

    @property
    def traits(self) -> Traits:
        """It needs ``saliency [B, *size]`` where the gradient of a model is asked for."""
        return self._traits._replace(needs=("saliency",) if self.saliency_from == "gradient" else ())

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, saliency: Tensor | None = None) -> PairPlan:
        check_spatial(x, "SaliencyMix")
        if x.is_meta:
            raise ValueError("SaliencyMix looks at the numbers of x, and on the device 'meta' there are none")
        saliency = None if saliency is None else checked_saliency(saliency, x)
        # All maps and then their peaks by partner, on the CPU: to gather samples, the partner would have to be there first.
        looked_at = slice(int(partner[0]), int(partner[0]) + 1) if self.reference else slice(None)
        peak = peaks(self._map(x[looked_at]) if saliency is None else saliency[looked_at]).cpu()
        place = (peak if self.reference else peak[partner]).to(lam.dtype)
        # On the continuous grid places are intervals, and a box around the middle of one holds it as soon as it holds anything.
        center = place if self.grid == "integer" else place + 0.5
        low, high = centered_boxes(lam, center, x.shape[2:], self.box, self.grid)
        return BoxPlan(partner=partner, low=low, high=high, size=x.shape[2:])

    def _map(self, x: Tensor) -> Tensor:
        if callable(self.saliency_from):
            return checked_saliency(self.saliency_from(x.detach()), x)
        return fine_saliency(x, mean=self.mean, std=self.std)
