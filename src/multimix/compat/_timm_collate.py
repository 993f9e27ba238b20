"""timm's FastCollateMixup with ``k``, in its own module because it imports timm."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from timm.data import FastCollateMixup as Original
from torch import Tensor

from ..core.checks import check_whole
from ._timm_draws import Step, draw_batch, draw_samples, mixed_targets


class FastCollateMixup(Original):  # type: ignore[misc]  # timm has no types
    """Mix uint8 samples while they are collated; at ``k=1`` this is timm's class.

    Args:
        *args: As for timm's FastCollateMixup.
        k: Number of interpolations per pair.
        **options: As for timm's FastCollateMixup. Modes are batch, pair, elem and half.
    """

    def __init__(self, *args: Any, k: int = 1, **options: Any) -> None:
        check_whole("k", k)
        super().__init__(*args, **options)
        self.k = k

    def __call__(self, batch: Sequence[tuple[Any, int]], _: object = None) -> tuple[Tensor, Tensor]:
        if self.k == 1:
            return super().__call__(batch)  # type: ignore[no-any-return]
        if len(batch) % 2:
            raise ValueError(f"batch must have an even number of samples, got {len(batch)}")
        x = torch.stack([torch.as_tensor(np.asarray(sample)) for sample, _ in batch])
        target = torch.tensor([label for _, label in batch], dtype=torch.int64)
        count = len(x) // 2 if self.mode == "half" else len(x)
        steps = self._steps(len(x), x.shape)
        if steps is None:
            return x[:count], self._targets(target, 1.0)[:count]
        rows = [_mixed(x, i, steps[i][k]) for k in range(self.k) for i in range(count)]
        weights = [_column([steps[i][k].own for i in range(count)], len(x)) for k in range(self.k)]
        targets = [self._targets(target, weight)[:count] for weight in weights]
        return torch.stack(rows), torch.cat(targets)

    def _targets(self, target: Tensor, weight: Any) -> Tensor:
        return mixed_targets(target, self.num_classes, [weight], self.label_smoothing)

    def _steps(self, count: int, shape: Sequence[int]) -> list[list[Step]] | None:
        """Draw the steps of every sample; None if the batch stays unmixed."""
        if self.mode not in ("pair", "elem", "half"):
            drawn = draw_batch(self, shape)
            return None if drawn is None else [drawn] * count
        drawn_samples = draw_samples(self, count if self.mode == "elem" else count // 2, shape)
        if drawn_samples is None or self.mode != "pair":
            return drawn_samples
        return [*drawn_samples, *reversed(drawn_samples)]


def _mixed(x: Tensor, i: int, step: Step) -> Tensor:
    """Mix sample ``i`` with its partner and round to integers."""
    sample, partner = x[i], x[len(x) - i - 1]
    if step.box is not None:
        top, bottom, left, right = step.box
        row = sample.clone()
        row[:, top:bottom, left:right] = partner[:, top:bottom, left:right]
        return row
    weight = float(step.own)
    return (sample.float() * weight + partner.float() * (1 - weight)).round().to(x.dtype)


def _column(own: Sequence[Any], count: int) -> Tensor:
    """Weights as ``[count, 1]``. Mode half does not use the second half of the rows."""
    weights = torch.ones(count, 1)
    weights[: len(own), 0] = torch.tensor([float(weight) for weight in own])
    return weights
