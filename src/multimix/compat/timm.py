"""``timm.data.Mixup`` and ``FastCollateMixup`` with one more argument: ``k`` ordered interpolations of every pair.

    from multimix.compat.timm import Mixup

At ``k=1`` output, target and NumPy's global random state afterwards are timm's bit for bit (as of 1.0.30), in-place mixing of the
batch included. With ``k > 1`` the batch that comes out has k·B rows: first all samples with the least share of their partner,
last all with the largest; boxes share one centre and are nested. λ is timm's: the weight of a sample itself.

Only ``FastCollateMixup`` needs timm: its loader asks for that class, so it is a subclass.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..checks import check_choice, check_whole

MODES = ("batch", "pair", "elem")
Box = tuple[int, int, int, int]  # top, bottom, left, right


class Step(NamedTuple):
    """One interpolation of a sample: the weight of itself, and the box that the partner fills; without one they are blended."""

    own: Any
    box: Box | None = None


class Mixup:
    """Mixup and CutMix as timm draws them; all arguments are timm's but ``k``.

    ``mixup_enabled = False`` turns mixing off: batches then have B rows whatever ``k`` is, as has a batch that ``prob`` leaves
    unmixed in batch mode.
    """

    def __init__(
        self,
        mixup_alpha: float = 1.0,
        cutmix_alpha: float = 0.0,
        cutmix_minmax: Sequence[float] | None = None,
        prob: float = 1.0,
        switch_prob: float = 0.5,
        mode: str = "batch",
        correct_lam: bool = True,
        label_smoothing: float = 0.1,
        num_classes: int = 1000,
        *,
        k: int = 1,
    ) -> None:
        check_whole("k", k)
        check_choice("mode", mode, MODES)
        if cutmix_minmax is not None and len(cutmix_minmax) != 2:
            raise ValueError(f"cutmix_minmax must be two shares of a side, got {cutmix_minmax!r}")
        if not (mixup_alpha > 0 or cutmix_alpha > 0 or cutmix_minmax is not None):
            raise ValueError("one of mixup_alpha and cutmix_alpha must be above 0, or cutmix_minmax given")
        self.mixup_alpha = mixup_alpha
        self.cutmix_minmax = cutmix_minmax
        self.cutmix_alpha = cutmix_alpha if cutmix_minmax is None else 1.0
        self.mix_prob = prob
        self.switch_prob = switch_prob
        self.label_smoothing = label_smoothing
        self.num_classes = num_classes
        self.mode = mode
        self.correct_lam = correct_lam
        self.mixup_enabled = True
        self.k = k

    def __call__(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if len(x) % 2:
            raise ValueError(f"the batch must have an even number of samples, as for timm, got {len(x)}")
        if target.shape != (len(x),):
            raise ValueError(
                f"target must be class indices [{len(x)}], got {list(target.shape)}; multimix.Mix takes soft targets"
            )
        if self.mode == "batch":
            mixed, own = self._mix_batch(x)
        else:
            mixed, own = self._mix_samples(x)
        return mixed, mixed_targets(target, self.num_classes, own, self.label_smoothing)

    def _mix_batch(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        steps = draw_batch(self, x.shape)
        if steps is None:
            return x, [1.0]
        if self.k == 1:
            _mix_in_place(x, steps[0])
            return x, [steps[0].own]
        # Before any row is overwritten.
        copies = [x.clone() for _ in steps]
        for copy, step in zip(copies, steps, strict=True):
            _mix_in_place(copy, step)
        return torch.cat(copies), [step.own for step in steps]

    def _mix_samples(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """A draw for every sample, or in mode pair for every two that are each other's partners."""
        drawn = draw_samples(self, len(x) // (2 if self.mode == "pair" else 1), x.shape)
        if drawn is None:
            return x, [torch.ones(len(x), 1, device=x.device, dtype=x.dtype)]
        if self.mode == "pair":
            drawn = [*drawn, *reversed(drawn)]
        original, rows = x.clone(), []
        for k in range(self.k):
            out = x if self.k == 1 else x.clone()
            for i, steps in enumerate(drawn):
                j, (own, box) = len(x) - i - 1, steps[k]
                if box is not None:
                    top, bottom, left, right = box
                    out[i, :, top:bottom, left:right] = original[j, :, top:bottom, left:right]
                elif own != 1:
                    out[i] = original[i] * own + original[j] * (1 - own)
            rows.append(out)
        weights = [np.array([steps[k].own for steps in drawn], dtype=np.float32) for k in range(self.k)]
        own = [torch.tensor(one, device=x.device, dtype=x.dtype).unsqueeze(1) for one in weights]
        return rows[0] if self.k == 1 else torch.cat(rows), own


def mixed_targets(target: Tensor, num_classes: int, own: Sequence[Any], smoothing: float) -> Tensor:
    """Soft targets of all interpolations, the first below the second; ``own`` are weights of the samples themselves."""
    off = smoothing / num_classes
    first = torch.full((len(target), num_classes), off, device=target.device)
    first.scatter_(1, target.long().view(-1, 1), 1.0 - smoothing + off)
    second = first.flip(0)
    mixed = [first * one + second * (1.0 - one) for one in own]
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def draw_batch(options: Any, shape: Sequence[int]) -> list[Step] | None:
    """The steps of a whole batch, in ascending order of the partner's share; None where it stays unmixed."""
    if not (options.mixup_enabled and np.random.rand() < options.mix_prob):  # noqa: NPY002  timm's stream
        return None
    both = options.mixup_alpha > 0 and options.cutmix_alpha > 0
    cut = np.random.rand() < options.switch_prob if both else options.mixup_alpha <= 0  # noqa: NPY002
    alpha = options.cutmix_alpha if cut else options.mixup_alpha
    own = _descending(np.random.beta(alpha, alpha, size=options.k))  # noqa: NPY002
    # Plain numbers, as one draw would be: arrays of one may round differently.
    weights = [float(one) for one in own]
    if weights == [1.0]:
        return None
    return draw_boxes(options, shape, weights) if cut else [Step(one) for one in weights]


def draw_samples(options: Any, count: int, shape: Sequence[int]) -> list[list[Step]] | None:
    """The steps of each of ``count`` samples; None where mixing is off. The weights are float32, as timm's are."""
    if not options.mixup_enabled:
        return None
    size = count if options.k == 1 else (options.k, count)
    cut = np.zeros(count, dtype=bool)
    if options.mixup_alpha > 0 and options.cutmix_alpha > 0:
        cut = np.random.rand(count) < options.switch_prob  # noqa: NPY002
        own = np.random.beta(options.cutmix_alpha, options.cutmix_alpha, size=size)  # noqa: NPY002
        own = np.where(cut, own, np.random.beta(options.mixup_alpha, options.mixup_alpha, size=size))  # noqa: NPY002
    else:
        cut[:] = options.mixup_alpha <= 0
        alpha = options.cutmix_alpha if cut.any() else options.mixup_alpha
        own = np.random.beta(alpha, alpha, size=size)  # noqa: NPY002
    mixed = np.random.rand(count) < options.mix_prob  # noqa: NPY002
    own = np.where(mixed, _descending(own.reshape(options.k, count)).astype(np.float32), np.float32(1))
    found = []
    for i in range(count):
        weights = list(own[:, i])
        # One of several that rounds to 1 still takes part in the draw of a box.
        boxed = cut[i] and any(one != 1 for one in weights)
        found.append(draw_boxes(options, shape, weights) if boxed else [Step(one) for one in weights])
    return found


def draw_boxes(options: Any, shape: Sequence[int], own: Sequence[Any]) -> list[Step]:
    """Nested boxes, one for each weight in descending order, and the weights that they leave the sample itself."""
    height, width = shape[-2:]
    if options.cutmix_minmax is not None:
        low, high = options.cutmix_minmax
        heights = np.sort(np.random.randint(int(height * low), int(height * high), size=len(own)))  # noqa: NPY002
        widths = np.sort(np.random.randint(int(width * low), int(width * high), size=len(own)))  # noqa: NPY002
        tops, lefts = _starts(height, heights), _starts(width, widths)
        boxes = [(t, t + h, s, s + w) for t, h, s, w in zip(tops, heights, lefts, widths, strict=True)]
    else:
        ratios = [np.sqrt(1 - one) for one in own]
        y, x = np.random.randint(0, height), np.random.randint(0, width)  # noqa: NPY002
        boxes = [(*_around(y, int(height * ratio), height), *_around(x, int(width * ratio), width)) for ratio in ratios]
    if not (options.correct_lam or options.cutmix_minmax is not None):
        return [Step(one, box) for one, box in zip(own, boxes, strict=True)]
    return [Step(1.0 - (b - t) * (r - s) / float(height * width), (t, b, s, r)) for t, b, s, r in boxes]


def _starts(side: int, lengths: np.ndarray) -> list[int]:
    """Where boxes of ascending ``lengths`` start: each uniform over all places inside ``side``, every box inside the next."""
    if len(lengths) == 1:
        return [np.random.randint(0, side - lengths[0] + 1)]  # noqa: NPY002
    place = np.random.rand()  # noqa: NPY002
    return [int(place * (side - length + 1)) for length in lengths]


def _around(middle: int, length: int, side: int) -> tuple[int, int]:
    """Both ends of ``length`` around ``middle``, cut off at 0 and ``side``."""
    return max(middle - length // 2, 0), min(middle + (length + 1) // 2, side)


def _descending(own: np.ndarray) -> np.ndarray:
    return -np.sort(-own, axis=0) if len(own) > 1 else own


def _mix_in_place(x: Tensor, step: Step) -> None:
    if step.box is not None:
        top, bottom, left, right = step.box
        # A copy of the box alone: the flipped batch would be five times as much.
        x[:, :, top:bottom, left:right] = x[:, :, top:bottom, left:right].flip(0)
    else:
        other = x.flip(0).mul_(1.0 - step.own)
        x.mul_(step.own).add_(other)


def __getattr__(name: str) -> Any:
    """``FastCollateMixup`` is made when it is first asked for, since its parent is timm's."""
    if name != "FastCollateMixup":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._timm_collate import FastCollateMixup

    globals()[name] = FastCollateMixup
    return FastCollateMixup
