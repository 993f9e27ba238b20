"""Hugging Face transformers: a mixin for the Trainer."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..batch import Criterion
from ..distributed import broadcast_networks
from ..hooks import unwrapped
from ..logits import Output
from ..loss import soft_cross_entropy
from ..methods.base import Method
from ._mixer import Mixer


class Mixing:
    """Put before ``Trainer``, which then takes ``method=``; training batches are mixed, evaluation is left alone.

    The loss is ``loss(logits, target)`` on soft targets, a mean over rows, whatever the model would compute by itself;
    ``label_smoothing_factor`` of the arguments is kept. ``input_name`` is the key of the samples in a batch, by default what the
    model calls its main input; other inputs are handed on, those with B rows repeated for the K steps. Networks of the method
    are trained by the optimiser and saved with checkpoints, as is what it carries from batch to batch within an epoch; its random
    stream is torch's, which the Trainer saves.
    """

    args: Any
    model: Any
    optimizer: Any
    accelerator: Any

    def __init__(
        self,
        *args: Any,
        method: Method,
        loss: Criterion = soft_cross_entropy,
        output: Output | None = None,
        input_name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if getattr(self, "compute_loss_func", None) is not None:
            raise ValueError(
                "with mixing the loss is a function of logits and soft targets: use loss= instead of compute_loss_func="
            )
        self._mixer = Mixer(method, loss=loss, smoothing=self.args.label_smoothing_factor, output=output)
        own_name: str = getattr(unwrapped(self.model)[0], "main_input_name", "pixel_values")
        self._input_name = own_name if input_name is None else input_name
        # The loss is the mean of a batch: the Trainer has to divide it by the number of batches that it accumulates.
        self.model_accepts_loss_kwargs, self.loss_is_scaled_for_ga = False, False
        self._resumed: Path | None = None
        method.modules.to(self.args.device)
        self.add_callback(_callback(self._mixer, self))  # type: ignore[attr-defined]

    def compute_loss(self, model: nn.Module, inputs: Mapping[str, Any], return_outputs: bool = False, **options: Any) -> Any:
        """The loss of a mixed batch in training; else what the Trainer computes."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, **options)  # type: ignore[misc]
        rest = dict(inputs)
        for name in (self._input_name, "labels"):
            if rest.get(name) is None:
                hint = "" if name == "labels" else ": name the samples with input_name="
                raise ValueError(f"mixing needs {name!r} in a batch, which has {', '.join(inputs) or 'nothing'}{hint}")
        x, y = rest.pop(self._input_name), rest.pop("labels")
        with _called_with(unwrapped(model)[0], self._input_name, rest):
            term = self._mixer.term(model, x, y)
        return (term.loss, {"loss": term.loss, "logits": term.logits}) if return_outputs else term.loss

    def create_optimizer(self, *args: Any, **options: Any) -> Any:
        """The Trainer's optimiser, which also trains the networks of the method."""
        given = self.optimizer is not None
        optimizer = super().create_optimizer(*args, **options)  # type: ignore[misc]
        if given:
            self._mixer.check_trained([optimizer], "add method.modules.parameters() to the optimiser that you hand over")
        missing = self._mixer.untrained([optimizer])
        if missing:
            optimizer.add_param_group({"params": missing, "weight_decay": self.args.weight_decay})
        self._mixer.follow(optimizer, apart=True)
        return optimizer

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any) -> Any:
        """As the Trainer's; from a checkpoint the method goes on, too."""
        folder = resume_from_checkpoint
        if folder is True:
            from transformers.trainer_utils import get_last_checkpoint

            folder = get_last_checkpoint(self.args.output_dir)
        self._resumed = Path(folder) if isinstance(folder, str | Path) else None
        return super().train(resume_from_checkpoint, *args, **options)  # type: ignore[misc]


@contextmanager
def _called_with(model: nn.Module, name: str, rest: Mapping[str, Any]) -> Iterator[None]:
    """Inside, ``model(x)`` is ``model(name=x, **rest)``, what ``rest`` has by rows repeated to those of x."""

    def hand_in(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if not args:
            return None
        (x,) = args
        return (), {name: x, **{key: _repeated(value, len(x)) for key, value in rest.items()}, **options}

    handle = model.register_forward_pre_hook(hand_in, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _repeated(value: Any, rows: int) -> Any:
    is_batch = isinstance(value, Tensor) and value.ndim > 0 and 0 < len(value) < rows and rows % len(value) == 0
    return value.repeat(rows // len(value), *[1] * (value.ndim - 1)) if is_batch else value


def _callback(mixer: Mixer, trainer: Any) -> Any:
    from transformers import TrainerCallback

    class MixingState(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            folder, self.carried = trainer._resumed, {}
            broadcast_networks(mixer.method)
            if folder is None or not ((folder / "multimix.pt").exists() or len(mixer.method.modules) > 0):
                return  # begun anew, or before there was mixing
            stored = torch.load(folder / "multimix.pt", map_location="cpu", weights_only=True)
            mixer.method.modules.load_state_dict(stored["networks"])
            if not float(stored["epoch"]).is_integer():  # in the middle of one
                self.carried = torch.load(folder / _own(args), map_location="cpu", weights_only=True)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            mixer.carried, self.carried = self.carried, {}

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if not folder.is_dir():
                return
            torch.save(dict(mixer.carried), folder / _own(args))
            if args.should_save:
                torch.save({"networks": mixer.method.modules.state_dict(), "epoch": state.epoch}, folder / "multimix.pt")

    return MixingState()


def _own(args: Any) -> str:
    return f"multimix_carried_{args.process_index}.pt"
