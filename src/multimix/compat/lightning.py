"""Lightning: a mixin for a LightningModule, of ``lightning`` or ``pytorch_lightning``."""

from importlib import import_module
from typing import Any

from torch import Tensor, nn

from ..batch import Criterion
from ..forward import Term
from ..logits import Output
from ..loss import soft_cross_entropy
from ..methods.base import Method
from ..sampling import random_state, set_random_state
from ._mixer import Mixer


class Mixing:
    """Put before ``LightningModule``. ``use_mixing`` once, in ``__init__``; ``mixed`` in ``training_step``.

    Networks of the method become submodules: Lightning moves and saves them, and ``self.parameters()`` has what they learn.
    Checkpoints hold the random stream, so that ``fit(…, ckpt_path=…)`` goes on as if it had not been stopped. What a method
    carries from batch to batch begins anew each epoch.
    """

    training: bool
    trainer: Any
    _mixer: Mixer | None = None

    def use_mixing(
        self, method: Method, *, loss: Criterion = soft_cross_entropy, smoothing: float = 0.0, output: Output | None = None
    ) -> None:
        """Mix by ``method``, trained by ``loss(logits, target)`` on soft targets; other options as in mixed_loss."""
        self._mixer = Mixer(method, loss=loss, smoothing=smoothing, output=output)
        self.mixing_networks = method.modules

    def mixed(self, model: nn.Module, x: Tensor, y: Tensor) -> Term:
        """``loss``, ``logits [K·B, C]`` and ``target [K·B, C]`` of a batch; unmixed, with B rows, outside training."""
        if self._mixer is None:
            raise RuntimeError("say use_mixing(method) in __init__, after super().__init__(), before you call mixed")
        trainer = getattr(self, "_trainer", None)
        if self.training and trainer is not None and not any(hasattr(one, "mixer") for one in trainer.callbacks):
            raise RuntimeError(
                "Mixing must come before LightningModule, and configure_callbacks must return what super() gives, too"
            )
        return self._mixer.term(model, x, y, mix=self.training)

    def configure_callbacks(self) -> list[Any]:
        """Lightning asks for them: what has to happen around epochs, optimiser steps and checkpoints."""
        others = super().configure_callbacks()  # type: ignore[misc]
        # Classes of lightning and pytorch_lightning are not the same: take those of the LightningModule.
        package = next(kind.__module__ for kind in type(self).__mro__ if kind.__name__ == "LightningModule").split(".core")[0]
        return [*others, *([] if self._mixer is None else [_callback(import_module(package).Callback, self._mixer)])]


def _callback(base: Any, mixer: Mixer) -> Any:
    class MixingState(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.mixer = mixer
            self.loaded: dict[str, Any] | None = None

        def state_dict(self) -> dict[str, Any]:
            return {"random_state": random_state(), "carried": dict(mixer.carried)}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loaded = state

        def on_fit_start(self, trainer: Any, module: Any) -> None:
            mixer.carried = {}
            if self.loaded is not None:  # now: soon the loader will draw the order of its samples
                set_random_state(self.loaded["random_state"])
                mixer.carried = self.loaded["carried"]  # of an epoch that goes on, which does not start again

        def on_train_start(self, trainer: Any, module: Any) -> None:
            how = "configure_optimizers must take self.parameters(), not those of the model only"
            mixer.check_trained(trainer.optimizers, how)
            for optimizer in trainer.optimizers:
                mixer.follow(optimizer)

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            mixer.carried = {}

    return MixingState()
