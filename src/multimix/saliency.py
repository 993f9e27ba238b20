"""Where a model looks: the gradient of its loss on the clean batch, taken without leaving a trace in the model."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, avg_pool2d, avg_pool3d, binary_cross_entropy_with_logits, cross_entropy

from .checks import can_inspect, check_labels, check_precision, check_whole, plain, plain_labels
from .hooks import MixingError, run, unwrapped
from .logits import Output, logits_of
from .loss import one_number
from .precision import float32_or_better, full_precision

CleanLoss = Callable[[Tensor, Any], Tensor]

OWN_LOSS = "for others give input_saliency a loss=, a function of logits and y, and hand its map on as saliency="
TRACED = "the saliency pass cannot be part of a compiled step; compile the model, not the training step"
UNREACHED = "x does not reach the output of the model by differentiable steps, so it has no saliency"


class CleanPass(NamedTuple):
    """What one pass over the clean batch tells: ``saliency [B, *size]``, ``gradient [B, C, *size]``, mean ``loss``, ``logits``.

    The gradient is that of the loss summed over the batch, so that a sample's part depends neither on B nor, in evaluation
    mode, on the rest of the batch.
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
    """``[B, *size]``: how much the loss of each sample depends on each place of ``x [B, C, *size]``.

        S = sqrt(mean over channels of g²),  g = ∂ loss / ∂x

    ``y`` holds class indices ``[B]`` or probabilities ``[B, C]``, for the cross-entropy, or several labels a sample, rows
    ``[B, C]`` of 0 and 1 that do not all sum to 1, for the binary one, summed over classes; for anything else ``loss(logits, y)``
    must give a scalar (a sum over the batch rather than a mean, which can underflow in float16). ``output`` says where a model
    that returns more than one tensor keeps its logits.

    With ``pool`` the model is shown the means over windows of ``pool`` places per axis, which takes about 1/pool² of the time
    for images and gives a coarser map of the same size, another one: for models that take inputs of any size.

    The model runs in evaluation mode and is left as it was: parameters, their ``.grad`` and ``requires_grad``, the statistics of
    batch norm, the mode of every layer, torch's random state, the hooks of DistributedDataParallel. A compiled model runs
    uncompiled. Works inside ``autocast``, ``no_grad`` and ``inference_mode``; not with checkpointing of the reentrant kind, which
    torch refuses. Forward hooks of your own do run. In float32, or float64 for a float64 ``x``; detached.
    """
    return clean_pass(model, x, y, training=False, output=output, loss=loss, pool=pool).saliency


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
    """Saliency, gradient and mean loss of the clean batch, from one pass; ``.grad`` is not touched.

    ``training=False`` is the pass of :func:`input_saliency`, its loss detached. ``training=True`` runs the model in the mode it
    is in, so that batch norm uses and updates its statistics, and keeps the graph of ``loss`` and ``logits``, so that a clean
    loss can be added to that of the mixed batch. With a ``loss`` of your own, loss and gradient are what it gives.
    """
    _check(model, x, y, loss)
    check_whole("pool", pool, none=True)
    core = model if isinstance(model, nn.DataParallel) else unwrapped(model)[0]
    keep = training and torch.is_grad_enabled()
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and loading the compiler to ask would take seconds
            stack.enter_context(_uncompiled())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type):
            torch.clear_autocast_cache()  # of weights cast in inference mode, which up to torch 2.10 would be used again
        if not training:
            stack.enter_context(evaluation_mode(core))
            stack.enter_context(_own_random_state(x))
        x, y = (_normal(plain(x)), _normal(plain_labels(y))) if loss is None else (_normal(plain(x)), y)
        # A clean loss that is kept may have to reach what is behind x, too.
        source = x if keep and x.requires_grad else x.detach().requires_grad_()
        logits = _logits(core, source, output, keep=keep, pool=pool)
        value = _cross_entropy(logits, y) if loss is None else one_number(loss(logits, y))
        gradient = _gradient(value, source, scale=len(x) if loss is None else 1, keep=keep)
        value, logits = (value, logits) if keep else (value.detach(), logits.detach())
        return CleanPass(root_mean_square(gradient), gradient, value, logits)


def clean_logits(model: nn.Module, x: Tensor, output: Output | None = None) -> Tensor:
    """What the model says about the clean batch in its own mode, with its graph, for a loss beside that of the mixed batch."""
    core = model if isinstance(model, nn.DataParallel) else unwrapped(model)[0]
    return _logits(core, x, output, keep=torch.is_grad_enabled())


def _logits(core: nn.Module, x: Tensor, output: Output | None, *, keep: bool, pool: int | None = None) -> Tensor:
    model = partial(_with_own_buffers, core) if keep and "torch._dynamo" in sys.modules else core
    if pool is None:
        # A copy, because a first layer may work in place.
        return logits_of(run(model, x.clone(), f"{len(x)} clean samples"), output)
    return logits_of(run(model, _pooled(x, pool), f"{len(x)} clean samples, pooled by {pool} for the saliency,"), output)


def _pooled(x: Tensor, pool: int) -> Tensor:
    """Means over windows of ``pool`` places per axis; the last may be narrower. Their gradient is spread over the places."""
    means = {3: avg_pool1d, 4: avg_pool2d, 5: avg_pool3d}
    if x.ndim not in means:
        raise ValueError(f"pool needs x with one to three axes after the channels, got {list(x.shape)}")
    result: Tensor = means[x.ndim](x, [min(pool, side) for side in x.shape[2:]], ceil_mode=True)
    return result


def _with_own_buffers(model: nn.Module, x: Tensor) -> Any:
    """``model(x)`` on copies of its buffers, whose new values it then takes over.

    The kept graph holds the statistics of batch norm; a compiled pass that follows overwrites the model's own in place, which
    autograd would refuse.
    """
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    result = torch.func.functional_call(model, buffers, (x,))
    with torch.no_grad():
        for name, value in model.named_buffers():
            value.copy_(buffers[name])
    return result


def root_mean_square(gradient: Tensor) -> Tensor:
    """``[B, *size]`` from ``[B, C, *size]``: sqrt(mean over channels of g²), in float32 or better."""
    gradient = float32_or_better(gradient)
    # Squares of a sure model's gradients would underflow.
    largest = gradient.abs().flatten(1).amax(1).clamp(min=torch.finfo(gradient.dtype).tiny)
    largest = largest.reshape(-1, *[1] * (gradient.ndim - 1))
    return (gradient / largest).square().mean(1).sqrt() * largest.squeeze(1)


def _gradient(value: Tensor, source: Tensor, *, scale: int, keep: bool) -> Tensor:
    if not value.requires_grad:
        raise ValueError(UNREACHED)
    # Outside autocast, as for a training loss: the backward pass of what ran in float32 shall not run in less.
    with full_precision(source):
        (gradient,) = torch.autograd.grad(value, source, torch.full_like(value, scale), retain_graph=keep, allow_unused=True)
    if gradient is None:
        raise ValueError(UNREACHED)
    return gradient.detach()


def _check(model: nn.Module, x: Tensor, y: Tensor, loss: CleanLoss | None) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"saliency needs an nn.Module, whose mode can be set, got {type(model).__name__}: "
            "wrap it in one, or hand in a map as saliency="
        )
    if torch.compiler.is_compiling():
        raise MixingError(TRACED)
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a torch.Tensor, got {type(x).__name__}")
    check_precision("x", x)
    if x.layout != torch.strided:
        raise ValueError(f"x must be a dense tensor, got {x.layout}; use x.to_dense()")
    if not x.is_floating_point():
        raise ValueError(f"saliency is a gradient by x, which must be floating point, got {x.dtype}")
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"saliency needs x of shape [B, C, …], none of it empty, got {list(x.shape)}")
    if loss is not None:
        return
    check_labels(y, x)
    if not _several_labels(y):
        check_classes(y, "saliency", OWN_LOSS)


def check_classes(y: Tensor, what: str, otherwise: str) -> None:
    """Raise ValueError unless ``y`` are class indices or probabilities, which ``what`` needs; for others do ``otherwise``."""
    indices = y.ndim == 1 and not y.is_floating_point() and y.dtype != torch.bool
    if not indices and not (y.ndim == 2 and y.shape[1] > 1):
        raise ValueError(
            f"{what} needs y to be class indices [B] or probabilities [B, C] with at least 2 classes, got {y.dtype} "
            f"{list(y.shape)}: {otherwise}"
        )
    if indices or not can_inspect(y):
        return
    if float(y.min()) < 0:
        raise ValueError(f"{what} needs probabilities of classes, at least 0, got {float(y.min()):g}: {otherwise}")
    total = y.detach().float().sum(1)
    if float((total - 1).abs().max()) > 0.01:  # half precision adds up to no better
        odd = float(total[(total - 1).abs().argmax()])
        raise ValueError(f"{what} needs probabilities of classes that sum to 1, got rows that sum to {odd:g}: {otherwise}")


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The mean over the batch, in float32 or better; the binary one, summed over classes, where samples have several labels."""
    if _several_labels(y):
        if logits.shape != y.shape:
            raise ValueError(f"labels {list(y.shape)} of 0 and 1 need logits of the same shape, got {list(logits.shape)}")
        logits = float32_or_better(logits)
        return binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="sum") / len(y)
    wanted = logits.ndim == 2 and len(logits) == len(y) and logits.shape[1] > 1
    if not wanted or (y.ndim == 2 and y.shape != logits.shape):
        raise ValueError(
            f"the cross-entropy of {len(y)} samples needs logits [{len(y)}, {y.shape[1] if y.ndim == 2 else 'C'}] with at least "
            f"2 classes, got {list(logits.shape)}: {OWN_LOSS}"
        )
    logits = float32_or_better(logits)
    if y.ndim == 2:
        return cross_entropy(logits, y.to(logits.dtype))
    if can_inspect(y) and not 0 <= int(y.min()) <= int(y.max()) < logits.shape[1]:
        raise ValueError(f"class indices must lie in 0 … {logits.shape[1] - 1}, got {int(y.min())} … {int(y.max())}")
    return cross_entropy(logits, y.long())


def _several_labels(y: Tensor) -> bool:
    """Whether rows ``[B, C]`` hold any number of labels each. Read on accelerators, too: a pass over the model follows anyway."""
    if y.ndim != 2 or not bool(((y == 0) | (y == 1)).all()):
        return False
    return y.shape[1] == 1 or bool((y.sum(1) != 1).any())


def _normal(values: Tensor) -> Tensor:
    """``values``, or a copy if they were made in inference mode, where autograd cannot use them."""
    return values.clone() if values.is_inference() else values


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode; afterwards each in its own again, also one that differs from the module around it.

    The flags are set, not ``eval()`` and ``train()`` called: some modules do more than change their mode there. Threads may ask
    one model at the same time: the first to come keeps its modes, the last to go gives them back.
    """
    modules = list(model.modules())
    with _LOCK:
        for module in modules:  # all of them first: a compiled module shares its mode with the one inside it
            asked, training = _MODES.get(module, (0, module.training))
            _MODES[module] = (asked + 1, training)
        for module in modules:
            module.training = False
    try:
        yield
    finally:
        with _LOCK:
            for module in modules:
                asked, training = _MODES.pop(module)
                if asked > 1:
                    _MODES[module] = (asked - 1, training)
                else:
                    module.training = training


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Compiled parts of the model run as they were written, until the last of the threads that asked for it is done.

    In another mode they would be compiled anew, and they refuse to keep their graph.
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
            before = _STANCES.pop()
            if before is not None:
                before.__exit__(None, None, None)


# Modes and the compiler's stance belong to all threads: how often each module was asked for and the mode it had before, and one
# entry for every pass, the first of which knows the stance before.
_MODES: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()
_STANCES: list[Any] = []
_LOCK = Lock()


def _own_random_state(x: Tensor) -> AbstractContextManager[None]:
    """Draws of a model that draws even in evaluation mode leave torch's random state as it was."""
    devices = [x.device] if x.device.type == "cuda" else []
    return torch.random.fork_rng(devices=devices)
