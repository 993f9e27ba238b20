"""Numbers that half precision would spoil: computed in float32 at least, and outside autocast."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def float32_or_better(z: Tensor) -> Tensor:
    """``z`` in float32, or as it is in float64."""
    return z if z.dtype == torch.float64 else z.float()


def full_precision(z: Tensor) -> AbstractContextManager[Any]:
    """No autocast inside, where ``z`` is."""
    kind = z.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()
