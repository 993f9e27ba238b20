"""fastai: a callback for its Learner."""

from fastai.callback.core import Callback
from fastai.layers import NoneReduce
from torch import Tensor, nn

from ..batch import Criterion
from ..distributed import average_gradients, broadcast_networks
from ..forward import Term
from ..hooks import unwrapped
from ..logits import Output
from ..loss import pair_loss
from ..methods.base import Method, trained_parameters
from ._mixer import Mixer, run_instead


class Mixing(Callback):  # type: ignore[misc]
    """Mixes the batches of the training by ``method``; validation is left alone, and so is the Learner's loss function.

    The loss is that function: (1 − λ) L(y) + λ L(y') where it takes class indices only, as most of fastai's do, else
    L(target) of soft targets; or it is ``loss(logits, target)``. Training metrics see the B rows of the first step, which have
    the least of their partners, and the labels of the batch. For a method with a network of its own make the Learner with
    ``splitter=mixing.splitter``, so that it is trained; ``method.modules.state_dict()`` is yours to save.
    """

    run_valid = False

    def __init__(
        self, method: Method, *, loss: Criterion | None = None, smoothing: float = 0.0, output: Output | None = None
    ) -> None:
        super().__init__()
        self.mixer = Mixer(method, smoothing=smoothing, output=output)
        self.criterion = loss
        self.term: Term | None = None

    def splitter(self, model: nn.Module) -> list[nn.Parameter]:
        """All that is trained, in one group: the model and what the method has to learn."""
        return [*(weight for weight in model.parameters() if weight.requires_grad), *trained_parameters(self.mixer.method)]

    def before_fit(self) -> None:
        """Nothing is left of an earlier training."""
        held = {id(weight) for weight, *_ in self.opt.all_params()}
        if any(id(weight) not in held for weight in trained_parameters(self.mixer.method)):
            name = type(self.mixer.method).__name__
            raise ValueError(f"no optimiser trains the network of {name}: make the Learner with splitter=mixing.splitter")
        self.mixer.method.modules.to(next(self.model.parameters()).device)
        broadcast_networks(self.mixer.method)

    def before_epoch(self) -> None:
        """Nothing is carried from one epoch to the next."""
        self.mixer.carried = {}

    def before_batch(self) -> None:
        """The model, when it is called, mixes."""
        if len(self.xb) != 1 or len(self.yb) != 1:
            raise ValueError(f"mixing needs one input and one label for each sample, got {len(self.xb)} and {len(self.yb)}")
        model, y = unwrapped(self.model)[0], self.yb[0]
        run_instead(model, lambda x: self._mixed(model, x, y))

    def after_loss(self) -> None:
        """The loss of the mixed batch takes the place of that of its first step."""
        if self.term is not None:
            self.learn.loss_grad, self.term = self.term.loss, None
            self.learn.loss = self.learn.loss_grad.clone()

    def before_step(self) -> None:
        """Several processes learn together."""
        average_gradients(self.mixer.method)

    def after_step(self) -> None:
        """The method's networks follow the model."""
        self.mixer.stepped()

    def _mixed(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        function = self.loss_func
        if self.criterion is None and getattr(function, "y_int", False):
            with NoneReduce(function) as rows:
                self.term = self.mixer.term(model, x, y, loss=pair_loss(rows))
        else:
            self.term = self.mixer.term(model, x, y, loss=self.criterion or function)
        return self.term.logits[: len(x)]
