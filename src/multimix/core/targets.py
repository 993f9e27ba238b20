"""Labels of any kind as floating-point rows that can be mixed; label smoothing."""

import torch
from torch import Tensor

from .checks import FLOATS, can_inspect, check_share, check_whole, plain


def soft_target(y: Tensor, num_classes: int | None = None, smoothing: float = 0.0) -> Tensor:
    """Convert labels to floating-point rows.

    Args:
        y: Class indices ``[B]``, which become one-hot rows; probabilities or multi-hot rows
            ``[B, C]``; real values of any shape; or, with ``num_classes``, index maps
            ``[B, *size]``, which become ``[B, num_classes, *size]``.
        num_classes: Number of classes, needed for class indices.
        smoothing: Label smoothing ε: (1 − ε) y + ε / C, for rows that sum to 1.

    Returns:
        ``[B, C]``, ``[B, C, *size]``, or ``y`` itself if it holds real values.

    Raises:
        TypeError: If ``y`` is not a tensor.
        ValueError: If ``y`` does not fit ``num_classes``, or integers are out of range.

    Example::

        >>> soft_target(torch.tensor([2, 0]), 3)
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
    """
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch.Tensor, got {type(y).__name__}")
    if y.ndim == 0 or len(y) == 0:
        raise ValueError(f"y must hold one row per sample, got shape {list(y.shape)}")
    check_whole("num_classes", num_classes, none=True)
    check_share("smoothing", smoothing)
    return label_rows(plain(y), num_classes, smoothing)


def label_rows(y: Tensor, num_classes: int | None, smoothing: float) -> Tensor:
    """Convert labels as :func:`soft_target`, for validated options."""
    if not y.is_floating_point() and (y.ndim == 1 or (y.ndim > 2 and num_classes is not None)):
        target = _one_hot(y, num_classes)
    else:
        target = _rows(y, num_classes)
    return smoothed(target, smoothing) if smoothing else target


def smoothed(target: Tensor, smoothing: float) -> Tensor:
    """Smooth labels: (1 − ε) y + ε / C. Smoothing commutes with mixing.

    Args:
        target: ``[B, C]`` rows that sum to 1.
        smoothing: ε in [0, 1].

    Returns:
        ``[B, C]``.

    Raises:
        ValueError: If ``smoothing`` is not in [0, 1], or rows do not sum to 1.
    """
    check_share("smoothing", smoothing)
    if target.ndim != 2:
        raise ValueError(f"smoothing needs class targets [B, C], got shape {list(target.shape)}")
    if can_inspect(target) and not torch.allclose(target.sum(1), target.new_ones(()), atol=1e-3):
        raise ValueError("smoothing needs target rows that sum to 1")
    return torch.lerp(target, torch.full_like(target, 1 / target.shape[1]), smoothing)


def are_indices(y: Tensor) -> bool:
    """Whether ``y`` holds class indices ``[B]``, which need the number of classes."""
    return y.ndim == 1 and not y.is_floating_point()


def _one_hot(label: Tensor, num_classes: int | None) -> Tensor:
    if label.dtype == torch.bool or label.is_complex():
        raise ValueError(f"class indices must be integers, got {label.dtype}; use y.long()")
    if num_classes is None:
        raise ValueError("class indices need num_classes (for real values use y.float())")
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2 for class indices, got {num_classes}")
    label = label.long()
    one_hot = torch.zeros(len(label), num_classes, *label.shape[1:], device=label.device)
    try:
        return one_hot.scatter_(1, label.unsqueeze(1), 1.0)
    except RuntimeError:  # an index out of range; an accelerator reports it later
        got = f"{int(label.min())} … {int(label.max())}"
        raise ValueError(f"class indices must be in 0 … {num_classes - 1}, got {got}") from None


def _rows(y: Tensor, num_classes: int | None) -> Tensor:
    if num_classes is not None and (y.ndim != 2 or y.shape[1] != num_classes):
        hint = "; y.long() makes class indices of it" if y.ndim == 1 else ""
        raise ValueError(
            f"with num_classes={num_classes}, y must be class indices [B] or rows "
            f"[B, {num_classes}], got {y.dtype} {list(y.shape)}{hint}"
        )
    if y.dtype in FLOATS:
        return y
    if y.is_floating_point() or y.is_complex():
        raise ValueError(f"y must be real and at least half precision, got {y.dtype}")
    if can_inspect(y) and not bool(((y == 0) | (y == 1)).all()):
        hint = "; y.squeeze(1) makes class indices of it" if y.shape[1:] == (1,) else ""
        raise ValueError(
            f"integer y of shape {list(y.shape)} must be 0 or 1, "
            f"got {int(y.min())} … {int(y.max())}{hint}"
        )
    return y.float()
