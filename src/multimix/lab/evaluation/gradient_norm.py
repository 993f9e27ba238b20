"""How large the gradient of the mixed loss is at fixed weights, with one number of interpolations after the other.

During training the norm of every update is in the log (``Epoch.squared_grad_norm``); there the weights differ from K to K. Here
they are the same, and so are samples, augmentation and pairs.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count, islice
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ...forward import mixed_terms
from ...hooks import unwrapped
from ...logits import Output
from ...methods import Method, NoMix, OneOf
from ...sampling import seeded
from ..data import Augment, Loader, Split
from ..recipes.settings import LOSSES, LossName
from ..statistics import half_width, summary
from ..training.step import MIXING, Carried, preserve_random_state, seed_everything, squared_grad_norm

KS = (1, 3, 5, 7, 9)
Key = tuple[int, int, int]  # seed, epoch, step: as in training, it decides everything that is drawn
Progress = Callable[[Sequence[int]], Iterable[int]]


@dataclass(frozen=True)
class NormAtK:
    """With ``k`` interpolations: ``values`` are ‖g‖² of every batch, ``mean ± half`` the 95 % interval of their mean.

    ``ratio ± ratio_half`` is that mean as a multiple of the one at K = 1; its interval is that of a ratio over the same batches.
    Halves are None with a single batch, the ratio where the mean at K = 1 is 0.
    """

    k: int
    values: tuple[float, ...]
    mean: float
    half: float | None
    ratio: float | None
    ratio_half: float | None


@dataclass(frozen=True)
class GradientNorms:
    """One row for every K, over the same ``batches`` of ``batch`` samples."""

    batches: int
    batch: int
    loss: str
    rows: tuple[NormAtK, ...]

    def numbers(self) -> dict[str, float | None]:
        """The mean of ‖g‖² by name: k1, k3, …"""
        return {f"k{row.k}": row.mean for row in self.rows}


def gradient_norms(
    network: nn.Module,
    method: Method,
    split: Split,
    augment: Augment,
    *,
    ks: Sequence[int] = KS,
    batches: int = 20,
    batch: int = 100,
    loss: LossName = "cross_entropy",
    smoothing: float = 0.0,
    seed: int = 0,
    workers: int = 0,
    device: torch.device | str | None = None,
    output: Output | None = None,
    progress: Progress = iter,
) -> GradientNorms:
    """The mean over batches of ‖g‖², g the gradient of the mixed loss by all parameters that ask for one, without weight decay.

    Every batch is what an update of a training with this seed would see, from its first epoch on, in training mode; K changes
    nothing but the number of interpolations (and what a method draws after the path, such as the layer of manifold mixup). A
    method without mixing has K = 1 only. One that remembers batches sees one more, the first, which is not measured: it has
    nothing to be mixed with. Each K has its own history, and epochs do not end it. ``network`` is copied and stays as it is, and
    so do global random streams. ``progress`` wraps the numbers of all gradients, the unmeasured ones included.
    """
    ks = checked_ks(method, ks)
    if batches < 1:
        raise ValueError(f"batches must be at least 1, got {batches}")
    check_loss(loss)
    values: dict[int, list[float]] = {k: [] for k in ks}
    unmeasured = 1 if method.history else 0
    seen = unmeasured + batches
    with preserve_random_state(), torch.inference_mode(False), torch.enable_grad():
        own = own_copy(network, method, device)
        loader = Loader(split, augment, batch=batch, seed=seed, workers=workers)
        work = ((k, *given) for given in first_batches(loader, seen, own) for k in ks)
        for _, (k, key, x, y) in zip(progress(range(seen * len(ks))), work, strict=True):
            backward(own, k, x, y, key, loss=loss, smoothing=smoothing, output=output)
            norm = float(squared_grad_norm(own.network))
            if not math.isfinite(norm):
                raise ValueError(f"the gradient must be finite, its squared norm at K = {k} in batch {len(values[k])} is {norm}")
            values[k].append(norm)
            own.restore()
    measured = {k: values[k][unmeasured:] for k in ks}
    return GradientNorms(batches, batch, loss, tuple(_row(k, measured[k], measured[1]) for k in ks))


@dataclass(frozen=True, eq=False)
class OwnCopy:
    """Copies of a network in training mode and of a method with its own networks; what samples must be like.

    ``buffers`` are those that all networks came with. ``carried`` has what the method remembers of the batch before, for every
    K, if it remembers any.
    """

    network: nn.Module
    method: Method
    place: torch.device
    dtype: torch.dtype
    order: torch.memory_format
    buffers: dict[str, Tensor]
    carried: dict[int, Carried] = field(default_factory=dict)

    def put(self, x: Tensor) -> Tensor:
        """The samples where the network is, in its precision and memory order."""
        return x.to(self.place, self.dtype, memory_format=self.order if x.ndim == 4 else torch.preserve_format)

    def restore(self) -> None:
        """No gradients, and buffers as they were: saliency is taken in evaluation mode and depends on running statistics."""
        together = _together(self.network, self.method)
        together.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, value in together.named_buffers():
                value.copy_(self.buffers[name])


def own_copy(network: nn.Module, method: Method, device: torch.device | str | None = None) -> OwnCopy:
    """Copies on ``device``, by default where ``network`` is, which stays as it is, as does ``method``."""
    core, _ = unwrapped(network)
    if not any(weight.requires_grad for weight in core.parameters()):
        raise ValueError("network must have parameters that ask for a gradient, it has none")
    try:
        copied = copy.deepcopy(core)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"network must be one that can be copied (without MixPoints), it cannot ({error})") from None
    copied = copied.to(device) if device is not None else copied
    copied.train()
    weight = next(value for value in copied.parameters() if value.is_floating_point())
    method = copy.deepcopy(method) if len(method.modules) > 0 else method
    together = _together(copied, method).to(weight.device)
    together.zero_grad(set_to_none=True)
    stacks = [value for value in copied.parameters() if value.ndim == 4 and not value.is_contiguous()]
    last = any(value.is_contiguous(memory_format=torch.channels_last) for value in stacks)
    buffers = {name: value.detach().clone() for name, value in together.named_buffers()}
    order = torch.channels_last if last else torch.preserve_format
    return OwnCopy(copied, method, weight.device, weight.dtype, order, buffers)


def _together(network: nn.Module, method: Method) -> nn.ModuleList:
    """The network with those that the method works with."""
    return nn.ModuleList([network, method.modules])


def first_batches(loader: Loader, number: int, own: OwnCopy) -> Iterator[tuple[Key, Tensor, Tensor]]:
    """The first batches of a training with their keys, from as many epochs as that takes, where the network is."""
    steps = ((epoch, step, batch) for epoch in count() for step, batch in enumerate(loader.epoch(epoch)))
    for epoch, step, (x, y) in islice(steps, number):
        yield (loader.seed, epoch, step), own.put(x), y.to(own.place)


def backward(
    own: OwnCopy,
    k: int,
    x: Tensor,
    y: Tensor,
    key: Key,
    *,
    loss: LossName,
    smoothing: float,
    output: Output | None,
) -> None:
    """Gradients of the mixed loss with ``k`` interpolations, with the draws that a training in one process makes for this key."""
    seed_everything(*key, 0)
    given: dict[str, Any] = {"loss": LOSSES[loss], "smoothing": smoothing, "output": output, **own.carried.get(k, {})}
    (term,) = mixed_terms(own.network, with_k(own.method, k), x, y, generator=seeded(MIXING, *key, 0), **given)
    part = term()
    part.loss.backward()  # type: ignore[no-untyped-call]
    own.carried[k] = part.carried


def checked_ks(method: Method, ks: Sequence[int]) -> tuple[int, ...]:
    """The K to measure: 1 alone for a method without mixing."""
    found = tuple(ks)
    whole = all(isinstance(k, int) and not isinstance(k, bool) for k in found)
    if not whole or found[:1] != (1,) or list(found) != sorted(set(found)):
        raise ValueError(f"ks must be ascending whole numbers from 1 on, with which all are compared, got {found}")
    return (1,) if isinstance(method, NoMix) else found


def check_loss(loss: str) -> None:
    """Raise one sentence unless there is such a loss."""
    if loss not in LOSSES:
        raise ValueError(f"no loss {loss!r}; there are {', '.join(LOSSES)}")


def with_k(method: Method, k: int) -> Method:
    """The same method with ``k`` interpolations; of several methods, each of them."""
    if isinstance(method, OneOf):
        return replace(method, methods=tuple(with_k(one, k) for one in method.methods))
    if "k" not in {option.name for option in fields(method)}:  # type: ignore[arg-type]  # methods are dataclasses
        raise ValueError(f"method must have an option k to be compared at several, {type(method).__name__} has none")
    return replace(method, k=k)  # type: ignore[type-var]


def _row(k: int, values: Sequence[float], of_one: Sequence[float]) -> NormAtK:
    whole, one = summary(values), math.fsum(of_one) / len(of_one)
    half = whole.half if len(values) > 1 else None
    if one == 0:
        return NormAtK(k, tuple(values), whole.mean, half, None, None)
    ratio = whole.mean / one
    # What a batch has beyond the ratio: batches with large gradients have them at every K, which does not count against it.
    rest = [a - ratio * b for a, b in zip(values, of_one, strict=True)]
    ratio_half = half_width(float(numpy.std(rest, ddof=1)), len(rest)) / one if len(rest) > 1 else None
    return NormAtK(k, tuple(values), whole.mean, half, ratio, ratio_half)
