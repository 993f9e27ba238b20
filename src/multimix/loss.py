"""Losses for soft targets, and a training accuracy that means something under mixing."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .checks import check_precision
from .precision import float32_or_better


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σ_c target_c log p_c, averaged over the rows.

    It is linear in the target, so for a mixed target it equals (1 − λ) CE(y) + λ CE(y'). The same number as
    ``torch.nn.functional.cross_entropy(logits, target)``.
    """
    _check(logits, target)
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


def softmax_bce(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy of the softmax output, averaged over rows **and classes**.

    The manifold-mixup, PuzzleMix and Co-Mixup code trains with it on CIFAR and Tiny-ImageNet. Its gradient is about 1/C of
    cross-entropy's, so the two need different learning rates. Computed from logits in float32 or better: no log of a rounded
    1 − p, and safe under autocast, where ``binary_cross_entropy`` refuses to run.
    """
    _check(logits, target)
    if logits.shape[-1] < 2:
        raise ValueError(f"softmax_bce needs at least 2 classes, got logits of shape {list(logits.shape)}")
    logits = float32_or_better(logits)
    log_p = logits.log_softmax(-1)
    # Only the top class can come near p = 1, where log(1 − p) must be taken from the other logits.
    top = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, logits.argmax(-1, keepdim=True), True)
    others = logits.masked_fill(top, -torch.inf).logsumexp(-1, keepdim=True)
    log_rest = torch.where(top, others - logits.logsumexp(-1, keepdim=True), torch.log1p(-log_p.exp().masked_fill(top, 0)))
    return -(target * log_p + (1 - target) * log_rest).mean()


def pair_loss(criterion: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss for soft targets made of one that takes class indices only: (1 − λ) L(y) + λ L(y'), averaged over the rows.

    ``criterion(logits [N, C], label [N])`` must give one loss per row, which most call ``reduction="none"``. It is called as
    often as a row of the target has classes: twice for pairs, C times with smoothed labels.
    """

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        _check(logits, target)
        shares, labels = target.topk(max(1, int((target != 0).sum(1).max())), dim=1)
        # Rows with fewer classes repeat one that they have: the loss of another, times 0, may not be a number.
        labels = torch.where(shares == 0, labels[:, :1], labels)
        total = logits.new_zeros(len(logits))
        for share, label in zip(shares.unbind(1), labels.unbind(1), strict=True):
            rows = criterion(logits, label)
            if not isinstance(rows, Tensor) or rows.shape != label.shape:
                got = f"shape {list(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
                raise ValueError(f'criterion must give one loss for each of {len(label)} rows (reduction="none"), got {got}')
            total = total + share * rows
        return total.mean()

    return loss


def mixed_accuracy(logits: Tensor, target: Tensor) -> Tensor:
    """The mean target mass on the predicted class: (1 − λ) where the prediction is y, λ where it is y', both if y = y'.

    It is the chance that the prediction matches a label drawn from the target. Counting a mixed row right or wrong against
    either label alone is not: no model reaches 100 % here, the best reaches ``target.max(-1).values.mean()``.
    """
    _check(logits, target)
    return target.gather(-1, logits.argmax(-1, keepdim=True)).mean()


def one_number(value: Any) -> Tensor:
    """``value``, or an error if it is not what a loss gives."""
    if not isinstance(value, Tensor) or value.ndim != 0:
        got = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"loss must give one number as a tensor, got {got}")
    return value


def _check(logits: Tensor, target: Tensor) -> None:
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a floating-point tensor, got {got}")
        if value.layout != torch.strided:
            raise ValueError(f"{name} must be a dense tensor, got {value.layout}")
        check_precision(name, value)
    if logits.shape != target.shape or logits.ndim != 2:
        raise ValueError(f"logits and target must both be [N, C], got {list(logits.shape)} and {list(target.shape)}")
    if logits.device != target.device:
        raise ValueError(f"logits and target must be on one device, got {logits.device} and {target.device}")
