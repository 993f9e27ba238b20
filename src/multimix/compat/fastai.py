"""fastai: a callback for its Learner."""

from fastai.callback.core import Callback
from fastai.layers import NoneReduce
from torch import Tensor, nn

from ..core.hooks import unwrapped
from ..core.logits import Output
from ..core.losses import Criterion, pair_loss
from ..distributed import average_gradients, broadcast_networks
from ..methods.base import Method, trained_parameters
from ..output import NO_STATE
from ._mixer import Mixer, run_instead


class Mixing(Callback):  # type: ignore[misc]
    """Mix every training batch. Validation does not change.

    Training metrics receive the B rows of the first step and the labels of the batch. For a method
    with networks, create the Learner with ``splitter=mixing.splitter`` and save
    ``method.modules.state_dict()`` yourself.

    Args:
        method: A method whose networks exist.
        loss: Maps logits and soft target to a scalar. None uses the Learner's loss function:
            (1 − λ) L(y) + λ L(y') if it takes class indices only, as most of fastai's do.
        smoothing: Label smoothing ε.
        output: Where the model's result holds the logits.

    Example::

        Learner(dls, model, cbs=Mixing(CutMix(k=5))).fit(1)
    """

    run_valid = False

    def __init__(
        self,
        method: Method,
        *,
        loss: Criterion | None = None,
        smoothing: float = 0.0,
        output: Output | None = None,
    ) -> None:
        super().__init__()
        self.mixer = Mixer(method, smoothing=smoothing, output=output)
        self.criterion = loss
        self.mixed_loss: Tensor | None = None

    def splitter(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the trained weights of the model and of the method, in one group.

        Args:
            model: The Learner's model.

        Returns:
            The weights that require gradients, for ``Learner(splitter=)``.
        """
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        return weights + trained_parameters(self.mixer.method)

    def before_fit(self) -> None:
        """Check that the optimizer trains the method's networks, and move them.

        Raises:
            ValueError: If the optimizer lacks weights of the method.
        """
        trained = {id(weight) for weight, *_ in self.opt.all_params()}
        if any(id(weight) not in trained for weight in trained_parameters(self.mixer.method)):
            name = type(self.mixer.method).__name__
            raise ValueError(
                f"no optimizer trains the network of {name}: create the Learner with "
                "splitter=mixing.splitter"
            )
        self.mixer.method.modules.to(next(self.model.parameters()).device)
        broadcast_networks(self.mixer.method)

    def before_epoch(self) -> None:
        """Reset the state."""
        self.mixer.state = NO_STATE

    def before_batch(self) -> None:
        """Let the next call of the model mix.

        Raises:
            ValueError: If the batch has several inputs or labels per sample.
        """
        if len(self.xb) != 1 or len(self.yb) != 1:
            got = f"{len(self.xb)} and {len(self.yb)}"
            raise ValueError(f"a batch must have one input and one label per sample, got {got}")
        model, y = unwrapped(self.model)[0], self.yb[0]
        run_instead(model, lambda x: self._mixed(model, x, y))

    def after_loss(self) -> None:
        """Replace the loss of the first step by that of the mixed batch."""
        if self.mixed_loss is not None:
            self.learn.loss_grad, self.mixed_loss = self.mixed_loss, None
            self.learn.loss = self.learn.loss_grad.clone()

    def before_step(self) -> None:
        """Average the gradients of the method's networks over processes."""
        average_gradients(self.mixer.method)

    def after_step(self) -> None:
        """Update the method's networks."""
        self.mixer.stepped()

    def _mixed(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        function = self.loss_func
        out = self.mixer.forward(model, x, y)
        if self.criterion is None and getattr(function, "y_int", False):
            with NoneReduce(function) as rows:
                self.mixed_loss = out.loss(pair_loss(rows))
        else:
            self.mixed_loss = out.loss(self.criterion or function)
        return out.logits[: len(x)]
