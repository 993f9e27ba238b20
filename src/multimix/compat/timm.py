"""``timm.data.Mixup`` and ``FastCollateMixup`` with one more argument: ``k`` ordered interpolations of every pair.

    from multimix.compat.timm import Mixup

At ``k=1`` output, target and NumPy's global random state afterwards are timm's bit for bit (as of 1.0.30), in-place mixing of the
batch included. With ``k > 1`` the batch that comes out has k·B rows: first all samples with the least share of their partner,
last all with the largest; boxes share one centre and are nested. λ is timm's: the weight of a sample itself.

Only ``FastCollateMixup`` needs timm: its loader asks for that class, so it is a subclass.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import one_pass
from ..checks import check_choice, check_whole
from ..mixing import can_write_in_place
from ._timm_draws import Step, blend_reversed, draw_batch, draw_samples, mixed_targets, repeated

MODES = ("batch", "pair", "elem")


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
        batch = len(x)
        if batch % 2:
            raise ValueError(f"the batch must have an even number of samples, as for timm, got {batch}")
        if target.shape != (batch,):
            raise ValueError(f"target must be class indices [{batch}], got {list(target.shape)}; multimix.Mix takes soft targets")
        if self.mode == "batch":
            return self._mix_batch(x, target)
        mixed, own = self._mix_samples(x)
        return mixed, mixed_targets(target, self.num_classes, own, self.label_smoothing)

    def _mix_batch(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        steps = draw_batch(self, x.shape)
        own = [1.0] if steps is None else [step.own for step in steps]
        # The targets first: mixing x empties the caches of all that is small.
        targets = mixed_targets(target, self.num_classes, own, self.label_smoothing)
        if steps is None:
            return x, targets
        rows, parts = repeated(x, self.k)
        for part, step in zip(parts, steps, strict=True):
            _mix_in_place(part, step)
        return rows, targets

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


def _mix_in_place(x: Tensor, step: Step) -> None:
    if step.box is not None:
        top, bottom, left, right = step.box
        # A copy of the box alone: the flipped batch would be five times as much.
        x[:, :, top:bottom, left:right] = x[:, :, top:bottom, left:right].flip(0)
    elif not (one_pass.is_time() and can_write_in_place(x) and one_pass.blend_reversed(x, step.own)):
        blend_reversed(x, step.own)


def __getattr__(name: str) -> Any:
    """``FastCollateMixup`` is made when it is first asked for, since its parent is timm's."""
    if name != "FastCollateMixup":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._timm_collate import FastCollateMixup

    globals()[name] = FastCollateMixup
    return FastCollateMixup
