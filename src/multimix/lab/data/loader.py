"""Batches of one epoch: the same ones whatever the number of workers, processes, or where a run was resumed.

The order of an epoch is a permutation keyed by (seed, epoch). The augmentation of a step is keyed by (seed, epoch, step) and
drawn for the whole batch, of which every process takes its rows. So batch s of epoch e is a function of these numbers alone.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ...core.sampling import seeded
from .augment import Augment
from .datasets import Files, Split
from .reading import BadFile

# Separate keys: training may use (seed, epoch, step) as well, and must not see the same numbers.
ORDER, DRAWS = 0x0BDE, 0xD4A5

DESCRIPTORS = 8  # files that a worker needs open at least
FEWER = "fewer of them (running.workers) need less memory"
NO_DESCRIPTORS = (
    "too many open files for the processes that read the data: use fewer (running.workers), or allow more (ulimit -n)"
)

T = TypeVar("T")
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Loader:
    """``(x float32 [rows, C, H, W], y int64 [rows])`` for every step of an epoch; clouds are ``[rows, N, 3]``.

    ``batch`` counts the samples of one step in all ``world`` processes together; process ``rank`` gets its equal share of them,
    in order. Of a last, smaller batch the first processes may get one row more than the others, or the last ones none.

    With ``repeats`` = M every sample appears M times with M draws (batch augmentation); rows are m-major: row m·B + i is draw m
    of sample i, where B is the number of samples this process has.

    ``workers`` other processes decode files ahead; samples in memory are faster without.
    """

    split: Split
    augment: Augment
    _: KW_ONLY
    batch: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = True
    workers: int = 0
    rank: int = 0
    world: int = 1
    repeats: int = 1

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("world", 1), ("repeats", 1), ("workers", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must lie in 0 … {self.world - 1}, got {self.rank}")
        if self.batch % self.world:
            raise ValueError(
                f"batch must be a multiple of world, so that all processes have equal shares, got {self.batch} for {self.world}"
            )
        if len(self) == 0:
            raise ValueError(
                f"batch must be at most the {len(self.split)} samples of the split if the last batch is dropped, got {self.batch}"
            )

    def __len__(self) -> int:
        """Steps of one epoch."""
        return len(self.split) // self.batch if self.drop_last else -(-len(self.split) // self.batch)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch ``number`` from step ``start`` on."""
        if not 0 <= start <= len(self):
            raise ValueError(f"start must lie in 0 … {len(self)}, got {start}")
        make = partial(self._step, number, self.order(number))
        return made_ahead(make, range(start, len(self)), self.workers if isinstance(self.split, Files) else 0)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the only epoch there is without shuffling and augmentation."""
        if self.shuffle:
            raise ValueError("a shuffling loader must be told which epoch: use loader.epoch(number)")
        return self.epoch(0)

    def order(self, number: int) -> Tensor:
        """The samples of an epoch in the order they come, all processes together."""
        count = len(self.split)
        return torch.randperm(count, generator=seeded(ORDER, self.seed, number)) if self.shuffle else torch.arange(count)

    def _step(self, number: int, order: Tensor, step: int) -> Batch | BadFile:
        index = order[step * self.batch : (step + 1) * self.batch]
        draws = self.augment.draw(self.repeats * len(index), seeded(DRAWS, self.seed, number, step))
        mine = torch.arange(len(index)).tensor_split(self.world)[self.rank]
        nothing = len(mine) == 0
        if nothing:
            mine = torch.zeros(1, dtype=torch.int64)  # read and dropped again, for its shape
        try:
            pixels, labels = self.split.batch(index[mine])
        except BadFile as bad:
            return bad
        rows = (torch.arange(self.repeats)[:, None] * len(index) + mine).flatten()
        repeated = pixels * self.repeats if isinstance(pixels, list) else torch.cat([pixels] * self.repeats)
        x, y = self.augment.apply(repeated, draws[rows]), labels.repeat(self.repeats)
        return (x[:0], y[:0]) if nothing else (x, y)


def made_ahead(make: Callable[[int], T | BadFile], numbers: range, workers: int) -> Iterator[T]:
    """What ``make`` makes of the ``numbers``, ahead by ``workers`` other processes (0: by this one); a bad file is raised.

    ``make`` returns the BadFile: raised in a worker, torch would bury its sentence in a traceback.
    """
    if workers == 0:
        return _raise_bad(map(make, numbers))
    _check_descriptors(workers)
    # torch draws a seed for the workers from this generator; without it, from the global one, which must not change.
    generator = torch.Generator()
    return _raise_bad(DataLoader(numbers, batch_size=None, num_workers=workers, generator=generator, collate_fn=make))  # type: ignore[arg-type]  # a range is a map-style data set


def _raise_bad(made: Iterable[T | BadFile]) -> Iterator[T]:
    # The loop alone holds the iterator, so that workers stop at once when it is left. Were it in a variable, the traceback would
    # keep it alive, and torch waits five seconds for each worker of an iterator that is collected as garbage.
    try:
        for one in made:
            if isinstance(one, BadFile):
                raise one
            yield one
    except (ConnectionError, EOFError) as error:
        # The batch of a worker that was killed cannot be fetched any more. Torch's own word on it, a RuntimeError raised by a
        # signal, may be on its way: it must not arrive while this error is being told.
        time.sleep(1)
        raise OSError(f"a process that reads the data ended ({str(error) or 'in the middle of a batch'}); {FEWER}") from error


def worker_trouble(error: RuntimeError) -> str | None:
    """One sentence if torch says that its workers are in trouble. It may say so anywhere: by the signal that a process ended."""
    words = str(error)
    if words.startswith("Too many open files"):
        return NO_DESCRIPTORS
    if words.startswith("DataLoader worker (pid"):
        reason = words.splitlines()[0].strip(" .")
        return f"a process that reads the data ended ({reason}); {FEWER}"
    return None


def _check_descriptors(workers: int) -> None:
    """Raise OSError if not as many files can be opened as workers need; torch would stop half way, with an error of its own."""
    handles: list[int] = []
    try:
        handles.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(DESCRIPTORS * (workers + 1)))
    except OSError as error:
        raise OSError(NO_DESCRIPTORS) from error
    finally:
        for handle in handles:
            os.close(handle)
