"""A method in use, with its state from batch to batch; shared by the adapters."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..core.logits import Output
from ..distributed import average_gradients
from ..methods.base import Method, check_method, descriptions, trained_parameters
from ..methods.no_mix import NoMix
from ..output import NO_STATE, MixedOutput, State, mixed_forward


class Mixer:
    """A method in use.

    Draws come from torch's CPU stream (``multimix.random.random_state``), which belongs in the
    checkpoint, as do ``state`` and the networks of the method.

    Args:
        method: A method whose networks exist.
        smoothing: Label smoothing ε.
        output: Where the model's result holds the logits.

    Attributes:
        state: For the next batch. Reset it to ``NO_STATE`` when an epoch begins.
        model: The model of the last mixed batch.
    """

    def __init__(
        self, method: Method, *, smoothing: float = 0.0, output: Output | None = None
    ) -> None:
        check_method(method)
        for name in descriptions(method):
            raise ValueError(
                f"{type(method).__name__} only describes its {name}: pass "
                "method.bind(model, images)"
            )
        self.method = method
        self.smoothing = smoothing
        self.output = output
        self.state: State = NO_STATE
        self.model: nn.Module | None = None

    def forward(self, model: nn.Module, x: Tensor, y: Tensor, *, mix: bool = True) -> MixedOutput:
        """Run ``model`` on a batch: mixed, or plain without ``mix``."""
        options: dict[str, Any] = {"smoothing": self.smoothing, "output": self.output}
        if not mix:
            return mixed_forward(model, NoMix(), x, y, **options)
        state = {name: value.to(x.device) for name, value in self.state.items()}
        out = mixed_forward(model, self.method, x, y, state=state, **options)
        self.state, self.model = out.state, model
        return out

    def untrained(self, optimizers: Iterable[Optimizer]) -> list[nn.Parameter]:
        """Return trainable weights of the method's networks that no optimizer has."""
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        trained = {id(weight) for group in groups for weight in group["params"]}
        return [weight for weight in trained_parameters(self.method) if id(weight) not in trained]

    def check_trained(self, optimizers: Iterable[Optimizer], how: str) -> None:
        """Raise ValueError, with the fix ``how``, if no optimizer trains the networks."""
        if self.untrained(optimizers):
            name = type(self.method).__name__
            raise ValueError(f"no optimizer trains the network of {name}: {how}")

    def follow(self, optimizer: Any, *, apart: bool = False) -> None:
        """Update the method's networks after each step of ``optimizer``.

        Args:
            optimizer: The optimizer of the model, possibly inside Accelerate's.
            apart: The networks are no submodule of what the framework trains: also average their
                gradients over processes and clear them.
        """
        optimizer = getattr(optimizer, "optimizer", optimizer)
        if getattr(optimizer, "multimix_mixer", None) is self:
            return
        optimizer.multimix_mixer = self
        if apart:
            optimizer.register_step_pre_hook(lambda *_: average_gradients(self.method))
        optimizer.register_step_post_hook(lambda *_: self.stepped(clear=apart))

    def stepped(self, *, clear: bool = False) -> None:
        """Call after an optimizer step."""
        if self.model is not None:
            self.method.after_step(self.model)
        for weight in trained_parameters(self.method) if clear else ():
            weight.grad = None


def run_instead(model: nn.Module, forward: Callable[..., Any]) -> None:
    """Let the next training-mode call of ``model`` run ``forward``, which may call ``model``.

    So mixing happens when the framework calls the model, under its autocast and inside the forward
    pass of DistributedDataParallel.
    """
    original = model.__dict__.get("forward")

    def once(*args: Any, **options: Any) -> Any:
        if original is None:
            del model.forward
        else:
            model.forward = original
        return forward(*args, **options) if model.training else model.forward(*args, **options)

    model.forward = once
