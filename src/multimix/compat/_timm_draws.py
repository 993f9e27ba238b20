"""timm's draws from NumPy's global stream, for K steps, and its targets.

``options`` is a mixing object of :mod:`multimix.compat.timm`, with timm's names of attributes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Box = tuple[int, int, int, int]  # top, bottom, left, right


class Step(NamedTuple):
    """One interpolation of a sample.

    Attributes:
        own: Weight of the sample itself.
        box: The box that the partner fills; None blends the two.
    """

    own: Any
    box: Box | None = None


def mixed_targets(target: Tensor, num_classes: int, own: Sequence[Any], smoothing: float) -> Tensor:
    """Compute soft targets.

    Args:
        target: Class indices ``[B]``.
        num_classes: Number of classes.
        own: K weights of the samples themselves: numbers, or columns ``[B, 1]``.
        smoothing: Label smoothing ε.

    Returns:
        ``[K·B, C]``, k-major.
    """
    off = smoothing / num_classes
    hot = torch.full((len(target), num_classes), off, device=target.device)
    hot.scatter_(1, target.long().view(-1, 1), 1.0 - smoothing + off)
    if isinstance(own[0], Tensor):
        hot = hot.to(torch.result_type(hot, own[0]))
    rows, parts = repeated(hot, len(own))
    for part, weight in zip(parts, own, strict=True):
        blend_reversed(part, weight)
    return rows


def repeated(x: Tensor, k: int) -> tuple[Tensor, list[Tensor]]:
    """Return ``k`` copies of ``x`` as ``[K·B, …]``, and a view of each; ``x`` itself if k is 1."""
    if k == 1:
        return x, [x]
    rows = torch.cat([x] * k)
    steps = rows.view(k, *x.shape)
    return rows, [steps[i] for i in range(k)]


def blend_reversed(x: Tensor, own: Any) -> None:
    """Mix ``x`` in place with its reverse; the order of operations gives timm's rounding."""
    other = x.flip(0).mul_(1.0 - own)
    x.mul_(own).add_(other)


def draw_batch(options: Any, shape: Sequence[int]) -> list[Step] | None:
    """Draw the steps of a batch, in ascending order of λ; None if it stays unmixed."""
    if not (options.mixup_enabled and np.random.rand() < options.mix_prob):  # noqa: NPY002  timm's stream
        return None
    both = options.mixup_alpha > 0 and options.cutmix_alpha > 0
    cut = np.random.rand() < options.switch_prob if both else options.mixup_alpha <= 0  # noqa: NPY002
    alpha = options.cutmix_alpha if cut else options.mixup_alpha
    weights = [np.random.beta(alpha, alpha) for _ in range(options.k)]  # noqa: NPY002
    weights.sort(reverse=True)
    if weights == [1.0]:
        return None
    return draw_boxes(options, shape, weights) if cut else [Step(weight) for weight in weights]


def draw_samples(options: Any, count: int, shape: Sequence[int]) -> list[list[Step]] | None:
    """Draw the steps of each sample, with float32 weights; None if mixing is disabled."""
    if not options.mixup_enabled:
        return None
    size = count if options.k == 1 else (options.k, count)
    cut = np.zeros(count, dtype=bool)
    if options.mixup_alpha > 0 and options.cutmix_alpha > 0:
        cut = np.random.rand(count) < options.switch_prob  # noqa: NPY002
        own = np.random.beta(options.cutmix_alpha, options.cutmix_alpha, size=size)  # noqa: NPY002
        blend = np.random.beta(options.mixup_alpha, options.mixup_alpha, size=size)  # noqa: NPY002
        own = np.where(cut, own, blend)
    else:
        cut[:] = options.mixup_alpha <= 0
        alpha = options.cutmix_alpha if cut.any() else options.mixup_alpha
        own = np.random.beta(alpha, alpha, size=size)  # noqa: NPY002
    mixed = np.random.rand(count) < options.mix_prob  # noqa: NPY002
    own = _descending(own.reshape(options.k, count)).astype(np.float32)
    own = np.where(mixed, own, np.float32(1))
    samples = []
    for i in range(count):
        weights = list(own[:, i])
        if cut[i] and any(weight != 1 for weight in weights):
            samples.append(draw_boxes(options, shape, weights))
        else:
            samples.append([Step(weight) for weight in weights])
    return samples


def draw_boxes(options: Any, shape: Sequence[int], own: Sequence[Any]) -> list[Step]:
    """Draw nested boxes, one for each of the descending weights, and correct the weights."""
    height, width = shape[-2:]
    if options.cutmix_minmax is not None:
        low, high = options.cutmix_minmax
        heights, widths = (
            np.sort(np.random.randint(int(side * low), int(side * high), size=len(own)))  # noqa: NPY002
            for side in (height, width)
        )
        tops, lefts = _starts(height, heights), _starts(width, widths)
        sides = zip(tops, heights, lefts, widths, strict=True)
        boxes = [(t, t + h, s, s + w) for t, h, s, w in sides]
    else:
        y, x = np.random.randint(0, height), np.random.randint(0, width)  # noqa: NPY002
        boxes = []
        for weight in own:
            ratio = np.sqrt(1 - weight)
            vertical = _around(y, int(height * ratio), height)
            boxes.append((*vertical, *_around(x, int(width * ratio), width)))
    if not (options.correct_lam or options.cutmix_minmax is not None):
        return [Step(weight, box) for weight, box in zip(own, boxes, strict=True)]
    area = float(height * width)
    return [Step(1.0 - (b - t) * (r - s) / area, (t, b, s, r)) for t, b, s, r in boxes]


def _starts(side: int, lengths: np.ndarray) -> list[int]:
    """Draw where nested boxes of ascending ``lengths`` start, each uniform inside ``side``."""
    if len(lengths) == 1:
        return [np.random.randint(0, side - lengths[0] + 1)]  # noqa: NPY002
    place = np.random.rand()  # noqa: NPY002
    return [int(place * (side - length + 1)) for length in lengths]


def _around(middle: int, length: int, side: int) -> tuple[int, int]:
    """Return both ends of ``length`` around ``middle``, clipped to [0, ``side``]."""
    return max(middle - length // 2, 0), min(middle + (length + 1) // 2, side)


def _descending(own: np.ndarray) -> np.ndarray:
    return -np.sort(-own, axis=0) if len(own) > 1 else own
