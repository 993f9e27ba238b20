"""``timm.data.Mixup`` and ``FastCollateMixup`` with ``k`` ordered interpolations of every pair.

At ``k=1`` output, target and NumPy's random state are timm's bit for bit (as of 1.0.30), including
in-place mixing. With ``k > 1`` the result has k·B rows, in ascending order of the partner's share;
boxes share one center and nest. λ is timm's: the weight of the sample itself.

Only ``FastCollateMixup`` needs timm, whose loader requires a subclass of timm's class.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.checks import check_choice, check_whole
from ._timm_draws import Step, blend_reversed, draw_batch, draw_samples, mixed_targets, repeated

MODES = ("batch", "pair", "elem")


class Mixup:
    """Mixup and CutMix with timm's arguments.

    Args:
        mixup_alpha: Parameter of mixup's Beta law; 0 disables mixup.
        cutmix_alpha: Parameter of CutMix's Beta law; 0 disables CutMix.
        cutmix_minmax: Range of the sides of boxes, as shares of the image's, instead of a λ.
        prob: Probability of mixing a batch, or a sample.
        switch_prob: Probability of CutMix if both are enabled.
        mode: ``batch``, ``pair`` or ``elem``: draw per batch, pair or sample.
        correct_lam: Set λ to the area of clipped boxes.
        label_smoothing: ε.
        num_classes: Number of classes.
        k: Number of interpolations per pair.

    Attributes:
        mixup_enabled: ``False`` disables mixing. Unmixed batches have B rows for every ``k``.

    Example::

        mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=100, k=5)
        x, target = mixup(x, y)
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
            raise ValueError("mixup_alpha or cutmix_alpha must be above 0, or pass cutmix_minmax")
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
        """Mix a batch.

        Args:
            x: ``[B, C, H, W]`` with an even B. Changed in place if ``k`` is 1, as by timm.
            target: Class indices ``[B]``.

        Returns:
            ``[K·B, C, H, W]`` and soft targets ``[K·B, num_classes]``.

        Raises:
            ValueError: If B is odd, or ``target`` is not ``[B]``.
        """
        batch = len(x)
        if batch % 2:
            raise ValueError(f"x must have an even number of samples, got {batch}")
        if target.shape != (batch,):
            raise ValueError(
                f"target must be class indices [{batch}], got {list(target.shape)}: use "
                "multimix.Mix for soft targets"
            )
        if self.mode == "batch":
            return self._mix_batch(x, target)
        mixed, weights = self._mix_samples(x)
        return mixed, mixed_targets(target, self.num_classes, weights, self.label_smoothing)

    def _mix_batch(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        steps = draw_batch(self, x.shape)
        weights = [1.0] if steps is None else [step.own for step in steps]
        targets = mixed_targets(target, self.num_classes, weights, self.label_smoothing)
        if steps is None:
            return x, targets
        rows, parts = repeated(x, self.k)
        for part, step in zip(parts, steps, strict=True):
            _mix_in_place(part, step)
        return rows, targets

    def _mix_samples(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Mix with a draw for every sample, or in mode pair for every pair."""
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
        weights = np.array([[step.own for step in steps] for steps in drawn], dtype=np.float32)
        columns = torch.tensor(weights, device=x.device, dtype=x.dtype).tensor_split(self.k, 1)
        return rows[0] if self.k == 1 else torch.cat(rows), list(columns)


def _mix_in_place(x: Tensor, step: Step) -> None:
    if step.box is not None:
        top, bottom, left, right = step.box
        x[:, :, top:bottom, left:right] = x[:, :, top:bottom, left:right].flip(0)
    else:
        blend_reversed(x, step.own)


def __getattr__(name: str) -> Any:
    """Import ``FastCollateMixup`` on first use, since it needs timm."""
    if name != "FastCollateMixup":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._timm_collate import FastCollateMixup

    globals()[name] = FastCollateMixup
    return FastCollateMixup
