"""A partner made smaller, all of it, in K boxes: where the boxes lie, and the plan that shows it there.

For signals, images and volumes.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..devices import widest_float
from ..mixing import by_step, can_write_in_place, into, memory_format, mix, rows_like
from ..plan import check_size
from .axes import Taps
from .boxes import BoxPlan, inside, slices

Resize = Literal["nearest", "bilinear"]


def roaming_boxes(lam: Tensor, point: Tensor, size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """``low, high [K, rows, d]``: boxes of sides λ^(1/d) times the image's, rounded, that lie inside it and nest.

    The share of the room left of a box is that of the image left of ``point [rows, d]``, which lies in every box that is not
    empty. For a uniform point all positions of a box are equally likely, whatever its size; a box that is only pushed back
    inside would lie at a border most of the time.
    """
    sides = torch.tensor(size, dtype=torch.float64)
    side = (sides * lam.unsqueeze(-1) ** (1 / len(size))).round()
    low = torch.minimum((point / sides * (sides - side + 1)).floor(), sides - side)
    return low.long(), (low + side).long()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ResizedPlan(BoxPlan):
    """In box ``[low, high)`` all of the partner, made smaller; outside the sample: ``low, high [K, 1 or B, d]``, nested in k."""

    resize: Resize

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        return self._pasted(z, z, out)

    def _pasted(self, z: Tensor, whole: Tensor, out: Tensor | None) -> Tensor:
        """``z`` with all of ``whole[partner]``, made smaller, in its boxes."""
        check_size(z, self.size)
        direct = out is None or out.is_contiguous(memory_format=memory_format(z))
        if can_write_in_place(z) and direct:
            out = rows_like(z, self.k) if out is None else out
            if len(self.size) < 3:
                self._paste_rows(z, whole, out)
            else:
                self._fill(z, whole, by_step(out, self.k))
            return out
        taps = self._seen(self.low, self.high, self.size)
        pair, within = whole[self.partner], inside(self.low, self.high, self.size)
        steps = [torch.where(within[k], _resized(pair, [tap.of(k) for tap in taps]).to(z.dtype), z) for k in range(self.k)]
        return into(torch.cat(steps), z, out)

    def _fill(self, z: Tensor, whole: Tensor, steps: Tensor) -> None:
        """Box by box, so that only what is shown is resized: for the whole batch at once where it shares its boxes."""
        taps = self._seen(self.low, self.high, self.size)
        low, high = self.low.tolist(), self.high.tolist()
        rows = [slice(None)] if self.low.shape[1] == 1 else [slice(i, i + 1) for i in range(len(z))]
        for k, step in enumerate(steps.unbind(0)):
            step.copy_(z)
            for row, samples in enumerate(rows):
                box = slices(low[k][row], high[k][row])
                if any(edge.start == edge.stop for edge in box[2:]):
                    continue
                shown = [tap.of(k, slice(row, row + 1), edge) for tap, edge in zip(taps, box[2:], strict=True)]
                partner = self.partner[samples]
                if len(rows) == 1:
                    step[box] = _resized(whole, shown)[partner]
                else:
                    step[samples][box] = _resized(whole[partner], shown)

    def _seen(self, low: Tensor, high: Tensor, size: torch.Size) -> list[Taps]:
        return [_axis_taps(low[..., axis, None], high[..., axis, None], side, self.resize) for axis, side in enumerate(size)]


def _axis_taps(low: Tensor, high: Tensor, side: int, resize: Resize) -> Taps:
    """Where each place along an axis looks in the partner; outside ``low, high [K, rows, 1]``, where nothing shows, anywhere."""
    width = (high - low).clamp(min=1)
    place = torch.minimum((torch.arange(side, device=low.device) - low).clamp(min=0), width - 1)
    if resize == "nearest":
        return Taps(place * side // width)
    # The middle of a shown place, in places of the partner; beyond the middle of the outermost one that one is shown.
    middle = (((2 * place + 1) * side - width).to(widest_float(low.device)) / (2 * width)).clamp(0, side - 1)
    first = middle.floor()
    return Taps(first.long(), (first.long() + 1).clamp(max=side - 1), middle - first)


def _resized(z: Tensor, taps: list[Taps]) -> Tensor:
    """``z [B, C, *size]`` looked up along every axis at places ``[1 or B, places]``."""
    half = z.dtype in (torch.float16, torch.bfloat16) and taps[0].second is not None
    shown = z.float() if half else z  # rounded once, at the end
    for axis, (first, second, weight) in enumerate(taps, 2):
        near = _looked_up(shown, axis, first)
        if second is None or weight is None:
            shown = near
        else:
            along = weight.reshape(len(weight), *[1] * (axis - 1), -1, *[1] * (z.ndim - axis - 1))
            shown = mix(near, _looked_up(shown, axis, second), along)
    return shown.to(z.dtype)


def _looked_up(z: Tensor, axis: int, place: Tensor) -> Tensor:
    if len(place) == 1 and axis < z.ndim - 1:
        return z.index_select(axis, place[0])  # whole rows; along the last axis it is slower than gathering
    place = place.reshape(len(place), *[1] * (axis - 1), -1, *[1] * (z.ndim - axis - 1))
    return z.gather(axis, place.expand(*z.shape[:axis], -1, *z.shape[axis + 1 :]))
