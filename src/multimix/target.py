"""Labels of any kind → what a loss can be averaged over; label smoothing."""

import numpy as np
import torch
from torch import Tensor

from . import pool
from .checks import can_inspect, check_share, check_target, check_whole, plain_labels


def soft_target(y: Tensor, num_classes: int | None = None, smoothing: float = 0.0) -> Tensor:
    """``y`` as floating-point rows that can be mixed.

    Class indices ``[B]`` become one-hot rows ``[B, num_classes]``; probabilities and multi-hot rows ``[B, C]`` and real-valued
    targets of any shape pass as they are. Integers are class indices if they have one axis; with ``num_classes`` also index maps
    ``[B, *size]``, which become ``[B, num_classes, *size]``. Others must be 0 or 1. ``smoothing`` = ε gives (1 − ε) y + ε / C,
    for rows that sum to 1.

    >>> soft_target(torch.tensor([2, 0]), 3)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    check_target(y)
    y = plain_labels(y)
    check_share("smoothing", smoothing)
    if y.ndim == 0 or len(y) == 0:
        raise ValueError(f"y must hold one row per sample, got shape {list(y.shape)}")
    if not y.is_floating_point() and (y.ndim == 1 or (y.ndim > 2 and num_classes is not None)):
        target = _one_hot(y, num_classes)
    else:
        check_whole("num_classes", num_classes, none=True)
        if num_classes is not None and (y.ndim != 2 or y.shape[1] != num_classes):
            hint = "; y.long() makes class indices of it" if y.ndim == 1 else ""
            raise ValueError(
                f"with num_classes={num_classes}, y must be class indices [B] or rows [B, {num_classes}], "
                f"got {y.dtype} {list(y.shape)}{hint}"
            )
        target = y if y.is_floating_point() else _multi_hot(y)
    return smoothed(target, smoothing) if smoothing else target


def smoothed(target: Tensor, smoothing: float) -> Tensor:
    """(1 − ε) y + ε / C. It commutes with mixing, since both are affine in y."""
    check_share("smoothing", smoothing)
    if target.ndim != 2:
        raise ValueError(f"smoothing needs class targets [B, C], got shape {list(target.shape)}")
    if can_inspect(target) and not torch.allclose(target.sum(1), target.new_ones(()), atol=1e-3):
        raise ValueError("smoothing needs target rows that sum to 1; multi-hot and real-valued targets cannot be smoothed")
    return torch.lerp(target, torch.full_like(target, 1 / target.shape[1]), smoothing)


def _multi_hot(y: Tensor) -> Tensor:
    if can_inspect(y) and not bool(((y == 0) | (y == 1)).all()):
        hint = "; y.squeeze(1) makes class indices of it" if y.shape[1:] == (1,) else ""
        raise ValueError(f"integer targets of shape {list(y.shape)} must be 0 or 1, got {int(y.min())} … {int(y.max())}{hint}")
    return y.float()


def check_indices(label: Tensor, num_classes: int | None) -> int:
    """``num_classes``, or ValueError unless ``label`` holds indices of so many classes."""
    if label.dtype == torch.bool:
        raise ValueError("y of shape [B] must hold class indices or real values, got torch.bool; use y.long() or y.float()")
    if num_classes is None:
        raise ValueError("class indices need num_classes to become a target (for real values use y.float())")
    check_whole("num_classes", num_classes, 2)
    # On an accelerator an index out of range is left to scatter, which fails there too.
    if can_inspect(label):
        low, high = (int(end) for end in label.aminmax())
        if low < 0 or high >= num_classes:
            raise ValueError(f"class indices must lie in 0 … {num_classes - 1}, got {low} … {high}")
    return num_classes


def mixed_labels(label: Tensor, partner: Tensor, lam: Tensor, num_classes: int) -> Tensor | None:
    """``[K·B, C]``: 1 − λ_k for the class of a sample and λ_k for that of its partner; None if NumPy cannot do it.

    To the last bit what mixing one-hot rows gives: the two shares of one class add up to exactly 1 however they are rounded.
    """
    dtype = torch.get_default_dtype()
    if lam.requires_grad or dtype not in pool.NUMPY:
        return None
    k, batch = lam.shape
    rows = pool.rows((k * batch, num_classes), dtype).zero_()
    steps, share = rows.numpy().reshape(k, -1), lam.numpy().astype(pool.NUMPY[dtype])
    first, own = np.arange(0, batch * num_classes, num_classes), label.numpy()
    steps[:, first + own] = 1 - share
    steps[:, first + own[partner.numpy()]] += share
    return rows


def _one_hot(label: Tensor, num_classes: int | None) -> Tensor:
    num_classes = check_indices(label, num_classes)
    one_hot = torch.zeros(len(label), num_classes, *label.shape[1:], device=label.device)
    return one_hot.scatter_(1, label.long().unsqueeze(1), 1.0)
