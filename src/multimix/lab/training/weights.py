"""The weights of a network: a checksum of them, and the same statistics in all processes."""

import hashlib

import torch
from accelerate import Accelerator
from torch import nn


def weights_digest(network: nn.Module) -> str:
    """SHA-256 of all weights and statistics, bit for bit."""
    whole = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        whole.update(name.encode() + plain.numpy().tobytes())
    return whole.hexdigest()


def same_buffers(network: nn.Module, accelerator: Accelerator) -> None:
    """Give all processes the batch statistics of the first.

    DistributedDataParallel would do it in its forward pass, which is after the saliency pass has used them.
    """
    buffers = list(network.buffers())
    if accelerator.num_processes == 1 or not buffers:
        return
    flat = torch.cat([buffer.flatten().double() for buffer in buffers])  # exact for counts, too
    torch.distributed.broadcast(flat, 0)
    for buffer, values in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(values.reshape(buffer.shape))
