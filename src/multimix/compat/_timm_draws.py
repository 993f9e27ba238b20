"""What timm's mixing draws from NumPy's global stream, for K steps: weights, boxes, and the targets that follow from them.

``options`` is one of the mixing objects of :mod:`multimix.compat.timm`, with timm's names for its fields and ``k``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Box = tuple[int, int, int, int]  # top, bottom, left, right


class Step(NamedTuple):
    """One interpolation of a sample: the weight of itself, and the box that the partner fills; without one they are blended."""

    own: Any
    box: Box | None = None


def mixed_targets(target: Tensor, num_classes: int, own: Sequence[Any], smoothing: float) -> Tensor:
    """Soft targets of all interpolations, the first below the second; ``own`` are weights of the samples themselves."""
    off = smoothing / num_classes
    hot = torch.full((len(target), num_classes), off, device=target.device)
    hot.scatter_(1, target.long().view(-1, 1), 1.0 - smoothing + off)
    if isinstance(own[0], Tensor):
        hot = hot.to(torch.result_type(hot, own[0]))
    rows, parts = repeated(hot, len(own))
    for part, one in zip(parts, own, strict=True):
        blend_reversed(part, one)
    return rows


def repeated(x: Tensor, k: int) -> tuple[Tensor, list[Tensor]]:
    """``[K·B, …]``, ``k`` copies of ``x [B, …]``, and each of them, to be written to; ``x`` itself for one."""
    if k == 1:
        return x, [x]
    rows = torch.cat([x] * k)
    steps = rows.view(k, *x.shape)
    return rows, [steps[i] for i in range(k)]


def blend_reversed(x: Tensor, own: Any) -> None:
    """Mix ``x`` in place with itself in reverse order; rounded after every step, as timm's is."""
    other = x.flip(0).mul_(1.0 - own)
    x.mul_(own).add_(other)


def draw_batch(options: Any, shape: Sequence[int]) -> list[Step] | None:
    """The steps of a whole batch, in ascending order of the partner's share; None where it stays unmixed."""
    if not (options.mixup_enabled and np.random.rand() < options.mix_prob):  # noqa: NPY002  timm's stream
        return None
    both = options.mixup_alpha > 0 and options.cutmix_alpha > 0
    cut = np.random.rand() < options.switch_prob if both else options.mixup_alpha <= 0  # noqa: NPY002
    alpha = options.cutmix_alpha if cut else options.mixup_alpha
    # One by one: plain numbers, and less work than arrays of a few.
    weights = [np.random.beta(alpha, alpha) for _ in range(options.k)]  # noqa: NPY002
    weights.sort(reverse=True)
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
