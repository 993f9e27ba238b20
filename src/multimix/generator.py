"""Where draws come from when the caller hands in no generator.

The library never moves torch's global random state. Without ``generator=`` it keeps one private stream per process,
seeded from ``torch.initial_seed()`` (so ``torch.manual_seed`` before the first draw makes a run repeatable) and the
distributed rank (so that ranks seeded alike still draw differently). Data-loader workers have an initial seed of their own.
"""

import hashlib
import os

import torch

_streams: dict[tuple[int, int, int], torch.Generator] = {}


def resolved(generator: torch.Generator | None) -> torch.Generator:
    """The generator to draw from: the given one, or this process's own stream."""
    if generator is None:
        return _process_stream()
    if not hasattr(generator, "device"):
        raise TypeError(f"generator must be a torch.Generator, such as torch.Generator().manual_seed(0), got {generator!r}")
    if generator.device.type != "cpu":
        raise ValueError(
            f"generator must be on the CPU, where all draws are made before one transfer, got one on {generator.device}"
        )
    return generator


def seeded(*parts: int) -> torch.Generator:
    """A generator whose stream is a function of all ``parts``; near seeds give unrelated streams."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))


def rank() -> int:
    """This process's distributed rank: that of its group, or what torchrun says (spawned workers have no group), or 0."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    said = os.environ.get("RANK", "0")
    return int(said) if said.isdecimal() else 0


def _process_stream() -> torch.Generator:
    # The process id belongs to the key because a forked child inherits this dictionary, and with it the parent's position.
    key = (os.getpid(), torch.initial_seed(), rank())
    if key not in _streams:
        _streams.clear()
        _streams[key] = seeded(key[1], key[2])
    return _streams[key]
