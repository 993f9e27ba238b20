"""Global random streams, borrowed: whatever is drawn from them, those outside notice nothing."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch


@contextmanager
def own_streams() -> Iterator[None]:
    """Whatever is drawn from global random streams inside, they go on afterwards as if nothing had been."""
    numbers, plain = numpy.random.get_state(), random.getstate()  # noqa: NPY002  the stream that somebody's model may use
    # A seed is set on all devices, whichever the network is on.
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        numpy.random.set_state(numbers)  # noqa: NPY002
        random.setstate(plain)
