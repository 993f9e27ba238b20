"""Input saliency: the gradient of the loss on the clean batch, computed without side effects."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from .checks import can_inspect, check_batch, check_whole, checked_labels, plain
from .devices import float32_or_better, full_precision
from .hooks import MixingError, run, unwrapped
from .logits import Output, logits_of
from .losses import check_scalar
from .sampling import is_integer

CleanLoss = Callable[[Tensor, Any], Tensor]

PASS_A_LOSS = "for other labels pass saliency=input_saliency(model, x, y, loss=…)"
TRACED = "saliency cannot be traced: compile the model, not the training step"
UNREACHED = "x does not reach the logits by differentiable operations, so it has no saliency"


class CleanPass(NamedTuple):
    """The result of one pass over the clean batch.

    The gradient is that of the loss summed over the batch, so that a sample's part does not depend
    on B nor, in evaluation mode, on the other samples.

    Attributes:
        saliency: ``[B, *size]``.
        gradient: ``[B, C, *size]``.
        loss: The mean loss.
        logits: ``[B, classes]``.
    """

    saliency: Tensor
    gradient: Tensor
    loss: Tensor
    logits: Tensor


def input_saliency(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    loss: CleanLoss | None = None,
    output: Output | None = None,
    pool: int | None = None,
) -> Tensor:
    """Compute how much the loss of each sample depends on each position of ``x``.

        S = sqrt(mean over channels of g²),  g = ∂ loss / ∂x

    The model runs uncompiled in evaluation mode. Its weights, ``.grad``, batch-norm statistics and
    modes do not change, nor does torch's random state. The function works inside ``autocast``,
    ``no_grad`` and ``inference_mode``, but not with reentrant checkpointing.

    Args:
        model: Any module that maps a batch to logits.
        x: ``[B, C, *size]``, floating point.
        y: Class indices ``[B]`` or probabilities ``[B, C]``, for the cross-entropy; or multi-hot
            rows ``[B, C]``, for the binary cross-entropy, summed over classes.
        loss: For other labels: maps logits and ``y`` to a scalar, a sum over the batch.
        output: Where the model's result holds the logits.
        pool: Average ``x`` over windows of ``pool`` positions per axis, for models that accept any
            size. The map is coarser and takes about 1/pool² of the time.

    Returns:
        ``[B, *size]`` in float32, or float64 for a float64 ``x``; detached.

    Raises:
        TypeError: If ``model`` is not a module or ``x`` or ``y`` is not a tensor.
        ValueError: If ``x`` or ``y`` is invalid, or the logits do not depend on ``x``.
        MixingError: If the model fails, or the call is inside a compiled function.

    Example::

        plan = PuzzleMix(k=5).plan(x, saliency=input_saliency(model, x, y))
    """
    options: dict[str, Any] = {"output": output, "loss": loss, "pool": pool}
    return clean_pass(model, x, y, training=False, **options).saliency


def clean_pass(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    training: bool,
    output: Output | None = None,
    loss: CleanLoss | None = None,
    pool: int | None = None,
) -> CleanPass:
    """Compute saliency, gradient, mean loss and logits of the clean batch in one pass.

    Args:
        model: As in :func:`input_saliency`.
        x: As in :func:`input_saliency`.
        y: As in :func:`input_saliency`.
        training: Run the model in its current mode, which updates batch-norm statistics, and keep
            the graph of ``loss`` and ``logits`` for a clean loss. ``.grad`` does not change.
        output: As in :func:`input_saliency`.
        loss: As in :func:`input_saliency`.
        pool: As in :func:`input_saliency`.

    Returns:
        The results.
    """
    _check(model, x, y, loss)
    check_whole("pool", pool, none=True)
    core = model if isinstance(model, nn.DataParallel) else unwrapped(model)[0]
    keep_graph = training and torch.is_grad_enabled()
    with ExitStack() as stack:
        if not training:
            stack.enter_context(evaluation_mode(core))
            devices = [x.device] if x.is_cuda else []
            stack.enter_context(torch.random.fork_rng(devices=devices))
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled
            stack.enter_context(_uncompiled())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        device = x.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            # Up to torch 2.10 weights that were cast in inference mode would be used again.
            torch.clear_autocast_cache()
        x = _without_inference(x)
        # A clean loss may have to reach the graph behind x.
        source = x if keep_graph and x.requires_grad else x.detach().requires_grad_()
        logits = _logits(core, source, output, keep_graph=keep_graph, pool=pool)
        if loss is None:
            value, scale = cross_entropy(logits, _without_inference(y)), len(x)
        else:
            value, scale = check_scalar(loss(logits, y)), 1
        gradient = _gradient(value, source, scale=scale, keep_graph=keep_graph)
        if not keep_graph:
            value, logits = value.detach(), logits.detach()
        return CleanPass(root_mean_square(gradient), gradient, value, logits)


def clean_logits(model: nn.Module, x: Tensor, output: Output | None = None) -> Tensor:
    """Return the logits of the clean batch, in the model's mode and with their graph."""
    is_wrapper = isinstance(model, nn.Module) and not isinstance(model, nn.DataParallel)
    core = unwrapped(model)[0] if is_wrapper else model
    return _logits(core, x, output, keep_graph=torch.is_grad_enabled())


def _logits(
    core: nn.Module,
    x: Tensor,
    output: Output | None,
    *,
    keep_graph: bool,
    pool: int | None = None,
) -> Tensor:
    model: Any = core
    is_module = isinstance(core, nn.Module)
    if keep_graph and is_module and "torch._dynamo" in sys.modules:
        model = partial(_with_copied_buffers, core)
    what = f"{len(x)} clean samples"
    if pool is None:
        x = x.clone()  # a first layer may work in place
    else:
        x, what = _pooled(x, pool), f"{what}, pooled by {pool} for the saliency,"
    return logits_of(run(model, x, what), output)


def _pooled(x: Tensor, pool: int) -> Tensor:
    """Means over windows of ``pool`` places per axis; the last may be narrower."""
    if not 3 <= x.ndim <= 5:
        raise ValueError(f"pool needs x with one to three axes of places, got {list(x.shape)}")
    average: Any = getattr(functional, f"avg_pool{x.ndim - 2}d")
    pooled: Tensor = average(x, [min(pool, side) for side in x.shape[2:]], ceil_mode=True)
    return pooled


def _with_copied_buffers(model: nn.Module, x: Tensor) -> Any:
    """Run ``model(x)`` on copies of its buffers, then copy the new values back.

    The graph holds batch-norm statistics. A compiled pass that follows changes the model's buffers
    in place, after which autograd would raise.
    """
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    result = torch.func.functional_call(model, buffers, (x,))
    with torch.no_grad():
        for name, value in model.named_buffers():
            value.copy_(buffers[name])
    return result


def root_mean_square(gradient: Tensor) -> Tensor:
    """Compute sqrt(mean over channels of g²).

    Args:
        gradient: ``[B, C, *size]``.

    Returns:
        ``[B, *size]``, in float32 or better.
    """
    gradient = float32_or_better(gradient)
    # Scaled, since squares of a confident model's gradients would underflow.
    largest = gradient.abs().flatten(1).amax(1).clamp(min=torch.finfo(gradient.dtype).tiny)
    largest = largest.reshape(-1, *[1] * (gradient.ndim - 1))
    return (gradient / largest).square().mean(1).sqrt() * largest.squeeze(1)


def _gradient(value: Tensor, source: Tensor, *, scale: int, keep_graph: bool) -> Tensor:
    if not value.requires_grad:
        raise ValueError(UNREACHED)
    with full_precision(source):  # backward passes run outside autocast
        (gradient,) = torch.autograd.grad(
            value,
            source,
            torch.full_like(value, scale),
            retain_graph=keep_graph,
            allow_unused=True,
        )
    if gradient is None:
        raise ValueError(UNREACHED)
    return gradient.detach()


def _check(model: nn.Module, x: Tensor, y: Tensor, loss: CleanLoss | None) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be an nn.Module to compute saliency, got {type(model).__name__}: "
            "wrap it in one, or pass saliency="
        )
    if torch.compiler.is_compiling():
        raise MixingError(TRACED)
    check_batch(x)
    if x.ndim < 2:
        raise ValueError(f"x must be [B, C, …] to have a saliency, got {list(x.shape)}")
    if loss is None:
        checked_labels(y, x)
        if not _is_multi_label(y):
            check_classes(y, "saliency", PASS_A_LOSS)


def check_classes(y: Tensor, what: str, hint: str) -> None:
    """Raise ValueError unless ``y`` holds class indices or probabilities.

    Args:
        y: Labels.
        what: What needs them, for the message.
        hint: What to do with other labels, for the message.
    """
    is_indices = y.ndim == 1 and is_integer(y)
    if not is_indices and not (y.ndim == 2 and y.shape[1] > 1):
        raise ValueError(
            f"{what} needs y to be class indices [B] or probabilities [B, C] with at least 2 "
            f"classes, got {y.dtype} {list(y.shape)}: {hint}"
        )
    if is_indices or not can_inspect(y):
        return
    deviation = float((y.detach().float().sum(1) - 1).abs().max())
    if float(y.min()) < 0 or deviation > 0.01:  # sums in half precision are not exact
        raise ValueError(
            f"{what} needs y to be probabilities that sum to 1, got {float(y.min()):g} as least "
            f"value and sums that differ from 1 by up to {deviation:g}: {hint}"
        )


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Compute the mean cross-entropy of the clean batch.

    Args:
        logits: ``[B, C]``.
        y: Class indices, probabilities, or multi-hot rows, for the binary cross-entropy summed
            over classes.

    Returns:
        A scalar, in float32 or better.

    Raises:
        ValueError: If the logits do not fit ``y``.
    """
    logits = float32_or_better(logits)
    fits = logits.ndim == 2 and len(logits) == len(y) and y.shape[1:] in ((), logits.shape[1:])
    if _is_multi_label(y) and fits:
        target = y.to(logits.dtype)
        total = functional.binary_cross_entropy_with_logits(logits, target, reduction="sum")
        return total / len(y)
    if not fits or logits.shape[1] < 2:
        raise ValueError(
            f"the cross-entropy needs logits that fit y {list(y.shape)}, with at least 2 classes, "
            f"got {list(logits.shape)}: {PASS_A_LOSS}"
        )
    if y.ndim == 2:
        return functional.cross_entropy(logits, y.to(logits.dtype))
    classes, y = logits.shape[1], y.long()
    if can_inspect(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        got = f"{int(y.min())} … {int(y.max())}"
        raise ValueError(f"class indices must be in 0 … {classes - 1}, got {got}")
    return functional.cross_entropy(logits, y)


def _is_multi_label(y: Tensor) -> bool:
    """Whether ``y`` holds multi-hot rows. Synchronizes a GPU, before a whole pass of the model."""
    if y.ndim != 2 or not bool(((y == 0) | (y == 1)).all()):
        return False
    return y.shape[1] == 1 or bool((y.sum(1) != 1).any())


def _without_inference(values: Tensor) -> Tensor:
    """A plain tensor that autograd can use: a copy of one that was made in inference mode."""
    values = plain(values)
    return values.clone() if values.is_inference() else values


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Set every module to evaluation mode, and restore each module's mode afterwards.

    Flags are set instead of calling ``eval()`` and ``train()``, which some modules override.
    Threads may run one model at the same time: the last one to finish restores the modes.
    """
    modules = list(model.modules())
    with _LOCK:
        # All modes are read first: a compiled module shares its flag with the module inside.
        for module in modules:
            users, training = _MODES.get(module, (0, module.training))
            _MODES[module] = (users + 1, training)
        for module in modules:
            module.training = False
    try:
        yield
    finally:
        with _LOCK:
            for module in modules:
                users, training = _MODES.pop(module)
                if users > 1:
                    _MODES[module] = (users - 1, training)
                else:
                    module.training = training


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Run compiled parts of the model eagerly, until the last thread has left the block.

    In another mode they would be compiled again, and they cannot keep their graph.
    """
    with _LOCK:
        try:
            _STANCES.append(None if _STANCES else torch.compiler.set_stance("force_eager"))
        except RuntimeError:
            raise MixingError(TRACED) from None
    try:
        yield
    finally:
        with _LOCK:
            stance = _STANCES.pop()
            if stance is not None:
                stance.__exit__(None, None, None)


# Modes and the compiler's stance are shared by all threads.
_MODES: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()
"""For each module in use: the number of users, and the mode to restore."""
_STANCES: list[Any] = []
"""One element per running pass; the first one restores the stance."""
_LOCK = Lock()
