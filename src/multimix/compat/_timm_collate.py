"""timm's collating mixup with ``k``; imported by :mod:`multimix.compat.timm` when it is asked for, since it needs timm."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from timm.data import FastCollateMixup as Original
from torch import Tensor

from ..checks import check_whole
from ._timm_draws import Step, draw_batch, draw_samples, mixed_targets


class FastCollateMixup(Original):  # type: ignore[misc]  # timm has no types
    """Mixes uint8 samples while they are collated; at ``k=1`` it is timm's own. Modes are batch, pair, elem and half."""

    def __init__(self, *args: Any, k: int = 1, **options: Any) -> None:
        check_whole("k", k)
        super().__init__(*args, **options)
        self.k = k

    def __call__(self, batch: Sequence[tuple[Any, int]], _: object = None) -> tuple[Tensor, Tensor]:
        if self.k == 1:
            return super().__call__(batch)  # type: ignore[no-any-return]
        if len(batch) % 2:
            raise ValueError(f"the batch must have an even number of samples, as for timm, got {len(batch)}")
        x = torch.stack([torch.as_tensor(np.asarray(sample)) for sample, _ in batch])
        target = torch.tensor([label for _, label in batch], dtype=torch.int64)
        kept = len(x) // 2 if self.mode == "half" else len(x)
        steps = self._steps(len(x), x.shape)
        if steps is None:
            return x[:kept], mixed_targets(target, self.num_classes, [1.0], self.label_smoothing)[:kept]
        rows = [_mixed(x, i, steps[i][k]) for k in range(self.k) for i in range(kept)]
        own = [_column([steps[i][k].own for i in range(kept)], len(x)) for k in range(self.k)]
        targets = [mixed_targets(target, self.num_classes, [one], self.label_smoothing)[:kept] for one in own]
        return torch.stack(rows), torch.cat(targets)

    def _steps(self, count: int, shape: Sequence[int]) -> list[list[Step]] | None:
        """The steps of every sample that is kept."""
        if self.mode not in ("pair", "elem", "half"):
            drawn = draw_batch(self, shape)
            return None if drawn is None else [drawn] * count
        found = draw_samples(self, count if self.mode == "elem" else count // 2, shape)
        return [*found, *reversed(found)] if found is not None and self.mode == "pair" else found


def _mixed(x: Tensor, i: int, step: Step) -> Tensor:
    """Sample ``i`` with its partner, rounded to whole numbers."""
    own, other = x[i], x[len(x) - i - 1]
    if step.box is not None:
        top, bottom, left, right = step.box
        row = own.clone()
        row[:, top:bottom, left:right] = other[:, top:bottom, left:right]
        return row
    weight = float(step.own)
    return (own.float() * weight + other.float() * (1 - weight)).round().to(x.dtype)


def _column(own: Sequence[Any], count: int) -> Tensor:
    """Weights as a column of ``count`` rows; the last half of mode half is not used."""
    weights = torch.ones(count, 1)
    weights[: len(own), 0] = torch.tensor([float(one) for one in own])
    return weights
