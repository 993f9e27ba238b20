"""Networks that learn beside the model, such as the block of SAMix, in training by several processes.

DistributedDataParallel sees neither their weights nor their gradients. All processes must call these functions alike; without a
process group, or in one of one, they do nothing.
"""

import torch

from .methods.base import Method, trained_parameters


def broadcast_networks(method: Method) -> None:
    """The networks of ``method`` in all processes become those of rank 0: call it once, before the first step."""
    if _processes() > 1:
        for values in method.modules.state_dict().values():
            torch.distributed.broadcast(values, 0)


def average_gradients(method: Method) -> None:
    """The gradients of the networks of ``method`` become their mean over all processes: between ``backward`` and ``step``."""
    count = _processes()
    if count == 1:
        return
    for weight in trained_parameters(method):
        if weight.grad is None:  # this process drew "no mixing", and must not leave the others waiting
            weight.grad = torch.zeros_like(weight)
        torch.distributed.all_reduce(weight.grad)
        weight.grad /= count


def _processes() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
