"""A forward pass with mixing, on the input or at a hidden layer, for any model."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from .batch import Batch, Criterion, Mixed, are_indices
from .checks import can_inspect, check_batch, check_finite, check_labels, check_share, check_whole, plain_labels
from .hooks import check_layers
from .logits import Output
from .loss import one_number, soft_cross_entropy
from .methods.base import Method, check_given, check_method, chosen_method, chosen_plan, plain_samples
from .plan import Plan
from .sampling import resolved
from .target import soft_target


def mixed_logits(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    num_classes: int | None = None,
    smoothing: float = 0.0,
    output: Output | None = None,
    generator: Generator | None = None,
    **given: Any,
) -> tuple[Tensor, Tensor]:
    """``logits [K·B, C]`` of the mixed batch and their ``target [K·B, C]``: the same call for every method.

    ``y`` may be class indices ``[B]`` (``num_classes`` is taken from the logits if not given), probabilities or multi-hot rows
    ``[B, C]``, or real-valued targets. ``smoothing`` smooths the labels. ``output`` says where a model that returns more than
    one tensor keeps its logits: a key, a position or a function; ``"logits"`` in a mapping is found without it. Any further
    keyword goes to ``method.plan``, which knows its own (``partner``, ``lam``, what a method needs) and refuses others.

    Saliency, where the method drawn for this batch needs it and it is not given, comes from the model by
    :func:`multimix.input_saliency`; for other methods nothing runs but the mixed pass.

    Labels are checked before anything is drawn or run; whether an index is too large only if ``num_classes`` is given. On a CPU
    call :func:`multimix.keep_memory` once before training, or K > 1 costs more than K times as much.
    """
    check_no_own_loss(method, "mixed_logits")
    check_history(method, given, "mixed_logits")
    batch, plan, _ = planned(method, _batch(model, method, x, y, num_classes, smoothing, output, generator, given))
    mixed = Mixed(batch, plan)
    return mixed.logits, mixed.target


def mixed_loss(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    loss: Criterion = soft_cross_entropy,
    num_classes: int | None = None,
    smoothing: float = 0.0,
    output: Output | None = None,
    generator: Generator | None = None,
    **given: Any,
) -> Tensor:
    """One number to call ``backward`` on: ``loss(logits, target)`` of :func:`mixed_logits`, and what the method adds to it.

    That is the method's own affair (:meth:`multimix.Method.loss`): a clean loss, which counts once, not K times, for those with
    a ``clean_weight``; the loss of a network of its own. A batch that stays unmixed has ``loss(logits, target)`` only. The pass
    for a clean loss runs in the model's mode, so batch norm sees the clean batch, too, and serves the saliency as well.

    Under DistributedDataParallel the clean pass runs on the module inside, and one ``backward`` averages all terms. Since every
    rank makes its own random choices, layers that talk to other ranks (SyncBatchNorm) need a method that is never skipped.
    """
    check_method(method)
    check_history(method, given, "mixed_loss")
    (term,) = mixed_terms(
        model, method, x, y, loss=loss, num_classes=num_classes, smoothing=smoothing, output=output, generator=generator, **given
    )
    return term().loss


class Term(NamedTuple):
    """A part of the loss of a batch, with the logits and targets it was taken of; the parts add up to the whole.

    ``carried`` are keywords for the call of the next batch, for methods that look back: after the last part they are complete.
    """

    loss: Tensor
    logits: Tensor
    target: Tensor
    carried: Mapping[str, Tensor] = MappingProxyType({})


def mixed_terms(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    steps: int | None = None,
    loss: Criterion = soft_cross_entropy,
    num_classes: int | None = None,
    smoothing: float = 0.0,
    output: Output | None = None,
    generator: Generator | None = None,
    **given: Any,
) -> list[Callable[[], Term]]:
    """:func:`mixed_loss` in parts of ``steps`` interpolations (None: all at once): call one, ``backward`` on its loss, go on.

    Each runs the model when it is called, so K needs the memory of ``steps``. Their number is known ahead: processes that share
    gradients can wait for the last one. The clean loss, if any, is in the first; a term made of mixed samples is in all of them.
    What :func:`mixed_chunks` says about layers that use batch statistics holds here, too.
    """
    if not callable(loss):
        raise TypeError(f"loss must be a function of logits and target such as multimix.softmax_bce, got {loss!r}")
    check_whole("steps", steps, none=True)
    batch, plan, chosen = planned(method, _batch(model, method, x, y, num_classes, smoothing, output, generator, given))
    carried: dict[str, Tensor] = {}
    looks_back = len(method.traits.history) > 0

    def criterion(logits: Tensor, target: Tensor) -> Tensor:
        return one_number(loss(logits, target))

    def term(part: Plan, first: bool) -> Term:
        mixed = Mixed(batch, part, part.k / plan.k, first)
        # A batch that stays unmixed has nothing but the criterion, whatever the method would add.
        value = Method.loss(method, batch, mixed, criterion) if chosen is None else chosen.loss(batch, mixed, criterion)
        if looks_back:
            carried.update(mixed.next_history())
        return Term(value, mixed.logits, mixed.target, dict(carried))

    parts = [plan] if steps is None else plan.split(steps)
    return [partial(term, part, i == 0) for i, part in enumerate(parts)]


def mixed_chunks(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    steps: int = 1,
    num_classes: int | None = None,
    smoothing: float = 0.0,
    output: Output | None = None,
    generator: Generator | None = None,
    **given: Any,
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """K at constant memory: ``logits, target, weight`` for ``steps`` interpolations at a time; the weights sum to 1.

    ``(weight * loss(logits, target)).backward()`` after each yields the gradient of the whole mean. Layers that use batch
    statistics see ``steps``·B rows at a time and update K/``steps`` times, so with batch norm the result differs from one
    pass (torch's checkpoints save memory without that: see docs/loop.md); and layers before a hidden mixing layer run once per
    chunk.
    """
    check_no_own_loss(method, "mixed_chunks")
    check_history(method, given, "mixed_chunks")
    check_whole("steps", steps)
    batch, plan, _ = planned(method, _batch(model, method, x, y, num_classes, smoothing, output, generator, given))
    for part in plan.split(steps):
        mixed = Mixed(batch, part, part.k / plan.k)
        yield mixed.logits, mixed.target, mixed.share


def check_no_own_loss(method: Method, where: str) -> None:
    """Raise ValueError if ``method`` adds a loss of its own, which is lost on whoever has logits or samples only."""
    check_method(method)
    own = method.traits.own_loss
    if own is not None:
        raise ValueError(f"{type(method).__name__} {own}, which {where} cannot hand out: use mixed_loss or mixed_terms")


def check_history(method: Method, given: Mapping[str, Any], where: str) -> None:
    """Raise ValueError if ``method`` mixes with the batch before, which neither ``where`` nor ``given`` has."""
    check_given(method, given)  # a misspelt name first
    history = method.traits.history
    if history and not any(name in given for name in history):
        raise ValueError(
            f"{type(method).__name__} mixes with the batch before, which {where} does not hand on: use mixed_terms, or give "
            f"{', '.join(f'{name}=' for name in history)} yourself, None for the first batch"
        )


def planned(method: Method, batch: Batch) -> tuple[Batch, Plan, Method | None]:
    """The batch with what the model told the method drawn for it, the plan, and that method: None for an unmixed batch."""
    chosen = chosen_method(method, batch.generator)
    if chosen is not None:
        batch = replace(batch, given={**chosen.inputs(batch), **batch.given})
    return batch, chosen_plan(chosen, batch.x, batch.generator, batch.given), chosen


def _batch(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    num_classes: int | None,
    smoothing: float,
    output: Output | None,
    generator: Generator | None,
    given: Mapping[str, Any],
) -> Batch:
    """Everything that can be wrong is found here, before a draw is made or the model runs."""
    check_method(method)
    if not callable(model):
        raise TypeError(f"model must be an nn.Module or a function of x, got {type(model).__name__}")
    traits = method.traits
    check_batch(x, traits.mixes_at)
    check_labels(y, x)
    x, y = plain_samples(method, x), plain_labels(y)
    check_share("smoothing", smoothing)
    check_finite(x)
    for name in traits.history:
        if isinstance(given.get(name), Tensor):
            check_finite(given[name], name)
    check_layers(model, traits.mixes_at)
    check_given(method, given)
    target = y
    if num_classes is not None or not are_indices(y):
        target = soft_target(y, num_classes, smoothing)
    elif y.dtype != torch.bool and can_inspect(y) and int(y.min()) < 0:
        raise ValueError(f"class indices must be at least 0, got {int(y.min())}")
    return Batch(model, x, y, target, resolved(generator), given, output, smoothing)
