"""Hugging Face transformers: a mixin for the Trainer."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..batchnorm import recompute_batchnorm
from ..core.hooks import unwrapped
from ..core.logits import Output
from ..core.losses import Criterion, soft_cross_entropy
from ..distributed import broadcast_networks
from ..methods.base import Method
from ..output import NO_STATE
from ._mixer import Mixer


class Mixing:
    """Mixin for ``Trainer``: put it first among the bases. Evaluation does not change.

    ``label_smoothing_factor`` of the training arguments applies. Other inputs of the model are
    passed on; those with B rows are repeated for the K steps. The optimizer trains the method's
    networks, and checkpoints hold them and the method's state.

    Args:
        *args: For the Trainer.
        method: A method whose networks exist.
        loss: Maps logits and soft target to a scalar, a mean over rows. It replaces the loss that
            the model computes.
        output: Where the model's result holds the logits.
        input_name: Key of the samples in a batch; None is the model's ``main_input_name``.
        recompute_batchnorm: Call :func:`multimix.recompute_batchnorm` with one epoch of the
            training samples when the training ends. Checkpoints written before have the statistics
            of mixed batches.
        **options: For the Trainer.

    Example::

        class MixingTrainer(Mixing, Trainer): ...

        MixingTrainer(model, arguments, train_dataset=data, method=CutMix(k=5)).train()
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
        recompute_batchnorm: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if getattr(self, "compute_loss_func", None) is not None:
            raise ValueError(
                "compute_loss_func= is not supported with mixing: pass loss=, a function of logits "
                "and soft targets"
            )
        self._mixer = Mixer(method, smoothing=self.args.label_smoothing_factor, output=output)
        self._criterion = loss
        main_input: str = getattr(unwrapped(self.model)[0], "main_input_name", "pixel_values")
        self._input_name = main_input if input_name is None else input_name
        # The loss is a mean, so the Trainer must divide it by the number of accumulated batches.
        self.model_accepts_loss_kwargs, self.loss_is_scaled_for_ga = False, False
        self._resumed: Path | None = None
        self._recomputes = recompute_batchnorm
        method.modules.to(self.args.device)
        self.add_callback(_callback(self._mixer, self))  # type: ignore[attr-defined]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        **options: Any,
    ) -> Any:
        """Compute the loss of a mixed batch in training, otherwise the Trainer's.

        Args:
            model: The model, possibly wrapped.
            inputs: The batch by key, with the samples and ``labels``.
            return_outputs: Also return the model's outputs.
            **options: For the Trainer, in evaluation.

        Returns:
            The loss, or the loss and a dictionary with ``loss`` and ``logits``, K·B rows.

        Raises:
            ValueError: If the batch lacks the samples or the labels.
        """
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, **options)  # type: ignore[misc]
        rest = dict(inputs)
        for name in (self._input_name, "labels"):
            if rest.get(name) is None:
                keys = ", ".join(inputs)
                raise ValueError(
                    f"a batch must have the key {name!r}, got {keys}: pass input_name= if the "
                    "samples have another key"
                )
        x, y = rest.pop(self._input_name), rest.pop("labels")
        with _called_with(unwrapped(model)[0], self._input_name, rest):
            out = self._mixer.forward(model, x, y)
            value = out.loss(self._criterion)
        return (value, {"loss": value, "logits": out.logits}) if return_outputs else value

    def create_optimizer(self, *args: Any, **options: Any) -> Any:
        """Create the optimizer, which also trains the method's networks.

        Args:
            *args: For the Trainer.
            **options: For the Trainer.

        Returns:
            The optimizer.

        Raises:
            ValueError: If the caller's optimizer lacks weights of the method.
        """
        is_given = self.optimizer is not None
        optimizer = super().create_optimizer(*args, **options)  # type: ignore[misc]
        if is_given:
            how = "add method.modules.parameters() to the optimizer that you pass"
            self._mixer.check_trained([optimizer], how)
        missing = self._mixer.untrained([optimizer])
        if missing:
            optimizer.add_param_group({"params": missing, "weight_decay": self.args.weight_decay})
        self._mixer.follow(optimizer, apart=True)
        return optimizer

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any
    ) -> Any:
        """Train, and restore the method's state from a checkpoint.

        Args:
            resume_from_checkpoint: Folder of a checkpoint; True is the last one.
            *args: For the Trainer.
            **options: For the Trainer.

        Returns:
            The Trainer's result.
        """
        folder = resume_from_checkpoint
        if folder is True:
            from transformers.trainer_utils import get_last_checkpoint

            folder = get_last_checkpoint(self.args.output_dir)
        self._resumed = Path(folder) if isinstance(folder, str | Path) else None
        return super().train(resume_from_checkpoint, *args, **options)  # type: ignore[misc]


@contextmanager
def _called_with(model: nn.Module, name: str, rest: Mapping[str, Any]) -> Iterator[None]:
    """Let ``model(x)`` call ``model(name=x, **rest)``, with rows of ``rest`` repeated."""

    def add_inputs(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if not args:
            return None
        (x,) = args
        others = {key: _repeated(value, len(x)) for key, value in rest.items()}
        return (), {name: x, **others, **options}

    handle = model.register_forward_pre_hook(add_inputs, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _repeated(value: Any, rows: int) -> Any:
    if not isinstance(value, Tensor) or value.ndim == 0 or len(value) == 0 or rows % len(value):
        return value
    return value.repeat(rows // len(value), *[1] * (value.ndim - 1))


def _callback(mixer: Mixer, trainer: Any) -> Any:
    from transformers import TrainerCallback

    class MixingState(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            folder, self.state = trainer._resumed, NO_STATE
            broadcast_networks(mixer.method)
            if folder is None:
                return
            if not (folder / "multimix.pt").exists() and len(mixer.method.modules) == 0:
                return  # the checkpoint was written without mixing
            stored = torch.load(folder / "multimix.pt", map_location="cpu", weights_only=True)
            mixer.method.modules.load_state_dict(stored["networks"])
            if not float(stored["epoch"]).is_integer():  # saved within an epoch
                self.state = torch.load(
                    folder / _state_file(args), map_location="cpu", weights_only=True
                )

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if trainer._recomputes:
                recompute_batchnorm(trainer.model, trainer.get_train_dataloader())

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            mixer.state, self.state = self.state, NO_STATE

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if not folder.is_dir():
                return
            torch.save(dict(mixer.state), folder / _state_file(args))
            if args.should_save:
                networks = mixer.method.modules.state_dict()
                torch.save({"networks": networks, "epoch": state.epoch}, folder / "multimix.pt")

    return MixingState()


def _state_file(args: Any) -> str:
    return f"multimix_state_{args.process_index}.pt"
