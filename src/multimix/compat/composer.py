"""Composer (mosaicml): an algorithm for its Trainer."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from composer.core import Algorithm, Event
from composer.models import ComposerClassifier
from composer.utils.batch_helpers import batch_get, batch_set
from torch import Tensor, nn

from ..batch import Criterion
from ..forward import Term
from ..hooks import unwrapped
from ..methods.base import Method
from ._mixer import Mixer, run_instead


class Mixing(Algorithm):  # type: ignore[misc]
    """Mixes every microbatch of the training by ``method``; evaluation is left alone.

    The loss is that of the ComposerModel, which must take soft targets ``[K·B, C]`` (those of Composer do), or ``loss(logits,
    target)``. Training metrics are given the B rows of the first step, which have the least of their partners, and the labels of
    the batch. ``input_key`` and ``target_key`` find samples and labels in a batch as in Composer's own algorithms.

    Networks of the method become a submodule of the model, saved with it; hand ``method.modules.parameters()`` to the optimiser.
    """

    def __init__(
        self,
        method: Method,
        *,
        loss: Criterion | None = None,
        smoothing: float = 0.0,
        input_key: Any = 0,
        target_key: Any = 1,
    ) -> None:
        self.mixer = Mixer(method, smoothing=smoothing)
        self.loss, self.input_key, self.target_key = loss, input_key, target_key
        self.term: Term | None = None

    def match(self, event: Event, state: Any) -> bool:
        """The events it waits for."""
        return event in (Event.INIT, Event.FIT_START, Event.EPOCH_START, Event.BEFORE_FORWARD, Event.AFTER_LOSS)

    def apply(self, event: Event, state: Any, logger: Any) -> None:
        """What happens at an event."""
        if event == Event.INIT and len(self.mixer.method.modules) > 0:
            state.model.add_module("mixing_networks", self.mixer.method.modules)
        elif event == Event.FIT_START:
            self.mixer.check_trained(state.optimizers, "hand it method.modules.parameters() beside those of the model")
            for optimizer in state.optimizers:
                self.mixer.follow(optimizer)
        elif event == Event.EPOCH_START:
            self.mixer.carried = {}
        elif event == Event.BEFORE_FORWARD:
            model = unwrapped(state.model)[0]
            run_instead(model, lambda batch: self._mixed(model, batch))
        elif event == Event.AFTER_LOSS and self.term is not None:
            state.loss, self.term = self.term.loss, None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the model and the random streams, which Composer saves."""
        return {**super().state_dict(), "carried": dict(self.mixer.carried)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.mixer.carried = state["carried"]

    def _mixed(self, model: Any, batch: Any) -> Tensor:
        def own_loss(logits: Tensor, target: Tensor) -> Tensor:
            found: Tensor = model.loss(logits, batch_set(copy(batch), self.target_key, target))
            return found

        x, y = batch_get(batch, self.input_key), batch_get(batch, self.target_key)
        with _network(model, batch, self.input_key) as network:
            self.term = self.mixer.term(network, x, y, loss=self.loss or own_loss)
        return self.term.logits[: len(x)]


@contextmanager
def _network(model: Any, batch: Any, key: Any) -> Iterator[nn.Module]:
    """What makes logits of samples: the network of a classifier; else ``model``, inside given a batch with those samples."""
    if type(model).forward is ComposerClassifier.forward:
        yield model.module
        return
    handle = model.register_forward_pre_hook(
        lambda _, args: (batch_set(copy(batch), key, args[0]),) if isinstance(args[0], Tensor) else None
    )
    try:
        yield model
    finally:
        handle.remove()
