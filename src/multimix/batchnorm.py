"""Batch-norm statistics of unmixed samples, for a model that was trained on mixed ones."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .core.devices import widest_float
from .core.hooks import named_layer, unwrapped
from .core.saliency import evaluation_mode

Forward = Callable[[nn.Module, Any], Any]


def recompute_batchnorm(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    frozen: Sequence[str] = (),
    forward: Forward | None = None,
) -> int:
    """Recompute the running statistics of batch norm from unmixed samples.

    Mixed batches have less variance than the images of a test set, and the running statistics
    describe the mixed batches. Call this function after training, or before each evaluation. No
    weight changes, and training can continue.

    The new statistics are the averages of the batches' means and variances, weighted by the number
    of values per channel. Only batch-norm layers run in training mode, and the model runs
    uncompiled, without gradients. Modes and momenta do not change; ``num_batches_tracked`` becomes
    the number of batches. In a process group, all processes must call the function, and the
    statistics are averaged over them; if one process fails, the others wait.

    Args:
        model: The model. Without batch norm, the function returns 0.
        batches: Unmixed training samples, with the usual random flips and crops: a data loader or
            any other iterable of batches. A batch is a tensor, a tuple or list whose first element
            is the input, or a mapping of keyword arguments. Use ``drop_last=True`` if the last
            batch may hold one sample, which ``BatchNorm1d`` rejects.
        frozen: Names of modules whose batch-norm layers keep their statistics. Other layers in
            evaluation mode are recomputed, too.
        forward: Runs the model on one batch, ``forward(model, batch)``, if batches have another
            form. It must move the batch to the device of the model.

    Returns:
        The number of layers whose statistics were recomputed.

    Raises:
        TypeError: If ``model`` is not a module, or ``frozen`` does not hold names.
        ValueError: If ``batches`` is empty or holds NaN or infinity, or a name in ``frozen`` is
            unknown. The statistics are restored after any error.

    Example::

        loader = DataLoader(train_set, batch_size=256, shuffle=True)  # without mixing
        recompute_batchnorm(model, loader)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    core = model if isinstance(model, nn.DataParallel) else unwrapped(model)[0]
    layers = _layers(core, frozen)
    if not layers:
        return 0
    statistics = [_Statistics(layer) for layer in layers]
    try:
        with ExitStack() as stack:
            stack.enter_context(evaluation_mode(core))
            stack.enter_context(torch.no_grad())
            if "torch._dynamo" in sys.modules:  # set_stance would import the compiler
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            for stats in statistics:
                stack.enter_context(stats.collecting())
            for batch in batches:
                (forward or _forward)(core, batch)
        updated = [stats.finish() for stats in statistics]
        if not any(updated):
            raise ValueError("batches must hold a batch that reaches batch norm, got none")
        if not all(buffer.isfinite().all() for layer in layers for buffer in layer.buffers()):
            raise ValueError("batches must hold finite samples, got NaN or infinity")
    except BaseException:
        for stats in statistics:
            stats.restore()
        raise
    return sum(updated)


class _Statistics:
    """Weighted sums of the batch statistics of one layer, and its state before."""

    def __init__(self, layer: _BatchNorm) -> None:
        self.layer = layer
        self.saved_buffers = [buffer.clone() for buffer in layer.buffers(recurse=False)]
        mean = layer.running_mean
        assert mean is not None
        self.sums = torch.zeros(2, *mean.shape, dtype=widest_float(mean.device), device=mean.device)
        self.count = 0

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Let the layer store the statistics of each batch, and sum them."""
        momentum = self.layer.momentum
        self.layer.reset_running_stats()
        self.layer.momentum, self.layer.training = 1.0, True
        hook = self.layer.register_forward_hook(self._add)
        try:
            yield
        finally:
            hook.remove()
            self.layer.momentum = momentum

    def _add(self, layer: nn.Module, args: Any, output: Tensor) -> None:
        values = output.numel() // output.shape[1]
        statistics = torch.stack([self.layer.running_mean, self.layer.running_var])  # type: ignore[list-item]
        self.sums += values * statistics.to(self.sums.dtype)
        self.count += values

    def finish(self) -> bool:
        """Store the averages over all processes; return whether any batch reached the layer."""
        total = torch.cat([self.sums.flatten(), self.sums.new_tensor([self.count])])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(total)
        if float(total[-1]) == 0:
            self.restore()
            return False
        mean, var = (total[:-1] / total[-1]).reshape(self.sums.shape)
        self.layer.running_mean.copy_(mean)  # type: ignore[union-attr]
        self.layer.running_var.copy_(var)  # type: ignore[union-attr]
        return True

    def restore(self) -> None:
        """Restore the statistics from before."""
        for buffer, values in zip(
            self.layer.buffers(recurse=False), self.saved_buffers, strict=True
        ):
            buffer.copy_(values)


def _layers(model: nn.Module, frozen: Sequence[str]) -> list[_BatchNorm]:
    """Return the batch-norm layers that have running statistics and are not frozen."""
    if isinstance(frozen, str) or not all(isinstance(name, str) for name in frozen):
        raise TypeError(f"frozen must be a sequence of names, got {frozen!r}")
    frozen_ids = {id(layer) for name in frozen for layer in named_layer(model, name).modules()}
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, _BatchNorm)
        and layer.running_mean is not None
        and layer.running_var is not None
        and id(layer) not in frozen_ids
    ]


def _forward(model: nn.Module, batch: Any) -> Any:
    """Run the model on the samples of a batch, on the device of its weights."""
    tensors = (*model.parameters(), *model.buffers())
    device = tensors[0].device
    if isinstance(batch, Mapping):
        return model(**{name: _moved(value, device) for name, value in batch.items()})
    x = batch[0] if isinstance(batch, tuple | list) else batch
    return model(_moved(x, device))


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
