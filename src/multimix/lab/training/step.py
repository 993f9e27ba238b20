"""One update of the weights: every share of the batch forward and backward, then one step of the optimiser."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import numpy
import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import gather_object
from torch import Generator, Tensor, nn

from ...checks import NotFiniteError
from ...forward import Term, mixed_terms
from ...loss import mixed_accuracy
from ...methods.base import Method, trained_parameters
from ...sampling import seeded
from ..recipes.settings import LOSSES, Settings

# A seed's separate random streams, beside those of the loader.
START, MIXING, MODEL = 0x57A7, 0x313C, 0x30DE1

# What a method hands on from one share of a batch to the same share of the next: keywords of its plan.
Carried = Mapping[str, Any]


class Measured(NamedTuple):
    """What one update was like in this process, still on its device: ``numbers`` are loss, accuracy, ‖g‖² and rows.

    ``carried`` has what the method remembers of each share, for the next update.
    """

    numbers: Tensor
    images: int
    carried: tuple[Carried, ...] = ()


def update(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: AcceleratedOptimizer,
    settings: Settings,
    shares: Sequence[tuple[Tensor, Tensor]],
    key: tuple[int, int, int],
    carried: Sequence[Carried] = (),
) -> Measured:
    """The optimiser stepped once on the mean gradient of ``shares``, this process's parts of the batch.

    ``carried`` is what the update before handed out; without it a method that remembers begins anew.

    ``key`` is (seed, epoch, step): with the number of a share among those of all processes it decides everything drawn, so
    nothing about random streams has to be saved, and the draws do not depend on how shares are spread over processes (running
    batch statistics, which are those of the first process, do).
    """
    model.train()
    optimizer.zero_grad()
    loss = accuracy = torch.zeros((), device=accelerator.device)
    images = rows = 0
    kept: list[Carried] = []
    for i, (x, y) in enumerate(shares):
        share = accelerator.process_index * len(shares) + i
        seed_everything(*key, share)
        x, y = on_device(x, accelerator, settings), y.to(accelerator.device, non_blocking=True)
        given = carried[i] if i < len(carried) else {}
        terms = _terms(accelerator, model, settings, x, y, seeded(MIXING, *key, share), given)
        if terms is None:
            return Measured(torch.full((4,), torch.nan, device=accelerator.device), len(x))
        hits, before = torch.zeros((), device=accelerator.device), rows
        kept.append({})
        for j, term in enumerate(terms):
            last = i == len(shares) - 1 and j == len(terms) - 1
            # Gradients travel between processes once, with the last backward.
            with nullcontext() if last else accelerator.no_sync(model):
                part = term()
                accelerator.backward(part.loss / len(shares))
            kept[-1] = {**kept[-1], **part.carried}
            loss = loss + part.loss.detach().float() / len(shares)
            hits = hits + mixed_accuracy(part.logits.detach(), part.target) * len(part.logits)
            rows += len(part.logits)
        accuracy = accuracy + hits / ((rows - before) * len(shares))
        images += len(x)
    _average_gradients(settings.method, accelerator)
    accelerator.unscale_gradients(optimizer)
    norm = squared_grad_norm(model)
    optimizer.step()
    settings.method.after_step(model)
    return Measured(torch.stack([loss, accuracy, norm, loss.new_tensor(rows)]), images, tuple(kept))


def _terms(
    accelerator: Accelerator,
    model: nn.Module,
    settings: Settings,
    x: Tensor,
    y: Tensor,
    generator: Generator,
    given: Carried,
) -> list[Callable[[], Term]] | None:
    """The parts of the loss, in all processes; None in all of them if the model is past asking in any."""
    found = None
    with suppress(NotFiniteError):
        found = mixed_terms(
            model,
            settings.method,
            x,
            y,
            steps=settings.k_chunk,
            loss=LOSSES[settings.loss],
            smoothing=settings.smoothing,
            generator=generator,
            **given,
        )
    if accelerator.num_processes > 1 and (settings.method.traits.needs or len(settings.method.modules) > 0):
        # One that stopped alone would leave the others waiting for its gradients.
        failed = torch.tensor(float(found is None), device=accelerator.device)
        return None if float(accelerator.reduce(failed, "sum")) > 0 else found
    return found


def _average_gradients(method: Method, accelerator: Accelerator) -> None:
    """The mean over all processes for the networks that learn beside the model, which DistributedDataParallel does not see."""
    if accelerator.num_processes == 1:
        return
    for weight in trained_parameters(method):
        # A process that drew "no mixing" has no gradient, and must not leave the others waiting.
        own = torch.zeros_like(weight) if weight.grad is None else weight.grad
        weight.grad = accelerator.reduce(own, "mean")


def of_all_shares(own: Sequence[Carried]) -> tuple[Carried, ...]:
    """What all processes carry, in the order of their shares; all of them must ask."""
    return tuple(gather_object([{name: value.cpu() for name, value in share.items()} for share in own]))


def squared_grad_norm(model: nn.Module) -> Tensor:
    """‖g‖² of the gradients as they are: no weight decay in them yet."""
    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return nn.utils.get_total_norm(grads).float() ** 2


def on_device(x: Tensor, accelerator: Accelerator, settings: Settings) -> Tensor:
    """The batch where the model is, in the memory order of the model."""
    order = torch.channels_last if settings.channels_last and x.ndim == 4 else torch.preserve_format
    return x.to(accelerator.device, non_blocking=True, memory_format=order)


def seed_everything(*parts: int) -> None:
    """All global random streams a model may draw from (dropout, say) set by ``parts``."""
    seed = seeded(MODEL, *parts).initial_seed()
    torch.manual_seed(seed)
    numpy.random.seed(seed % 2**32)  # noqa: NPY002  the stream that somebody's model may use
    random.seed(seed)


@contextmanager
def preserve_random_state() -> Iterator[None]:
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
