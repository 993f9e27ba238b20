"""One update of the weights: every share of the batch forward and backward, then one step of the optimiser."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

import numpy
import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import gather_object
from torch import Generator, Tensor, nn

from ...core.checks import NotFiniteError
from ...core.sampling import seeded
from ...methods.base import Method, trained_parameters
from ...output import MixedParts, State, mixed_parts
from ..recipes.settings import LOSSES, Settings

# A seed's separate random streams, beside those of the loader.
START, MIXING, MODEL = 0x57A7, 0x313C, 0x30DE1


class Measured(NamedTuple):
    """Numbers of one update in this process, still on its device.

    Args:
        numbers: Loss, accuracy, ‖g‖² and rows.
        images: Samples, without repetition by K.
        states: The method's state after each share, for the next update.
    """

    numbers: Tensor
    images: int
    states: tuple[State, ...] = ()


def update(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: AcceleratedOptimizer,
    settings: Settings,
    shares: Sequence[tuple[Tensor, Tensor]],
    key: tuple[int, int, int],
    states: Sequence[State] = (),
) -> Measured:
    """The optimiser stepped once on the mean gradient of ``shares``, this process's parts of the batch.

    ``states`` are those of the previous update; without them a method with a history starts anew.

    ``key`` is (seed, epoch, step): with the number of a share among those of all processes it decides everything drawn, so
    nothing about random streams has to be saved, and the draws do not depend on how shares are spread over processes (running
    batch statistics, which are those of the first process, do).
    """
    model.train()
    optimizer.zero_grad()
    loss = accuracy = torch.zeros((), device=accelerator.device)
    images = rows = 0
    next_states: list[State] = []
    criterion = LOSSES[settings.loss]
    for i, (x, y) in enumerate(shares):
        share = accelerator.process_index * len(shares) + i
        seed_everything(*key, share)
        x, y = on_device(x, accelerator, settings), y.to(accelerator.device, non_blocking=True)
        state = states[i] if i < len(states) else None
        parts = _parts(accelerator, model, settings, x, y, seeded(MIXING, *key, share), state)
        if parts is None:
            return Measured(torch.full((4,), torch.nan, device=accelerator.device), len(x))
        hits, before = torch.zeros((), device=accelerator.device), rows
        for j in range(len(parts)):
            last = i == len(shares) - 1 and j == len(parts) - 1
            # Gradients travel between processes once, with the last backward.
            with nullcontext() if last else accelerator.no_sync(model):
                part = next(parts)
                part_loss = part.loss(criterion)
                accelerator.backward(part_loss / len(shares))
            loss = loss + part_loss.detach().float() / len(shares)
            hits = hits + part.accuracy() * len(part.target)
            rows += len(part.target)
        next_states.append(part.state)
        accuracy = accuracy + hits / ((rows - before) * len(shares))
        images += len(x)
    _average_gradients(settings.method, accelerator)
    accelerator.unscale_gradients(optimizer)
    norm = squared_grad_norm(model)
    optimizer.step()
    settings.method.after_step(model)
    numbers = torch.stack([loss, accuracy, norm, loss.new_tensor(rows)])
    return Measured(numbers, images, tuple(next_states))


def _parts(
    accelerator: Accelerator,
    model: nn.Module,
    settings: Settings,
    x: Tensor,
    y: Tensor,
    generator: Generator,
    state: State | None,
) -> MixedParts | None:
    """Plan the batch in parts. Return None on every rank if the model diverged on any rank."""
    parts = None
    with suppress(NotFiniteError):
        parts = mixed_parts(
            model,
            settings.method,
            x,
            y,
            steps=settings.k_chunk,
            smoothing=settings.smoothing,
            generator=generator,
            state=state,
        )
    if accelerator.num_processes > 1 and (settings.method.traits.needs or len(settings.method.modules) > 0):
        # A rank that stopped alone would leave the others waiting for its gradients.
        failed = torch.tensor(float(parts is None), device=accelerator.device)
        return None if float(accelerator.reduce(failed, "sum")) > 0 else parts
    return parts


def _average_gradients(method: Method, accelerator: Accelerator) -> None:
    """The mean over all processes for the networks that learn beside the model, which DistributedDataParallel does not see."""
    if accelerator.num_processes == 1:
        return
    for weight in trained_parameters(method):
        # A process that drew "no mixing" has no gradient, and must not leave the others waiting.
        own = torch.zeros_like(weight) if weight.grad is None else weight.grad
        weight.grad = accelerator.reduce(own, "mean")


def of_all_shares(states: Sequence[State]) -> tuple[State, ...]:
    """Gather the method states of all processes, in the order of their shares. Every process must call it."""
    return tuple(gather_object([{name: value.cpu() for name, value in state.items()} for state in states]))


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
