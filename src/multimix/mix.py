"""Mix: mixes a batch and its labels, in the training loop or as a collate function."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate, get_worker_info

from .core.batch import Batch
from .core.checks import check_share, check_whole, checked_labels, is_whole
from .core.logits import Output
from .core.sampling import make_generator, random_state, rank, seeded, set_random_state
from .core.targets import label_rows
from .methods.base import (
    Method,
    check_given,
    check_method,
    checked_samples,
    choose_method,
    draw_plan,
)
from .output import plan_batch

MAX_WORKERS = 4096
MAIN_PROCESS = -1


class Mix(nn.Module):
    """Mix a batch at the input: ``x_mix, target = mix(x, y)``.

    The module has no parameters and adds nothing to the ``state_dict`` of a parent module. Save
    ``mix.state_dict()`` separately. On a CPU, call :func:`multimix.keep_memory` before training on
    K·B rows.

    Args:
        method: A method that mixes the input and adds no loss terms.
        num_classes: Number of classes, needed if ``y`` holds class indices or index maps.
        model: Computes the saliency for methods that need it (:func:`multimix.input_saliency`).
            Used in the training loop only, not in data-loader workers. Copies and pickles of this
            object do not include the model.
        output: Selects the logits in the model's result, as in :func:`multimix.mixed_forward`.
        smoothing: Label smoothing ε. Unmixed batches are also smoothed.
        seed: Seeds a separate random stream per rank, data-loader worker and worker restart. None
            draws from torch's global CPU stream.
        uint8: Accept uint8 images and round their mixture to uint8.

    Attributes:
        enabled: Set it to False to return ``x`` and its target unmixed, as after ``eval()``. The
            flag is in shared memory, so running data-loader workers see it. Prefetched batches do
            not change.

    Raises:
        TypeError: If ``method`` is not a mixing method.
        ValueError: If an option is invalid, or ``method`` mixes hidden layers or adds loss terms.

    Example::

        mix = Mix(CutMix(k=5), num_classes=100)
        for x, y in loader:
            x, y = mix(x, y)
            torch.nn.functional.cross_entropy(model(x), y).backward()
    """

    def __init__(
        self,
        method: Method,
        num_classes: int | None = None,
        *,
        model: nn.Module | None = None,
        output: Output | None = None,
        smoothing: float = 0.0,
        seed: int | None = None,
        uint8: bool = False,
    ) -> None:
        super().__init__()
        check_method(method)
        traits = method.traits
        name = type(method).__name__
        if traits.own_loss is not None:
            raise ValueError(
                f"{name} {traits.own_loss}, which Mix cannot return: use mixed_forward"
            )
        if any(layer is not None for layer in traits.mixes_at):
            raise ValueError(
                f"method must mix the input, but {name} mixes hidden layers: use mixed_forward"
            )
        check_whole("num_classes", num_classes, none=True)
        check_share("smoothing", smoothing)
        if seed is not None and not is_whole(seed):
            raise ValueError(f"seed must be an integer or None, got {seed!r}")
        if uint8 and model is not None:
            raise ValueError("uint8 cannot be combined with model: pass mix(x, y, saliency=…)")
        self.method = method
        self._traits = traits
        self._history = traits.history
        self.num_classes = num_classes
        self.model = model
        self.output = output
        self.smoothing = smoothing
        self.seed = seed
        self.uint8 = uint8
        self._switch = _shared(torch.ones((), dtype=torch.bool, device="cpu"))
        # Number of starts of each worker. A restarted worker begins as a copy of this object.
        self._starts = _shared(torch.zeros(MAX_WORKERS, dtype=torch.int64, device="cpu"))
        self._stream: tuple[tuple[int, int, int], torch.Generator] | None = None
        self._rank = 0

    @property
    def enabled(self) -> bool:
        """Whether batches are mixed in training mode."""
        return bool(self._switch)

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._switch.fill_(value)

    def __setattr__(self, name: str, value: Any) -> None:
        # Plain reference, not a submodule: the caller already trains and saves it.
        if name == "model":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, y: Tensor, **given: Any) -> tuple[Tensor, Tensor]: ...

    def forward(self, x: Tensor, y: Tensor | None = None, **given: Any) -> tuple[Tensor, Tensor]:
        """Mix one batch.

        Args:
            x: ``[B, …]`` samples.
            y: Labels, as :func:`multimix.losses.soft_target` accepts them. Index maps ``[B, H, W]``
                become ``[K·B, C, H, W]``, mixed with the masks of the images.
            **given: Keywords of ``method.plan``, such as ``saliency``.

        Returns:
            ``x_mix [K·B, …]`` and ``target [K·B, C]``. Unmixed batches have B rows.

        Raises:
            TypeError: If ``x`` or ``y`` is not a tensor, or a keyword is unknown.
            ValueError: If shapes, dtypes, devices or labels are invalid, or saliency is missing.
            MixingError: If the model fails while it computes the saliency.
        """
        if y is None:
            raise TypeError("y must be the labels of the batch; for a DataLoader use mix.collate")
        if self.uint8 and isinstance(x, Tensor) and x.dtype == torch.uint8:
            x_mix, target = self.forward(x.float(), y, **given)
            return x_mix.round().clamp(0, 255).to(torch.uint8), target
        x = checked_samples(self.method, x, (None,))
        y = checked_labels(y, x)
        if given or self._history:
            self._check_given(given)
        target = label_rows(y, self.num_classes, self.smoothing)  # before any draw
        if not (self.training and self._switch):
            return x, target
        has_model = self.model is not None or len(self._traits.needs) > 0
        model = self._saliency_model(given) if has_model else None
        generator = self._generator()
        if model is None:
            plan = draw_plan(choose_method(self.method, generator), x, generator, given)
        else:
            batch = Batch(model, x, y, target, generator, given, self.output)
            _, plan, _ = plan_batch(self.method, batch)
        return plan._mix(x), plan.mix_rows(target)

    def collate(self, samples: list[Any]) -> tuple[Tensor, Tensor]:
        """Collate (sample, label) pairs to a mixed batch, as ``collate_fn`` of a DataLoader.

        Args:
            samples: (sample, label) pairs.

        Returns:
            ``x_mix [K·B, …]`` and ``target [K·B, C]``.

        Raises:
            ValueError: If the samples are not pairs, or the batch cannot be mixed.
        """
        batch = default_collate(samples)
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise ValueError(
                "collate needs samples that are (x, y) pairs; for others, call mix(x, y)"
            )
        return self(*batch)

    def __repr__(self) -> str:
        return f"Mix({self.method}, num_classes={self.num_classes}, enabled={self.enabled})"

    def state_dict(self, *args: Any, **around: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return ``enabled``, the state of the random stream, and the start counts of workers.

        A state saved between epochs reproduces the next epoch exactly. A state saved while workers
        are running does not.

        Args:
            *args: Passed by a parent module, to which this module contributes nothing.
            **around: Passed by a parent module.

        Returns:
            The state, or an empty dictionary for a parent module.
        """
        if args or around:
            return {}  # called by the parent module
        position = self._generator().get_state() if self._has_stream() else random_state()
        return {"enabled": self.enabled, "generator": position, "starts": self._starts.clone()}

    def load_state_dict(
        self, state: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Restore the state returned by :meth:`state_dict`.

        Args:
            state: A checkpointed state.
            strict: Ignored. All keys are required.
            assign: Ignored.

        Raises:
            ValueError: If the keys of ``state`` differ from those of :meth:`state_dict`.
        """
        if state.keys() != self.state_dict().keys():
            expected, got = ", ".join(self.state_dict()), ", ".join(state) or "nothing"
            raise ValueError(f"state must have the keys {expected}, got {got}")
        self.enabled = state["enabled"]
        if self._has_stream():
            self._generator().set_state(state["generator"])
        else:
            set_random_state(state["generator"])
        self._starts.copy_(state["starts"])

    def __getstate__(self) -> dict[str, Any]:
        stream = None
        if self._stream is not None and self._stream[0][0] == os.getpid():
            # As a list: torch's pickler for other processes cannot handle a generator.
            stream = self._stream[0][1:], self._stream[1].get_state().tolist()
        # A spawned worker has no process group to read its rank from.
        return {**self.__dict__, "model": None, "_rank": rank(), "_stream": stream}

    def __setstate__(self, state: dict[str, Any]) -> None:
        stream = state.pop("_stream")
        self.__dict__.update(state, _stream=None)
        _shared(self._switch)
        _shared(self._starts)
        if stream is not None:
            generator = torch.Generator()
            generator.set_state(torch.tensor(stream[1], dtype=torch.uint8, device="cpu"))
            self._stream = (os.getpid(), *stream[0]), generator

    def _check_given(self, given: Mapping[str, Any]) -> None:
        check_given(self.method, self._traits.accepts, given)
        if self._history and not any(name in given for name in self._history):
            raise ValueError(
                f"{type(self.method).__name__} mixes with the previous batch, which Mix does not "
                f"keep: use mixed_forward, or pass {', '.join(self._history)}"
            )

    def _saliency_model(self, given: Mapping[str, Any]) -> nn.Module | None:
        """Return the model for missing plan keywords, or None if it is not needed."""
        in_worker = get_worker_info() is not None
        if given.keys() >= set(self._traits.needs):
            return None if in_worker else self.model
        missing = [name for name in self._traits.needs if name not in given]
        needs = f"{type(self.method).__name__} needs {', '.join(missing)}"
        if in_worker:
            raise ValueError(
                f"{needs}, which a data-loader worker cannot compute, because the model is trained "
                f"in the main process: call mix(x, y) in the training loop, or pass {missing[0]}="
            )
        if self.model is None:
            raise ValueError(
                f"{needs}: pass model= to Mix (copies of a Mix drop their model), or call "
                f"mix(x, y, {missing[0]}=…)"
            )
        return self.model

    def _has_stream(self) -> bool:
        """Whether draws use a separate stream: with a seed, and in data-loader workers."""
        return self.seed is not None or get_worker_info() is not None

    def _generator(self) -> torch.Generator:
        worker = get_worker_info()
        if self.seed is None and worker is None:
            return make_generator(None)
        process_rank = rank() or self._rank
        process = (os.getpid(), process_rank, MAIN_PROCESS if worker is None else worker.id)
        if self._stream is None or self._stream[0] != process:
            if worker is None:
                parts = (MAIN_PROCESS, 0)
            elif self.seed is None:
                parts = (worker.id, worker.seed)
            else:
                # Streams differ between workers, and between epochs that restart them.
                slot = (process_rank * 64 + worker.id) % MAX_WORKERS
                self._starts[slot] += 1
                parts = (worker.id, int(self._starts[slot]))
            self._stream = process, seeded(int(self.seed or 0), process_rank, *parts)
        return self._stream[1]


def _shared(values: Tensor) -> Tensor:
    return values.share_memory_()  # type: ignore[no-any-return, no-untyped-call]
