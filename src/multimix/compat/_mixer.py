"""What the adapters share: a method in use, with what it carries from one batch to the next."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..batch import Criterion
from ..distributed import average_gradients
from ..forward import Term, mixed_terms
from ..logits import Output
from ..loss import soft_cross_entropy
from ..methods.base import Method, check_method, descriptions, trained_parameters
from ..methods.no_mix import NoMix


class Mixer:
    """``method`` with the loss it is trained by. ``carried`` is for the next batch; empty it when an epoch begins.

    Draws are made from torch's CPU stream (:func:`multimix.random_state`), which belongs in the checkpoint, as do ``carried`` and
    the networks of the method.
    """

    def __init__(
        self, method: Method, *, loss: Criterion = soft_cross_entropy, smoothing: float = 0.0, output: Output | None = None
    ) -> None:
        check_method(method)
        for name in descriptions(method):
            raise ValueError(
                f"{type(method).__name__} has only the description of its {name}: hand over method.bind(model, images)"
            )
        self.method = method
        self.loss = loss
        self.smoothing = smoothing
        self.output = output
        self.carried: Mapping[str, Tensor] = {}
        self._model: nn.Module | None = None

    def term(self, model: nn.Module, x: Tensor, y: Tensor, *, mix: bool = True, loss: Criterion | None = None) -> Term:
        """The loss of a batch with its logits and targets: mixed, or plain without ``mix``."""
        carried: dict[str, Any] = {name: value.to(x.device) for name, value in self.carried.items()} if mix else {}
        (part,) = mixed_terms(
            model,
            self.method if mix else NoMix(),
            x,
            y,
            loss=loss or self.loss,
            smoothing=self.smoothing,
            output=self.output,
            **carried,
        )
        found = part()
        if mix:
            self.carried, self._model = found.carried, model
        return found

    def untrained(self, optimizers: Iterable[Optimizer]) -> list[nn.Parameter]:
        """The weights of the method's networks that learn, and that none of ``optimizers`` holds."""
        held = {id(weight) for optimizer in optimizers for group in optimizer.param_groups for weight in group["params"]}
        return [weight for weight in trained_parameters(self.method) if id(weight) not in held]

    def check_trained(self, optimizers: Iterable[Optimizer], how: str) -> None:
        """Raise ValueError with ``how`` to mend it if an optimiser lacks what the method has to learn."""
        if self.untrained(optimizers):
            raise ValueError(f"no optimiser trains the network of {type(self.method).__name__}: {how}")

    def follow(self, optimizer: Any, *, apart: bool = False) -> None:
        """After each step of ``optimizer`` the networks of the method follow the model.

        Where they are ``apart`` from the module that the framework trains, it neither averages their gradients over processes nor
        clears them: that is done here.
        """
        optimizer = getattr(optimizer, "optimizer", optimizer)  # inside Accelerate's
        if getattr(optimizer, "multimix_mixer", None) is self:
            return  # trained before, and now further
        optimizer.multimix_mixer = self
        if apart:
            optimizer.register_step_pre_hook(lambda *_: average_gradients(self.method))
        optimizer.register_step_post_hook(lambda *_: self.stepped(clear=apart))

    def stepped(self, *, clear: bool = False) -> None:
        """The optimiser has made a step."""
        if self._model is not None:
            self.method.after_step(self._model)
        for weight in trained_parameters(self.method) if clear else ():
            weight.grad = None


def run_instead(model: nn.Module, forward: Callable[..., Any]) -> None:
    """The next call of ``model``, if it is in training mode, runs ``forward``, which may call ``model`` itself.

    So mixing happens when the framework calls the model, under its autocast and inside DistributedDataParallel's pass.
    """
    own = model.__dict__.get("forward")

    def once(*args: Any, **options: Any) -> Any:
        if own is None:
            del model.forward
        else:
            model.forward = own
        return forward(*args, **options) if model.training else model.forward(*args, **options)

    model.forward = once
