"""Composer (mosaicml): an algorithm for its Trainer."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from composer.core import Algorithm, Event
from composer.models import ComposerClassifier
from composer.utils.batch_helpers import batch_get, batch_set
from torch import Tensor, nn

from ..batchnorm import recompute_batchnorm
from ..core.hooks import unwrapped
from ..core.losses import Criterion
from ..methods.base import Method
from ..output import NO_STATE
from ._mixer import Mixer, run_instead

EVENTS = (
    Event.INIT,
    Event.FIT_START,
    Event.EPOCH_START,
    Event.BEFORE_FORWARD,
    Event.AFTER_LOSS,
    Event.FIT_END,
)


class Mixing(Algorithm):  # type: ignore[misc]
    """Mix every training microbatch. Evaluation does not change.

    Training metrics receive the B rows of the first step and the labels of the batch. Networks of
    the method become a submodule of the model; pass ``method.modules.parameters()`` to the
    optimizer.

    Args:
        method: A method whose networks exist.
        loss: Maps logits and soft target to a scalar. None uses the loss of the ComposerModel,
            which must accept soft targets ``[K·B, C]``, as Composer's do.
        smoothing: Label smoothing ε.
        input_key: Where a batch holds the samples, as in Composer's algorithms.
        target_key: Where a batch holds the labels.
        recompute_batchnorm: Call :func:`multimix.recompute_batchnorm` with one epoch of the
            training loader when the training ends. Checkpoints written before have the statistics
            of mixed batches.

    Example::

        Trainer(model=model, algorithms=[Mixing(CutMix(k=5))], …)
    """

    def __init__(
        self,
        method: Method,
        *,
        loss: Criterion | None = None,
        smoothing: float = 0.0,
        input_key: Any = 0,
        target_key: Any = 1,
        recompute_batchnorm: bool = False,
    ) -> None:
        self.mixer = Mixer(method, smoothing=smoothing)
        self.loss, self.input_key, self.target_key = loss, input_key, target_key
        self.mixed_loss: Tensor | None = None
        self.recomputes = recompute_batchnorm

    def match(self, event: Event, state: Any) -> bool:
        """Return whether :meth:`apply` handles an event.

        Args:
            event: The current event.
            state: The Trainer's state. Not used.

        Returns:
            True for the events that mixing needs.
        """
        return event in EVENTS

    def apply(self, event: Event, state: Any, logger: Any) -> None:
        """Handle an event. Composer calls it.

        Args:
            event: The current event.
            state: The Trainer's state: its model, optimizers and loss.
            logger: Not used.

        Raises:
            ValueError: If no optimizer trains the method's networks.
        """
        if event == Event.INIT and len(self.mixer.method.modules) > 0:
            state.model.add_module("mixing_networks", self.mixer.method.modules)
        elif event == Event.FIT_START:
            how = "pass it method.modules.parameters() beside the model's"
            self.mixer.check_trained(state.optimizers, how)
            for optimizer in state.optimizers:
                self.mixer.follow(optimizer)
        elif event == Event.EPOCH_START:
            self.mixer.state = NO_STATE
        elif event == Event.BEFORE_FORWARD:
            model = unwrapped(state.model)[0]
            run_instead(model, lambda batch: self._mixed(model, batch))
        elif event == Event.AFTER_LOSS and self.mixed_loss is not None:
            state.loss, self.mixed_loss = self.mixed_loss, None
        elif event == Event.FIT_END and self.recomputes:
            move = state.device.batch_to_device
            loader = state.train_dataloader
            recompute_batchnorm(
                state.model, loader, forward=lambda model, batch: model(move(batch))
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the method's state. Composer saves the model and the random streams.

        Returns:
            The algorithm's state with the entry ``state``, the history of the method.
        """
        return {**super().state_dict(), "state": dict(self.mixer.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint.

        Args:
            state: The result of :meth:`state_dict`.
        """
        self.mixer.state = state["state"]

    def _mixed(self, model: Any, batch: Any) -> Tensor:
        def model_loss(logits: Tensor, target: Tensor) -> Tensor:
            value: Tensor = model.loss(logits, batch_set(copy(batch), self.target_key, target))
            return value

        x, y = batch_get(batch, self.input_key), batch_get(batch, self.target_key)
        with _network(model, batch, self.input_key) as network:
            out = self.mixer.forward(network, x, y)
            self.mixed_loss = out.loss(self.loss or model_loss)
        return out.logits[: len(x)]


@contextmanager
def _network(model: Any, batch: Any, key: Any) -> Iterator[nn.Module]:
    """Yield a module that maps samples to logits: the classifier's, or ``model`` with a hook."""
    if type(model).forward is ComposerClassifier.forward:
        yield model.module
        return
    handle = model.register_forward_pre_hook(
        lambda _, args: (
            (batch_set(copy(batch), key, args[0]),) if isinstance(args[0], Tensor) else None
        )
    )
    try:
        yield model
    finally:
        handle.remove()
