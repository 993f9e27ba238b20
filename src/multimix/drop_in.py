"""Level 2: one object that mixes a batch and its labels, in a loop or as a collate function."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate, get_worker_info

from .checks import check_batch, check_finite, check_labels, check_share
from .generator import rank, resolved, seeded
from .methods.base import Method
from .mixing import memory_format, rows_like
from .target import soft_target


class Mix:
    """``x_mix, target = mix(x, y)``: K·B mixed samples and their soft targets, for methods that mix the input.

    ``num_classes`` is needed for class indices; ``smoothing`` smooths labels, also while mixing is off. With ``seed`` the draws
    are a function of seed, rank, data-loader worker and position, and ``state_dict`` saves the position. ``check`` reads x once
    to refuse NaN and infinity (about half the cost of a copy).

    ``enabled = False`` returns ``x`` as it is with its plain target. The switch lives in shared memory, so it also reaches
    data-loader workers that are already running; batches they have prefetched stay mixed.

    ``reuse_buffer`` hands out the same output memory every call and saves the page faults of fresh memory: safe in a loop that
    is done with one batch, ``backward`` included, before it asks for the next; refused inside data-loader workers.
    """

    def __init__(
        self,
        method: Method,
        num_classes: int | None = None,
        *,
        smoothing: float = 0.0,
        seed: int | None = None,
        check: bool = True,
        reuse_buffer: bool = False,
    ) -> None:
        if not isinstance(method, Method):
            raise TypeError(f"method must be a mixing method such as CutMix(k=5), got {method!r}")
        if any(layer is not None for layer in method.mixes_at):
            raise ValueError(f"Mix works on inputs, {type(method).__name__} mixes hidden layers: use mixed_logits")
        check_share("smoothing", smoothing)
        self.method = method
        self.num_classes = num_classes
        self.smoothing = smoothing
        self.seed = seed
        self.check = check
        self.reuse_buffer = reuse_buffer
        self._buffer: tuple[Any, Tensor] | None = None
        self._switch = torch.ones((), dtype=torch.bool).share_memory_()  # type: ignore[no-untyped-call]
        self._streams: dict[tuple[int, int], torch.Generator] = {}

    @property
    def enabled(self) -> bool:
        """Whether batches are mixed."""
        return bool(self._switch)

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._switch.fill_(value)

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(x)
        check_labels(y, x)
        if self.check:
            check_finite(x)
        if not self.enabled:
            return x, soft_target(y, self.num_classes, self.smoothing)
        plan = self.method.plan(x, generator=self._generator())
        target = plan.mix_target(y, self.num_classes, self.smoothing)
        return plan.mix(x, out=self._out(plan.k, x)), target

    def collate(self, samples: list[Any]) -> tuple[Tensor, Tensor]:
        """A ``collate_fn``: (sample, label) pairs → one mixed batch."""
        x, y = default_collate(samples)
        return self(x, y)

    def state_dict(self) -> dict[str, Any]:
        """Switch and position in the random stream of this process (for ``seed``; without one the process's stream is used)."""
        return {"enabled": self.enabled, "generator": self._generator().get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        self.enabled = state["enabled"]
        self._generator().set_state(state["generator"])

    def _generator(self) -> torch.Generator:
        if self.seed is None:
            return resolved(None)
        # A worker's seed differs by worker and by epoch; a forked copy of one stream would make all workers draw alike.
        worker = get_worker_info()
        key = (rank(), -1 if worker is None else worker.seed)
        if key not in self._streams:
            self._streams[key] = seeded(self.seed, *key)
        return self._streams[key]

    def _out(self, k: int, x: Tensor) -> Tensor | None:
        if not self.reuse_buffer:
            return None
        if get_worker_info() is not None:
            raise ValueError("reuse_buffer cannot be used in data-loader workers, which keep several batches at once")
        like = (k, x.shape, x.dtype, x.device, memory_format(x))
        if self._buffer is None or self._buffer[0] != like:
            self._buffer = like, rows_like(x, k)
        return self._buffer[1]
