"""How large the gradient of the mixed loss is at fixed weights, with one number of interpolations after the other.

During training the norm of every update is in the log (``Epoch.squared_grad_norm``); there the weights differ from K to K. Here
they are the same, and so are samples, augmentation and pairs.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import count, islice

import numpy
import torch
from scipy import stats
from torch import Tensor, nn

from ...core.hooks import unwrapped
from ...core.sampling import seeded
from ...methods import Method, NoMix, OneOf
from ...output import State, mixed_forward
from ..data import Augment, Loader, Split
from ..recipes.settings import LOSSES, LossName
from ..training.loop import as_stored
from ..training.step import MIXING, preserve_random_state, seed_everything, squared_grad_norm
from .base import Finding, measure
from .predictions import Progress, Reading
from .subject import Subject

KS = (1, 3, 5, 7, 9)
Key = tuple[int, int, int]  # seed, epoch, step: as in training, it decides everything that is drawn


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


class Updates:
    """The first updates of a training with this ``seed``, each at the weights of ``network`` and with every K of ``ks``.

    They are made with copies of the network, in training mode, and of the method with its own networks, so that all start alike.
    A method without mixing has K = 1 only.
    """

    def __init__(
        self,
        network: nn.Module,
        method: Method,
        split: Split,
        augment: Augment,
        ks: Sequence[int] = KS,
        batch: int = 100,
        loss: LossName = "cross_entropy",
        smoothing: float = 0.0,
        seed: int = 0,
        workers: int = 0,
    ) -> None:
        if tuple(ks[:1]) != (1,) or list(ks) != sorted(set(ks)):
            raise ValueError(f"ks must be ascending whole numbers from 1 on, with which all are compared, got {tuple(ks)}")
        core, _ = unwrapped(network)
        if not any(weight.requires_grad for weight in core.parameters()):
            raise ValueError("network must have parameters that ask for a gradient, it has none")
        try:
            with torch.inference_mode(False):
                self.network = copy.deepcopy(core).train()
        except (TypeError, RuntimeError) as error:
            raise ValueError(f"network must be one that can be copied, it cannot ({error})") from None
        self.method = copy.deepcopy(method) if len(method.modules) > 0 else method
        self.ks = (1,) if isinstance(method, NoMix) else tuple(ks)
        self.loader = Loader(split, augment, batch=batch, seed=seed, workers=workers)
        self.loss, self.smoothing = loss, smoothing
        self.weight = next(value for value in self.network.parameters() if value.is_floating_point())
        self.together = nn.ModuleList([self.network, self.method.modules]).to(self.weight.device)
        self.together.zero_grad(set_to_none=True)
        self.buffers = {name: value.detach().clone() for name, value in self.together.named_buffers()}
        self.states: dict[int, State] = {}  # the method's state after the previous batch, for every K

    def batches(self, number: int) -> Iterator[tuple[Key, Tensor, Tensor]]:
        """The first batches of the training with their keys, from as many epochs as that takes, where the network is."""
        stacks = [value for value in self.network.parameters() if value.ndim == 4 and not value.is_contiguous()]
        last = any(value.is_contiguous(memory_format=torch.channels_last) for value in stacks)
        loader, to = self.loader, (self.weight.device, self.weight.dtype)
        steps = ((epoch, step, batch) for epoch in count() for step, batch in enumerate(loader.epoch(epoch)))
        for epoch, step, (x, y) in islice(steps, number):
            order = torch.channels_last if last and x.ndim == 4 else torch.preserve_format
            yield (loader.seed, epoch, step), x.to(*to, memory_format=order), y.to(self.weight.device)

    def backward(self, k: int, key: Key, x: Tensor, y: Tensor) -> None:
        """Gradients of the mixed loss with ``k`` interpolations, with the draws of a training in one process for this key."""
        seed_everything(*key, 0)
        out = mixed_forward(
            self.network,
            with_k(self.method, k),
            x,
            y,
            generator=seeded(MIXING, *key, 0),
            smoothing=self.smoothing,
            state=self.states.get(k),
        )
        out.loss(LOSSES[self.loss]).backward()  # type: ignore[no-untyped-call]
        self.states[k] = out.state

    def restore(self) -> None:
        """No gradients, and buffers as they were: saliency is taken in evaluation mode and depends on running statistics."""
        self.together.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, value in self.together.named_buffers():
                value.copy_(self.buffers[name])


@measure("gradient_norm", labels=lambda subject, options: subject.labels("train"), uses_statistics=False)
def measure_gradient_norm(
    subject: Subject, reading: Reading, *, ks: tuple[int, ...] = KS, batches: int = 20, seed: int = 0
) -> Finding:
    """‖g‖² of updates of a run's last epoch."""
    found = gradient_norms(updates_of(subject, "gradient_norm", ks, seed, reading.workers), batches, reading.progress)
    return Finding(found.numbers(), found)


def gradient_norms(updates: Updates, batches: int = 20, progress: Progress = iter) -> GradientNorms:
    """The mean over batches of ‖g‖², g the gradient of the mixed loss by all trainable parameters, without weight decay.

    Every batch is what an update of the training would see, from its first epoch on, in training mode; K changes nothing but the
    number of interpolations (and what a method draws after the path, such as the layer of manifold mixup). A method that
    remembers batches sees one more, the first, which is not measured: it has nothing to be mixed with. Each K has its own
    history, and epochs do not end it. ``progress`` wraps the numbers of all gradients, the unmeasured ones included.
    """
    if batches < 1:
        raise ValueError(f"batches must be at least 1, got {batches}")
    ks = updates.ks
    values: dict[int, list[float]] = {k: [] for k in ks}
    unmeasured = 1 if updates.method.traits.history else 0
    with undisturbed():
        work = ((k, *given) for given in updates.batches(unmeasured + batches) for k in ks)
        for _, (k, key, x, y) in zip(progress(range((unmeasured + batches) * len(ks))), work, strict=True):
            updates.backward(k, key, x, y)
            norm = float(squared_grad_norm(updates.network))
            if not math.isfinite(norm):
                raise ValueError(f"the gradient must be finite, its squared norm at K = {k} in batch {len(values[k])} is {norm}")
            values[k].append(norm)
            updates.restore()
    measured = {k: values[k][unmeasured:] for k in ks}
    return GradientNorms(batches, updates.loader.batch, updates.loss, tuple(_row(k, measured[k], measured[1]) for k in ks))


def updates_of(subject: Subject, name: str, ks: tuple[int, ...], seed: int, workers: int) -> Updates:
    """Updates as in the last epoch of the run, for the measure ``name``."""
    train = subject.parts().train
    if subject.settings is None or train is None:
        raise ValueError(f"{name} needs a run with the data it was trained on, {subject.title} has none here")
    # With the networks that the method had learnt beside, if it has any.
    settings = replace(subject.settings, method=subject.method or subject.settings.method)
    settings = settings.in_epoch(settings.epochs - 1)
    for field, plain in {"repeats": 1, "accumulate": 1, "k_chunk": None, "mixed_precision": "no"}.items():
        if getattr(settings, field) != plain:
            raise ValueError(
                f"{name} measures whole updates in full precision; {subject.title} has {field} = {getattr(settings, field)}"
            )
    split, augment = as_stored(train, settings.augment.short_side), settings.augment.training(settings.data.entry())
    same = settings.batch, settings.loss, settings.smoothing
    return Updates(subject.network, settings.method, split, augment, ks, *same, seed, workers)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Gradients can be taken, whatever the mode outside; all random streams stay as they are."""
    with preserve_random_state(), torch.inference_mode(False), torch.enable_grad():
        yield


def with_k(method: Method, k: int) -> Method:
    """The same method with ``k`` interpolations; of several methods, each of them."""
    if isinstance(method, OneOf):
        return replace(method, methods=tuple(with_k(one, k) for one in method.methods))
    if "k" not in {option.name for option in fields(method)}:  # type: ignore[arg-type]  # methods are dataclasses
        raise ValueError(f"method must have an option k to be compared at several, {type(method).__name__} has none")
    return replace(method, k=k)  # type: ignore[type-var]


def _row(k: int, values: Sequence[float], of_one: Sequence[float]) -> NormAtK:
    mean, one = float(numpy.mean(values)), math.fsum(of_one) / len(of_one)
    half = _half_interval(values)
    if one == 0:
        return NormAtK(k, tuple(values), mean, half, None, None)
    ratio = mean / one
    # Batches with large gradients have them at every K: only what a batch has beyond the ratio counts.
    half_rest = _half_interval([a - ratio * b for a, b in zip(values, of_one, strict=True)])
    return NormAtK(k, tuple(values), mean, half, ratio, None if half_rest is None else half_rest / one)


def _half_interval(values: Sequence[float]) -> float | None:
    """Return half the 95 % t-interval of the mean, None for a single value."""
    if len(values) < 2:
        return None
    return float(stats.t.ppf(0.975, len(values) - 1) * numpy.std(values, ddof=1) / math.sqrt(len(values)))
