"""Level 2: one object that mixes a batch and its labels, in a loop or as a collate function."""

import os
from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate, get_worker_info

from . import one_pass
from .batch import Batch, are_indices
from .checks import check_batch, check_finite, check_labels, check_share, plain_labels
from .forward import check_history, check_no_own_loss, planned
from .logits import Output
from .methods.base import Method, plain_samples
from .sampling import random_state, rank, resolved, seeded, set_random_state
from .target import check_indices, soft_target

MOST_WORKERS = 4096
MAIN = -1


class Mix(nn.Module):
    """``x_mix, target = mix(x, y)``: K·B mixed samples and their soft targets, for methods that mix the input.

    ``num_classes`` is needed for class indices; ``smoothing`` smooths labels, also while mixing is off. With ``seed`` the draws
    are a function of seed, rank, data-loader worker, how often that worker was started, and position. ``state_dict`` saves the
    position in this process and the starts of workers: an epoch begun after restoring it is repeated exactly, one in the middle
    of which workers were stopped is not. ``check`` reads x once to refuse NaN and infinity (about half the cost of a copy).

    ``model`` serves methods that need saliency (:func:`multimix.input_saliency`; ``output`` says where it keeps its logits); it
    is used in the training loop only, not in data-loader workers, and not copied or pickled with this object. Maps of your own
    go into the call, ``mix(x, y, saliency=…)``, as does any keyword of the method's ``plan``.

    With ``uint8`` images of bytes are mixed, too, and rounded to bytes again. Index maps ``[B, H, W]`` become class targets
    ``[K·B, C, H, W]``, cut as the images are.

    ``enabled = False`` returns ``x`` as it is with its plain target, as ``eval()`` does in this process. The switch lives in
    shared memory, so it also reaches data-loader workers that are already running; batches they have prefetched stay mixed.

    As a part of another module it has no parameters and adds nothing to that module's ``state_dict``: keep its own beside it.
    Before training on K·B rows on a CPU call :func:`multimix.keep_memory`.
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
        check: bool = True,
        uint8: bool = False,
    ) -> None:
        super().__init__()
        check_no_own_loss(method, "Mix")
        if any(layer is not None for layer in method.traits.mixes_at):
            raise ValueError(f"Mix works on inputs, {type(method).__name__} mixes hidden layers: use mixed_logits")
        check_share("smoothing", smoothing)
        if seed is not None and not isinstance(seed, Integral):
            raise ValueError(f"seed must be a whole number, got {seed!r}")
        if uint8 and model is not None:
            raise ValueError("uint8 mixes images as they are stored, not as a model is given them: use mix(x, y, saliency=…)")
        self.method = method
        self.num_classes = num_classes
        self.model = model
        self.output = output
        self.smoothing = smoothing
        self.seed = seed
        self.check = check
        self.uint8 = uint8
        self._switch = torch.ones((), dtype=torch.bool, device="cpu").share_memory_()  # type: ignore[no-untyped-call]
        # How often each worker has been started; shared, because a worker that is started anew begins as a copy of this object.
        self._starts = torch.zeros(MOST_WORKERS, dtype=torch.int64, device="cpu").share_memory_()  # type: ignore[no-untyped-call]
        self._stream: tuple[tuple[int, int, int], torch.Generator] | None = None  # of a process, a rank, a worker
        self._rank = 0

    @property
    def enabled(self) -> bool:
        """Whether batches are mixed."""
        return bool(self._switch)

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._switch.fill_(value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "model":  # asked, not owned: registered, it would be moved, saved and trained once more with this object
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, y: Tensor, **given: Any) -> tuple[Tensor, Tensor]: ...

    def forward(self, x: Tensor, y: Tensor | None = None, **given: Any) -> tuple[Tensor, Tensor]:
        """``x_mix [K·B, …]`` and ``target [K·B, C]``."""
        quick = None if given else self._at_once(x, y)
        if quick is not None:
            return quick
        if y is None:
            raise TypeError("mix takes a batch and its labels, mix(x, y); as a data loader's collate_fn it is mix.collate")
        if self.uint8 and isinstance(x, Tensor) and x.dtype == torch.uint8:
            x_mix, target = self.forward(x.float(), y, **given)
            return x_mix.round().clamp(0, 255).to(torch.uint8), target
        check_batch(x)
        check_labels(y, x)
        x, y = plain_samples(self.method, x), plain_labels(y)
        check_history(self.method, given, "Mix")
        large = check_finite(x) if self.check else False
        is_mixed = self.training and self.enabled
        model = self._model(given) if is_mixed else None
        # Before any draw, so that a bad label changes nothing. Class indices stay what they are as long as rows are not needed.
        stay = is_mixed and model is None and not self.smoothing and are_indices(y)
        num_classes = check_indices(y, self.num_classes) if stay else 0
        target = y if stay else soft_target(y, self.num_classes, self.smoothing)
        if not is_mixed:
            return x, target
        generator = self._generator()
        if model is None:
            plan = self.method.plan(x, generator=generator, **given)
        else:
            _, plan, _ = planned(self.method, Batch(model, x, y, target, generator, given, self.output))
        # The target first: mixing x empties the caches of all that is small.
        mixed = plan.mix_indices(y, num_classes) if stay else None
        if mixed is None:
            mixed = plan.mix_target(target, num_classes or None)
        return plan._mixed(x, None, large=large), mixed

    def _at_once(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """``forward`` in the fewest calls, for small batches as they mostly are; None, and nothing drawn, for all others.

        Also for numbers that are large or not finite, and labels that are no classes: they come back with time to say so.
        """
        method, classes = self.method, self.num_classes
        if not (method.needs_shape_only and one_pass.is_usual(x, y) and self.training and self.enabled):
            return None
        if type(classes) is not int or classes < 2 or self.model is not None or self.smoothing or not method.is_certain():
            return None
        position = self._position()
        plan = method.draw(x, generator=self._generator())
        found = plan._mix_at_once(x, y, classes)
        if found is None or found[1] is None:
            self._go_to(position)
            return None
        return found[0], found[1]

    def collate(self, samples: list[Any]) -> tuple[Tensor, Tensor]:
        """A ``collate_fn``: (sample, label) pairs → one mixed batch."""
        batch = default_collate(samples)
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise ValueError("collate needs samples that are (x, y) pairs; for others collate them yourself and call mix(x, y)")
        return self(*batch)

    def __repr__(self) -> str:
        return f"Mix({self.method}, num_classes={self.num_classes}, enabled={self.enabled})"

    def state_dict(self, *args: Any, **around: Any) -> dict[str, Any]:  # type: ignore[override]
        """Switch and position in the random stream: that of ``seed`` in this process, else :func:`multimix.random_state`."""
        if args or around:
            return {}  # a module around this one collects its state, to which this adds nothing
        return {"enabled": self.enabled, "generator": self._position(), "starts": self._starts.clone()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Go on from where ``state_dict`` was taken."""
        if state.keys() != self.state_dict().keys():
            raise ValueError(f"state must hold {', '.join(self.state_dict())}, got {', '.join(state) or 'nothing'}")
        self.enabled = state["enabled"]
        self._go_to(state["generator"])
        self._starts.copy_(state["starts"])

    def __getstate__(self) -> dict[str, Any]:
        stream = None
        if self._stream is not None and self._stream[0][0] == os.getpid():
            # As a list, because torch's pickler for other processes trips over a generator.
            stream = self._stream[0][1:], self._stream[1].get_state().tolist()
        # A spawned worker cannot ask for its rank, so it is told.
        return {**self.__dict__, "model": None, "_rank": rank(), "_stream": stream}

    def __setstate__(self, state: dict[str, Any]) -> None:
        stream = state.pop("_stream")
        self.__dict__.update(state, _stream=None)
        self._switch.share_memory_()  # nothing happens if it is shared already
        self._starts.share_memory_()
        if stream is not None:
            generator = torch.Generator()
            generator.set_state(torch.tensor(stream[1], dtype=torch.uint8, device="cpu"))
            self._stream = (os.getpid(), *stream[0]), generator

    def _model(self, given: Mapping[str, Any]) -> nn.Module | None:
        """The model to ask for what ``given`` lacks, None where there is none; ValueError if it would be asked there."""
        in_worker = get_worker_info() is not None
        missing = [name for name in self.method.traits.needs if name not in given]
        if not missing:
            return None if in_worker else self.model
        needs = f"{type(self.method).__name__} needs {', '.join(missing)}"
        if in_worker:
            raise ValueError(
                f"{needs}, and a model cannot be asked in data-loader workers, where its copy never learns: "
                f"call mix(x, y) in the training loop, or hand in {missing[0]}="
            )
        if self.model is None:
            raise ValueError(f"{needs}: give Mix a model= (copies of a Mix come without it), or call mix(x, y, {missing[0]}=…)")
        return self.model

    def _has_stream(self) -> bool:
        """Whether draws come from a stream of its own: for a seed, and in data-loader workers."""
        return self.seed is not None or get_worker_info() is not None

    def _position(self) -> Tensor:
        """Where its own stream is, or torch's."""
        return self._generator().get_state() if self._has_stream() else random_state()

    def _go_to(self, position: Tensor) -> None:
        if self._has_stream():
            self._generator().set_state(position)
        else:
            set_random_state(position)

    def _generator(self) -> torch.Generator:
        if not self._has_stream():
            return resolved(None)
        worker, own_rank = get_worker_info(), rank() or self._rank
        here = (os.getpid(), own_rank, MAIN if worker is None else worker.id)
        if self._stream is None or self._stream[0] != here:
            if worker is None:
                own = (MAIN, 0)
            elif self.seed is None:
                own = (worker.id, worker.seed)
            else:
                # Neither the same stream in all workers nor, where they are started anew each epoch, the same every epoch.
                slot = (own_rank * 64 + worker.id) % MOST_WORKERS
                self._starts[slot] += 1
                own = (worker.id, int(self._starts[slot]))
            self._stream = here, seeded(int(self.seed or 0), own_rank, *own)
        return self._stream[1]
