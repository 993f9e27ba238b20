"""The terms of the mask energy, from two images and their saliency."""

from collections.abc import Sequence
from math import sqrt
from typing import Literal

import torch
from torch import Tensor

from ..geometry.blocks import block_means, block_sums, cut_finer
from .energy import CutTerms

OutOfRange = Literal["refuse", "clamp"]

SLACK = 1e-3  # what rounding may add to pixels that were normalised and are taken back


def slack_of(x: Tensor) -> float:
    """How far pixels of x may lie outside their range for the sake of rounding alone."""
    return SLACK + torch.finfo(x.dtype).eps


def block_saliency(saliency: Tensor, grid: tuple[int, int]) -> Tensor:
    """``[B, rows, columns]`` in float64, sum 1 per sample: what blocks hold of ``saliency [B, H, W]``; even where it is 0."""
    held = block_sums(saliency.to(torch.promote_types(saliency.dtype, torch.float32)), grid).to(torch.float64)
    if not bool(torch.isfinite(held).all()):  # finite maps whose sums are too large for float32
        held = block_sums(saliency.to(torch.float64), grid)
    total = held.flatten(1).sum(1)[:, None, None]
    return torch.where(total > 0, held / total.where(total > 0, 1.0), 1 / held[0].numel())


def cut_terms(
    x: Tensor,
    partner: Tensor,
    saliency: Tensor,
    *,
    beta: float = 1.2,
    gamma: float = 0.5,
    neighbourhood: int = 4,
    std: float | Sequence[float] | None = None,
    out_of_range: OutOfRange = "refuse",
) -> CutTerms:
    """The terms for ``x [B, C, H, W]`` and its partners on the grid of ``saliency [B, rows, columns]``.

    With b = β / (16 √N) and D the mean difference of colours, times ``std``, of two blocks across their border,
    showing the partner costs the saliency it hides and bγ/2 times the differences it makes; an edge weighs
    b (1 + γ/2 (D(x, x') + D(x', x) − D(x, x) − D(x', x'))). Colours are averaged over ``neighbourhood`` places next to the
    border, or over the block if they do not fit into it twice. Without ``std`` x must be pixels in 0 … 1. The weights cannot be
    negative while γ times the range of ``std · x`` is at most 1; otherwise ``out_of_range`` says whether to refuse or to raise
    negative ones to 0.
    """
    rows, columns = saliency.shape[1:]
    height, width = x.shape[2:]
    deviation = torch.as_tensor(1.0 if std is None else std, dtype=torch.float32, device=x.device)
    if out_of_range == "refuse":
        _check_range(x.detach(), gamma, deviation, normalised=std is not None)
    cells = cut_finer(height, rows, neighbourhood), cut_finer(width, columns, neighbourhood)
    colour = block_means(x.detach().float(), cells) * deviation.reshape(-1, 1, 1)
    b = beta / (16 * sqrt(rows * columns))
    partner = partner.to(x.device)
    cost = saliency - saliency[partner]
    weights = []
    for axis in (2, 3):
        colour, cost = (colour, cost) if axis == 2 else (colour.transpose(2, 3), cost.transpose(1, 2))
        blocks = cost.shape[1]
        deep = colour.shape[2] // blocks
        before, after = colour[:, :, deep - 1 : -1 : deep], colour[:, :, deep::deep]
        across = cost.shape[2]
        same = _difference(before, after, across)
        own_pair = _difference(before, after[partner], across)
        pair_own = _difference(before[partner], after, across)
        pair_pair = same[partner]
        weights.append(b * (1 + gamma / 2 * (own_pair + pair_own - same - pair_pair)))
        cost = cost.clone()
        # Of the pair at a border, the first block is before it, the second after it.
        cost[:, :-1] += b * gamma / 2 * (pair_own + pair_pair - own_pair - same)
        cost[:, 1:] += b * gamma / 2 * (own_pair + pair_pair - pair_own - same)
    return CutTerms(cost.transpose(1, 2), weights[0].clamp(min=0), weights[1].transpose(1, 2).clamp(min=0))


def _difference(before: Tensor, after: Tensor, blocks: int) -> Tensor:
    """``[B, borders, blocks]`` in float64: the mean over channels and cells of |before − after| ``[B, C, borders, cells]``."""
    apart = (before - after).abs().mean(1)
    return apart.reshape(*apart.shape[:2], blocks, apart.shape[2] // blocks).mean(-1).to(torch.float64)


def _check_range(x: Tensor, gamma: float, std: Tensor, *, normalised: bool) -> None:
    # Of the pixels, not of the averaged colours, so that it does not depend on the grid that was drawn.
    low, high = x.aminmax()
    slack = slack_of(x)
    if not normalised and not -slack <= float(low) <= float(high) <= 1 + slack:
        raise ValueError(
            f"x must be pixels in 0 … 1, got {float(low):.4g} … {float(high):.4g}: say with std= what they were divided by "
            "(1.0 if nothing), or, for values without bounds, out_of_range='clamp'"
        )
    widest = float((high - low).float() * std.max())
    if gamma * widest > 1 + slack:
        widest = float(((x.amax((0, 2, 3)) - x.amin((0, 2, 3))).float() * std).max())  # channel by channel, which is slower
    if gamma * widest > 1 + slack:
        raise ValueError(
            f"gamma times the range of the pixels must be at most 1, got {gamma:g} · {widest:.4g}: "
            "std · x + mean should be pixels in 0 … 1; lower gamma, or raise negative weights to 0 with out_of_range='clamp'"
        )
