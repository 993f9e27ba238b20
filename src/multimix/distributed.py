"""Distributed training of a method's networks, such as the mixing block of SAMix.

DistributedDataParallel does not synchronize these networks. All processes must call the functions
of this module. Without a process group, or with one process, they do nothing.
"""

import torch

from .methods.base import Method, trained_parameters

__all__ = ["average_gradients", "broadcast_networks"]


def broadcast_networks(method: Method) -> None:
    """Copy the networks of rank 0 to all processes. Call it once, before the first step.

    Args:
        method: A method whose networks are created (``method.bind``).
    """
    if _processes() > 1:
        for values in method.modules.state_dict().values():
            torch.distributed.broadcast(values, 0)


def average_gradients(method: Method) -> None:
    """Average the gradients of the networks over all processes, between ``backward`` and ``step``.

    Args:
        method: A method whose networks are created (``method.bind``).

    Example::

        out.loss().backward()
        average_gradients(method)
        optimizer.step()
    """
    count = _processes()
    if count == 1:
        return
    for weight in trained_parameters(method):
        if weight.grad is None:  # this rank did not mix, but the other ranks wait for it
            weight.grad = torch.zeros_like(weight)
        torch.distributed.all_reduce(weight.grad)
        weight.grad /= count


def _processes() -> int:
    """Return the number of processes in the default group, or 1 without a group."""
    distributed = torch.distributed
    return (
        distributed.get_world_size()
        if distributed.is_available() and distributed.is_initialized()
        else 1
    )
