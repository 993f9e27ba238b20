"""Lightning: a mixin for a LightningModule, of ``lightning`` or ``pytorch_lightning``."""

from importlib import import_module
from typing import Any

from torch import Tensor, nn

from ..batchnorm import recompute_batchnorm
from ..core.logits import Output
from ..core.sampling import random_state, set_random_state
from ..methods.base import Method
from ..output import NO_STATE, MixedOutput
from ._mixer import Mixer


class Mixing:
    """Mixin for a LightningModule: put it first among the bases.

    Call ``use_mixing`` once, in ``__init__``, and ``mixed`` in ``training_step``. Networks of the
    method become submodules, which Lightning moves and saves, and ``self.parameters()`` includes
    them. Checkpoints hold the random stream, so ``fit(…, ckpt_path=…)`` continues exactly. The
    method's state begins anew each epoch.
    """

    training: bool
    trainer: Any
    _mixer: Mixer | None = None
    _recomputes = False

    def use_mixing(
        self,
        method: Method,
        *,
        smoothing: float = 0.0,
        output: Output | None = None,
        recompute_batchnorm: bool = False,
    ) -> None:
        """Choose the method.

        Args:
            method: A method whose networks exist.
            smoothing: Label smoothing ε.
            output: Where the model's result holds the logits.
            recompute_batchnorm: Call :func:`multimix.recompute_batchnorm` with one epoch of the
                training loader when the training ends. Checkpoints written before have the
                statistics of mixed batches.
        """
        self._mixer = Mixer(method, smoothing=smoothing, output=output)
        self._recomputes = recompute_batchnorm
        self.mixing_networks = method.modules

    def mixed(self, model: nn.Module, x: Tensor, y: Tensor) -> MixedOutput:
        """Run ``model`` on a batch, mixed in training and unmixed, with B rows, otherwise.

        Args:
            model: The network that maps samples to logits.
            x: ``[B, …]`` samples.
            y: Labels.

        Returns:
            The output. Return ``out.loss(criterion)`` from ``training_step``.

        Raises:
            RuntimeError: If ``use_mixing`` was not called, or the callbacks are missing.
        """
        if self._mixer is None:
            raise RuntimeError("call use_mixing(method) in __init__ before mixed")
        trainer: Any = getattr(self, "_trainer", None)
        is_fitting = self.training and trainer is not None
        if is_fitting and not any(hasattr(callback, "mixer") for callback in trainer.callbacks):
            raise RuntimeError(
                "Mixing must come before LightningModule in the bases, and configure_callbacks "
                "must return the callbacks of super()"
            )
        return self._mixer.forward(model, x, y, mix=self.training)

    def configure_callbacks(self) -> list[Any]:
        """Return the callbacks for epochs, optimizer steps and checkpoints. Lightning calls it."""
        others = super().configure_callbacks()  # type: ignore[misc]
        if self._mixer is None:
            return [*others]
        # lightning and pytorch_lightning have different classes: use those of the LightningModule.
        bases = {kind.__name__: kind.__module__ for kind in type(self).__mro__}
        package = import_module(bases["LightningModule"].split(".core")[0])
        return [*others, _callback(package.Callback, self._mixer, self._recomputes)]


def _callback(base: Any, mixer: Mixer, recomputes: bool) -> Any:
    class MixingState(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.mixer = mixer
            self.loaded: dict[str, Any] | None = None

        def state_dict(self) -> dict[str, Any]:
            return {"random_state": random_state(), "state": dict(mixer.state)}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loaded = state

        def on_fit_start(self, trainer: Any, module: Any) -> None:
            mixer.state = NO_STATE
            if self.loaded is not None:  # before the loader draws the order of its samples
                set_random_state(self.loaded["random_state"])
                mixer.state = self.loaded["state"]

        def on_train_start(self, trainer: Any, module: Any) -> None:
            how = "configure_optimizers must use self.parameters(), not only the model's"
            mixer.check_trained(trainer.optimizers, how)
            for optimizer in trainer.optimizers:
                mixer.follow(optimizer)

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            mixer.state = NO_STATE

        def on_train_end(self, trainer: Any, module: Any) -> None:
            if recomputes and mixer.model is not None:
                recompute_batchnorm(mixer.model, trainer.train_dataloader)

    return MixingState()
