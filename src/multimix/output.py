"""Forward pass and loss with mixing, at the input or at a hidden layer, for any model."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import EllipsisType, MappingProxyType
from typing import Any

from torch import Generator, Tensor, nn

from .core.batch import HISTORY, Batch, MixedBatch
from .core.checks import can_inspect, check_share, check_whole, checked_labels
from .core.hooks import captured, check_layers, hidden_forward, run
from .core.logits import Output, logits_of
from .core.losses import Criterion, check_scalar, mixed_accuracy, soft_cross_entropy
from .core.plan import Plan
from .core.sampling import make_generator
from .core.targets import are_indices, label_rows
from .methods.base import (
    Method,
    Traits,
    check_given,
    check_method,
    checked_samples,
    choose_method,
    draw_plan,
)

State = Mapping[str, Tensor]
"""Tensors that a method stores for the next batch. Most methods store none."""

NO_STATE: State = MappingProxyType({})


class MixedOutput:
    """The result of :func:`mixed_forward`, or of one part of :func:`mixed_parts`.

    Attributes:
        plan: The plan that was applied.
        target: ``[K·B, C]`` soft targets, mixed with the same shares as the samples.
        state: Pass it as ``state=`` with the next batch. Complete after the last part.
    """

    _has_warned = False

    def __init__(self, mixed: MixedBatch, method: Method | None, state: State) -> None:
        self.plan = mixed.plan
        self.target = mixed.target
        self.state = state
        self._mixed = mixed
        self._method = method
        self._logits_read = self._loss_called = False

    @property
    def logits(self) -> Tensor:
        """``[K·B, C]``: the model's logits for the mixed batch, with their graph."""
        self._logits_read = True
        return self._mixed.logits

    def loss(self, criterion: Criterion = soft_cross_entropy) -> Tensor:
        """Compute the training loss, including the terms that the method adds.

        Args:
            criterion: Maps logits and soft target, both ``[K·B, C]``, to a scalar.

        Returns:
            A scalar. The losses of all parts of :func:`mixed_parts` add up to the loss of the
            whole batch.

        Raises:
            TypeError: If ``criterion`` is not callable.
            ValueError: If ``criterion`` does not return a scalar tensor.
        """
        if not callable(criterion) or isinstance(criterion, type):
            name = getattr(criterion, "__name__", type(criterion).__name__)
            hint = f": write {name}()" if isinstance(criterion, type) else ""
            raise TypeError(f"criterion must be a function of logits and target, got {name}{hint}")
        self._loss_called = True

        def checked(logits: Tensor, target: Tensor) -> Tensor:
            return check_scalar(criterion(logits, target))

        # Unmixed batches get no added terms, not even the clean loss.
        if self._method is None:
            return self._mixed.share * checked(self._mixed.logits, self._mixed.target)
        return self._method.loss(self._mixed, checked)

    def accuracy(self) -> Tensor:
        """Compute the mean target mass on the predicted class: see :func:`.mixed_accuracy`.

        Returns:
            A scalar without a graph.
        """
        return mixed_accuracy(self._mixed.logits.detach(), self.target)

    def __repr__(self) -> str:
        return f"MixedOutput({self.plan}, logits={list(self._mixed.logits.shape)})"

    def __del__(self) -> None:
        is_training = self._logits_read and self._mixed.logits.requires_grad
        if is_training and not self._loss_called and self._method is not None:
            _warn_about_missing_loss(self._method)


def _warn_about_missing_loss(method: Method) -> None:
    """Warn once per process if the method adds loss terms but ``loss`` was never called."""
    if method.traits.own_loss is None or MixedOutput._has_warned:
        return
    MixedOutput._has_warned = True
    warnings.warn(
        f"{type(method).__name__} {method.traits.own_loss}, which is missing from a loss computed "
        "from `logits`: use out.loss(criterion)",
        stacklevel=3,
    )


class MixedParts(Iterator[MixedOutput]):
    """Iterator of :func:`mixed_parts`. Its length is the number of parts."""

    def __init__(
        self,
        batch: Batch,
        plan: Plan,
        steps: int | None,
        method: Method | None,
        *,
        keeps_history: bool,
    ) -> None:
        self._batch, self._method = batch, method
        self._plans = [plan] if steps is None else plan.split(steps)
        self._k = plan.k
        self._traits = Traits() if method is None else method.traits
        self._keeps_history = keeps_history
        self._state: dict[str, Tensor] = {}
        self._done = 0

    def __len__(self) -> int:
        return len(self._plans)

    def __next__(self) -> MixedOutput:
        if self._done == len(self._plans):
            raise StopIteration
        plan = self._plans[self._done]
        is_first = self._done == 0
        self._done += 1
        batch, layer = self._batch, self._traits.watches
        watched: AbstractContextManager[list[Any]] = nullcontext([])
        if layer is not None:
            watched = captured(batch.model, layer)
        with watched as features:
            logits = run_plan(batch.model, plan, batch.x, output=batch.output)
        target = _mixed_target(batch, plan, logits)
        share = len(logits) / (self._k * len(batch.x))
        mixed = MixedBatch(batch, plan, logits, target, share, is_first, *features)
        if self._keeps_history:
            self._state.update(mixed.next_history())
        return MixedOutput(mixed, self._method, dict(self._state) if self._state else NO_STATE)


def mixed_forward(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    num_classes: int | None = None,
    smoothing: float = 0.0,
    output: Output | None = None,
    generator: Generator | None = None,
    state: State | EllipsisType | None = ...,
    **given: Any,
) -> MixedOutput:
    """Run a model on K interpolations of every sample.

    The call is the same for every method. If the method needs saliency and the caller does not pass
    it, the model computes it (:func:`multimix.input_saliency`). Layers before a hidden mixing layer
    run once, on B samples.

    Args:
        model: Any module that maps a batch to logits.
        method: A mixing method, such as ``CutMix(k=5)``.
        x: ``[B, …]`` samples, not modified.
        y: Class indices ``[B]``, probabilities or multi-hot rows ``[B, C]``, or real values.
        num_classes: Number of classes. Taken from the logits if None.
        smoothing: Label smoothing ε.
        output: Selects the logits in the model's result: a key, an attribute, a position or a
            function. None accepts a tensor, or a mapping with the key ``"logits"``.
        generator: A CPU generator for all draws. None draws from torch's global CPU stream.
        state: For methods that mix with the previous batch: ``None`` with the first batch, then
            ``out.state`` of the previous call.
        **given: Keywords of ``method.plan``, such as ``partner``, ``lam`` or ``saliency``.

    Returns:
        The output. Call ``out.loss(criterion).backward()``.

    Raises:
        TypeError: If ``method`` is not a mixing method or does not accept a keyword.
        ValueError: If labels, shapes, devices or layer names are invalid. These are checked before
            anything is drawn.
        MixingError: If the model fails on the mixed batch, or hooks cannot reach the layer.

    Example::

        out = mixed_forward(model, CutMix(k=5), x, y)
        out.loss(torch.nn.functional.cross_entropy).backward()
    """
    options: dict[str, Any] = {"num_classes": num_classes, "smoothing": smoothing, "output": output}
    parts = mixed_parts(
        model, method, x, y, steps=None, generator=generator, state=state, **options, **given
    )
    return next(parts)


def mixed_parts(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    steps: int | None = 1,
    num_classes: int | None = None,
    smoothing: float = 0.0,
    output: Output | None = None,
    generator: Generator | None = None,
    state: State | EllipsisType | None = ...,
    **given: Any,
) -> MixedParts:
    """Run the K interpolations in parts of at most ``steps`` to bound activation memory.

    Each part runs its own forward pass when the iterator reaches it, and the part losses sum to the
    loss of the whole batch. The first part includes loss terms that are computed once per batch,
    such as a clean loss.

    Args:
        model: Any module that maps a batch to logits.
        method: A mixing method.
        x: ``[B, …]`` samples.
        y: Labels, as in :func:`mixed_forward`.
        steps: Interpolations per part. None runs all K at once.
        num_classes: As in :func:`mixed_forward`.
        smoothing: As in :func:`mixed_forward`.
        output: As in :func:`mixed_forward`.
        generator: As in :func:`mixed_forward`.
        state: As in :func:`mixed_forward`.
        **given: As in :func:`mixed_forward`.

    Returns:
        An iterator over ``ceil(K / steps)`` outputs; ``len()`` returns their number. Call
        ``part.loss(criterion).backward()`` on each.

    Raises:
        TypeError: As in :func:`mixed_forward`.
        ValueError: As in :func:`mixed_forward`.
        MixingError: As in :func:`mixed_forward`; model failures are raised by the iterator.

    Note:
        Batch-norm layers see ``steps * B`` rows at a time, so running statistics differ from a
        single pass. Layers before a hidden mixing layer run once per part.
    """
    check_method(method)
    if not callable(model):
        raise TypeError(f"model must be an nn.Module or a function, got {type(model).__name__}")
    check_whole("steps", steps, none=True)
    traits = method.traits
    x = checked_samples(method, x, traits.mixes_at)
    y = checked_labels(y, x)
    check_share("smoothing", smoothing)
    if traits.mixes_at != (None,):
        check_layers(model, traits.mixes_at)
    history = traits.history
    given.update(_history(method, history, state, given))
    check_given(method, traits.accepts, given)
    target = y
    check_whole("num_classes", num_classes, none=True)
    if num_classes is not None or not are_indices(y):
        target = label_rows(y, num_classes, smoothing)
    elif can_inspect(y) and int(y.long().min()) < 0:  # torch has no minimum of uint16
        raise ValueError(f"class indices must be at least 0, got {int(y.min())}")
    generator = make_generator(generator)
    batch = Batch(model, x, y, target, generator, given, output, smoothing)
    batch, plan, chosen = plan_batch(method, batch)
    return MixedParts(batch, plan, steps, chosen, keeps_history=len(history) > 0)


def _history(
    method: Method,
    history: tuple[str, ...],
    state: State | EllipsisType | None,
    given: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the entries of ``state`` that the method takes as history keywords."""
    if isinstance(state, EllipsisType):
        if history and not any(name in given for name in history):
            raise ValueError(
                f"{type(method).__name__} mixes with the previous batch: pass state=None with the "
                "first batch, then state=out.state"
            )
        return NO_STATE
    if state is not None and not isinstance(state, Mapping):
        raise TypeError(f"state must be None or out.state, got {type(state).__name__}")
    for name in state or NO_STATE:
        if name not in HISTORY:
            raise ValueError(f"state must be out.state of the previous call, got the key {name!r}")
    return {name: value for name, value in (state or NO_STATE).items() if name in history}


def plan_batch(method: Method, batch: Batch) -> tuple[Batch, Plan, Method | None]:
    """Choose the method for this batch, compute its inputs with the model, and draw the plan.

    Args:
        method: A mixing method, possibly one that chooses among several methods.
        batch: The validated batch.

    Returns:
        The batch with the method's inputs, the plan, and the chosen method. The method is None if
        the batch stays unmixed.
    """
    chosen = choose_method(method, batch.generator)
    if chosen is not None:
        batch = replace(batch, given={**chosen.inputs(batch), **batch.given})
    return batch, draw_plan(chosen, batch.x, batch.generator, batch.given), chosen


def run_plan(model: nn.Module, plan: Plan, x: Tensor, *, output: Output | None = None) -> Tensor:
    """Run a model on a batch that a given plan mixes.

    Args:
        model: Any module that maps a batch to logits.
        plan: A plan from ``method.plan``.
        x: ``[B, …]`` samples.
        output: As in :func:`mixed_forward`.

    Returns:
        ``[K·B, …]`` logits.

    Raises:
        ValueError: If ``x`` does not match the plan, or the model does not return K·B rows.
        MixingError: If the model fails on the mixed batch, or hooks cannot reach the layer.
    """
    rows = plan.k * len(x)
    if plan.layer is None:
        result = run(model, plan.mix(x), f"{rows} mixed samples")
    else:
        result = hidden_forward(model, plan, x)
    logits = logits_of(result, output)
    if logits.ndim == 0 or len(logits) != rows:
        suffix = f" after mixing at layer {plan.layer!r}" if plan.layer else ""
        raise ValueError(
            f"the model must return {rows} rows for {plan.k} interpolations of {len(x)} samples, "
            f"got shape {list(logits.shape)}{suffix}"
        )
    return logits


def _mixed_target(batch: Batch, plan: Plan, logits: Tensor) -> Tensor:
    if are_indices(batch.target) and (logits.ndim != 2 or logits.shape[1] < 2):
        raise ValueError(
            f"class indices need logits [N, C] with at least 2 classes, got {list(logits.shape)}: "
            "pass y.float() for real values, y.float().unsqueeze(1) for one logit"
        )
    target = plan.mix_rows(batch.target_rows(logits.shape[-1]))
    if logits.shape != target.shape:
        raise ValueError(
            f"logits and target must have the same shape, got {list(logits.shape)} and "
            f"{list(target.shape)}: pass y.long() for class indices; for other losses use "
            "multimix.plans.run_plan and plan.mix_target"
        )
    return target
