"""What a network says about every sample of a split: its logits, beside the true classes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...core.logits import Output
from ..data import Augment, Loader, Split
from ..training.evaluate import logits_of_batches

Progress = Callable[[Sequence[int]], Iterable[int]]


class Reading(NamedTuple):
    """How samples are read, which changes no number: ``batch`` at a time, by ``workers`` other processes (0: by this one).

    ``progress`` wraps the numbers of the batches.
    """

    batch: int = 200
    workers: int = 0
    progress: Progress = iter

    def batches_of(self, split: Split) -> int:
        """How many batches there are of ``split``."""
        return -(-len(split) // max(1, self.batch))


READING = Reading()


@dataclass(frozen=True, eq=False)
class Predictions:
    """``logits [N, C]``, finite, and the true classes ``labels [N]``, int64; N ≥ 1."""

    logits: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        logits, labels = self.logits, self.labels
        if logits.ndim != 2 or 0 in logits.shape or not logits.is_floating_point():
            raise ValueError(
                f"logits must be floating point [N, C] with N ≥ 1 and C ≥ 1, got {logits.dtype} {list(logits.shape)}"
            )
        if labels.dtype != torch.int64 or labels.shape != logits.shape[:1]:
            raise ValueError(f"labels must be int64 [{len(logits)}], one per row, got {labels.dtype} {list(labels.shape)}")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= logits.shape[1]:
            raise ValueError(
                f"labels must lie in 0 … {logits.shape[1] - 1}, since there are {logits.shape[1]} outputs, got {low} … {high}"
            )
        bad = (~logits.isfinite()).any(dim=1).nonzero().flatten().tolist()
        if bad:
            more = ", …" if len(bad) > 5 else ""
            raise ValueError(
                f"logits must be finite, got NaN or infinity in {len(bad)} of {len(logits)} samples: "
                f"{', '.join(map(str, bad[:5]))}{more}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def predicted(self) -> Tensor:
        """The class with the largest logit, int64 ``[N]``; of equal ones the first."""
        return self.logits.argmax(dim=1)

    @property
    def correct(self) -> Tensor:
        """Whether the predicted class is the true one, bool ``[N]``."""
        return self.predicted == self.labels

    def take(self, index: Tensor) -> "Predictions":
        """Only the samples ``index``."""
        return Predictions(self.logits[index], self.labels[index])


def predictions(
    network: nn.Module, split: Split, augment: Augment, reading: Reading = READING, *, output: Output | None = None
) -> Predictions:
    """Logits, float32 on the CPU, of every sample in the order of ``split``, in evaluation mode and without gradients.

    Every module of ``network`` gets its own mode back. Samples go where the network is, in its precision. ``output`` says which
    part of what the network returns holds the logits.
    """
    if len(split) == 0:
        raise ValueError("split must hold at least 1 sample, it has none")
    loader = Loader(split, augment, batch=reading.batch, shuffle=False, drop_last=False, workers=reading.workers)
    weights = (value for value in chain(network.parameters(), network.buffers()) if value.is_floating_point())
    weight = next(weights, torch.zeros(0))
    batches = (pair for _, pair in zip(reading.progress(range(len(loader))), loader, strict=True))
    rows = list(logits_of_batches(network, batches, lambda x: x.to(weight.device, weight.dtype), output))
    return Predictions(torch.cat([logits for logits, _ in rows]), torch.cat([labels for _, labels in rows]))


@contextmanager
def one_bar(progress: Progress, total: int) -> Iterator[Progress]:
    """A progress for several loops that moves one bar of ``total`` ticks."""
    ticks = iter(progress(range(total)))

    def ticking(numbers: Sequence[int]) -> Iterator[int]:
        for number in numbers:
            next(ticks, None)
            yield number

    yield ticking
    next(ticks, None)  # a bar is done when it is asked for more
