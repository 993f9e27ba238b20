"""Losses for soft targets, and the training accuracy under mixing."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .devices import float32_or_better

Criterion = Callable[[Tensor, Tensor], Tensor]
"""A function of logits and soft target that returns a scalar."""


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Compute −Σ_c target_c log p_c, averaged over the rows.

    This equals ``torch.nn.functional.cross_entropy(logits, target)``. The loss is linear in the
    target, so a mixed target gives (1 − λ) CE(y) + λ CE(y').

    Args:
        logits: ``[N, C]``.
        target: ``[N, C]`` soft targets.

    Returns:
        A scalar.

    Raises:
        TypeError: If an argument is not a floating-point tensor.
        ValueError: If the shapes are not ``[N, C]``.
    """
    _check(logits, target)
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


def softmax_bce(logits: Tensor, target: Tensor) -> Tensor:
    """Compute the binary cross-entropy of the softmax output, averaged over rows **and classes**.

    The reference code of manifold mixup, PuzzleMix and Co-Mixup uses this loss on CIFAR and
    Tiny-ImageNet. Its gradient is about 1/C of the cross-entropy gradient, so the two losses need
    different learning rates. It is computed in float32 or better and works under autocast.

    Args:
        logits: ``[N, C]`` with at least 2 classes.
        target: ``[N, C]`` soft targets.

    Returns:
        A scalar.

    Raises:
        TypeError: If an argument is not a floating-point tensor.
        ValueError: If the shapes are not ``[N, C]`` with at least 2 classes.
    """
    _check(logits, target)
    if logits.shape[-1] < 2:
        shape = list(logits.shape)
        raise ValueError(f"softmax_bce needs at least 2 classes, got logits of shape {shape}")
    logits = float32_or_better(logits)
    log_p = logits.log_softmax(-1)
    # Only the top class can be near p = 1, where log(1 − p) must come from the other logits.
    top = torch.zeros_like(logits, dtype=torch.bool)
    top.scatter_(-1, logits.argmax(-1, keepdim=True), True)
    log_sum_of_rest = logits.masked_fill(top, -torch.inf).logsumexp(-1, keepdim=True)
    log_rest_of_top = log_sum_of_rest - logits.logsumexp(-1, keepdim=True)
    log_rest = torch.where(top, log_rest_of_top, torch.log1p(-log_p.exp().masked_fill(top, 0)))
    return -(target * log_p + (1 - target) * log_rest).mean()


def pair_loss(criterion: Criterion) -> Criterion:
    """Convert a loss for class indices to a loss for soft targets.

    The result is (1 − λ) L(y) + λ L(y'), averaged over the rows. The criterion is called as often
    as a target row has nonzero classes: twice for pairs, C times with smoothed labels.

    Args:
        criterion: Maps ``logits [N, C]`` and ``label [N]`` to one loss per row, as most losses do
            with ``reduction="none"``.

    Returns:
        A function of logits and soft target. It raises ValueError if ``criterion`` does not return
        one loss per row.
    """

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        _check(logits, target)
        shares, labels = target.topk(max(1, int((target != 0).sum(1).max())), dim=1)
        # Rows with fewer classes repeat their first class, since 0 times an infinite loss is NaN.
        labels = torch.where(shares == 0, labels[:, :1], labels)
        total = logits.new_zeros(len(logits))
        for share, label in zip(shares.unbind(1), labels.unbind(1), strict=True):
            rows = criterion(logits, label)
            if not isinstance(rows, Tensor) or rows.shape != label.shape:
                got = list(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
                raise ValueError(
                    f"criterion must return one loss for each of {len(label)} rows "
                    f'(reduction="none"), got {got}'
                )
            total = total + share * rows
        return total.mean()

    return loss


def mixed_accuracy(logits: Tensor, target: Tensor) -> Tensor:
    """Compute the mean target mass on the predicted class.

    A row counts 1 − λ if the prediction is y, λ if it is y', and 1 if y and y' are the same class.
    This is the probability that the prediction matches a label drawn from the target. The maximum
    is ``target.max(-1).values.mean()``, not 1.

    Args:
        logits: ``[N, C]``.
        target: ``[N, C]`` soft targets.

    Returns:
        A scalar.

    Raises:
        TypeError: If an argument is not a floating-point tensor.
        ValueError: If the shapes are not ``[N, C]``.
    """
    _check(logits, target)
    return target.gather(-1, logits.argmax(-1, keepdim=True)).mean()


def check_scalar(value: Any) -> Tensor:
    """Check the result of a criterion.

    Args:
        value: The result.

    Returns:
        ``value``.

    Raises:
        ValueError: If ``value`` is not a scalar tensor.
    """
    if not isinstance(value, Tensor) or value.ndim != 0:
        got = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"criterion must return a scalar tensor, got {got}")
    return value


def _check(logits: Tensor, target: Tensor) -> None:
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a floating-point tensor, got {got}")
    if logits.shape != target.shape or logits.ndim != 2:
        shapes = f"{list(logits.shape)} and {list(target.shape)}"
        raise ValueError(f"logits and target must both be [N, C], got {shapes}")
