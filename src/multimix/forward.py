"""A forward pass with mixing, on the input or at a hidden layer, for any model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from .checks import check_batch, check_finite, check_labels, check_share, readable
from .hooks import check_layers, hidden_forward
from .logits import Output, logits_of
from .loss import one_number, soft_cross_entropy, softmax_bce
from .methods.base import Method, Prepared, check_handed_on, check_method, check_no_clean_loss, chosen_method, chosen_plan
from .methods.recursivemix.roi import captured, watched_layer
from .plan import Plan, UnmixedPlan
from .sampling import resolved
from .target import soft_target

Loss = Callable[[Tensor, Tensor], Tensor]


class PreparedPlan(NamedTuple):
    """A plan, the method that made it (None for an unmixed batch) and what else the model told it."""

    plan: Plan
    method: Method | None
    told: Prepared


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

    Saliency, where the method drawn for this batch needs it and it is not handed in, comes from the model by
    :func:`multimix.input_saliency`; for other methods nothing runs but the mixed pass.

    Labels are checked before anything is drawn or run; whether an index is too large only if ``num_classes`` is given.
    """
    check_no_clean_loss(method, "mixed_logits")
    check_handed_on(method, given, "mixed_logits")
    target = _checked(model, method, x, y, num_classes, smoothing, given)
    plan = prepared_plan(model, method, x, y, output=output, generator=generator, given=given).plan
    return _logits_and_target(model, plan, x, target, num_classes, smoothing, output)


def mixed_loss(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    loss: Loss = soft_cross_entropy,
    num_classes: int | None = None,
    smoothing: float = 0.0,
    output: Output | None = None,
    generator: Generator | None = None,
    **given: Any,
) -> Tensor:
    """One number to call ``backward`` on: ``loss(logits, target)`` of :func:`mixed_logits`, and the clean loss once, not K times.

        loss(logits, target) + w · CE(model(x), y),  w = clean_weight (``plain``) or 2 · clean_weight / C (``per_class``)

    With the ``clean_scale`` "loss" the second term is clean_weight · loss(model(x), y) instead. ``clean_weight`` and
    ``clean_scale`` are the method's own, and so is ``mixed_weight``, by which the first term is multiplied if it is not 1.
    Without a clean weight, and for a batch that stays unmixed, there is no clean term. Its pass runs in the model's mode, so
    batch norm sees the clean batch, too, and serves the saliency as well.
    The clean labels are smoothed for the scale "loss" only. ``per_class`` is meant for :func:`multimix.softmax_bce`, a mean over
    classes, and taken for it unless the method says otherwise.

    Under DistributedDataParallel the clean pass runs on the module inside, and one ``backward`` averages both terms. Since
    every rank throws its own coins, layers that talk to other ranks (SyncBatchNorm) need a method that is never skipped.
    """
    check_method(method)
    check_handed_on(method, given, "mixed_loss")
    (term,) = mixed_terms(
        model, method, x, y, loss=loss, num_classes=num_classes, smoothing=smoothing, output=output, generator=generator, **given
    )
    return term().loss


class Term(NamedTuple):
    """A part of the loss of a batch, with the logits and targets it was taken of; the parts add up to the whole.

    ``carried`` are keywords for the call of the next batch, for methods that remember: after the last part they are complete.
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
    loss: Loss = soft_cross_entropy,
    num_classes: int | None = None,
    smoothing: float = 0.0,
    output: Output | None = None,
    generator: Generator | None = None,
    **given: Any,
) -> list[Callable[[], Term]]:
    """:func:`mixed_loss` in parts of ``steps`` interpolations (None: all at once): call one, ``backward`` on its loss, go on.

    Each runs the model when it is called, so K needs the memory of ``steps``. Their number is known ahead: processes that share
    gradients can wait for the last one. The clean loss, if any, is in the first; a method's own term is in all of them. What
    :func:`mixed_chunks` says about layers that use batch statistics holds here, too.
    """
    if not callable(loss):
        raise TypeError(f"loss must be a function of logits and target such as multimix.softmax_bce, got {loss!r}")
    target = _checked(model, method, x, y, num_classes, smoothing, given)
    plan, chosen, told = prepared_plan(model, method, x, y, output=output, generator=generator, given=given)

    carried: dict[str, Tensor] = {}
    if chosen is not None and not chosen.carries:
        # One of several was drawn, and what another remembers waits for its turn.
        carried.update({name: given[name] for name in method.carries if given.get(name) is not None})

    def term(part: Plan, first: bool) -> Term:
        watched = None if chosen is None or isinstance(part, UnmixedPlan) else chosen.watches
        with captured(model, watched) as seen:
            logits, mixed_target = _logits_and_target(model, part, x, target, num_classes, smoothing, output)
        value = one_number(loss(logits, mixed_target)) * (part.k / plan.k)
        if chosen is not None and chosen.mixed_weight != 1:
            value = chosen.mixed_weight * value
        if chosen is not None and watched is not None:
            # A cross-entropy: beside a mean over classes, whose gradients are 1/C of its, it would count C times as much.
            share = part.k / plan.k / (logits.shape[1] if loss is softmax_bce else 1)
            value = value + chosen.extra_loss(model, part, seen[0]) * share
        if chosen is not None and first:
            value = sum(_losses_beside(chosen, told, loss, target, smoothing, logits.shape[1:2]), start=value)
        carried.update((chosen or method).carried(part, x, mixed_target, logits))
        return Term(value, logits, mixed_target, dict(carried))

    parts = [plan] if steps is None else list(plan.split(steps))
    return [partial(term, part, i == 0) for i, part in enumerate(parts)]


def _losses_beside(
    method: Method, told: Prepared, loss: Loss, target: Tensor, smoothing: float, classes: Sequence[int]
) -> Iterator[Tensor]:
    """The clean loss with its weight and that of a method's own network, as far as there are any."""
    if told.logits is not None and method.clean_scale == "loss":
        clean = soft_target(target, told.logits.shape[1], smoothing) if _are_indices(target) else target
        yield method.clean_weight * one_number(loss(told.logits, clean))
    elif told.clean is not None:
        per_class = method.clean_scale == "per_class" or (method.clean_scale == "auto" and loss is softmax_bce)
        yield method.clean_weight * (2 / classes[0] if per_class else 1) * told.clean
    if told.own is not None:
        yield told.own


def prepared_plan(
    model: nn.Module | None,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    output: Output | None,
    generator: Generator | None,
    given: Mapping[str, Any],
) -> PreparedPlan:
    """The plan ``method.plan`` would make; what the method drawn for this batch needs beside ``given`` is asked of ``model``."""
    generator = resolved(generator)
    chosen = chosen_method(method, generator)
    if chosen is None or model is None:
        return PreparedPlan(chosen_plan(chosen, x, generator, given), chosen, Prepared({}))
    told = chosen.prepare(model, x, y, generator=generator, output=output, given=given)
    return PreparedPlan(chosen_plan(chosen, x, generator, {**told.given, **given}), chosen, told)


def mixed_forward(model: nn.Module, plan: Plan, x: Tensor, *, output: Output | None = None) -> Tensor:
    """``[K·B, …]``: what the model says about the batch mixed as planned; layers up to the mixing layer run once."""
    result = model(plan.mix(x)) if plan.layer is None else hidden_forward(model, plan, x)
    logits = logits_of(result, output)
    if logits.ndim == 0 or len(logits) != plan.k * len(x):
        raise ValueError(
            f"{plan.k} interpolations of {len(x)} samples must come out as {plan.k * len(x)} rows, "
            f"got shape {list(logits.shape)}" + (f" after mixing at layer {plan.layer!r}" if plan.layer else "")
        )
    return logits


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
    pass; and layers before a hidden mixing layer run once per chunk.
    """
    check_no_clean_loss(method, "mixed_chunks")
    check_handed_on(method, given, "mixed_chunks")
    target = _checked(model, method, x, y, num_classes, smoothing, given)
    plan = prepared_plan(model, method, x, y, output=output, generator=generator, given=given).plan
    for part in plan.split(steps):
        yield *_logits_and_target(model, part, x, target, num_classes, smoothing, output), part.k / plan.k


def _logits_and_target(
    model: nn.Module,
    plan: Plan,
    x: Tensor,
    y: Tensor,
    num_classes: int | None,
    smoothing: float,
    output: Output | None,
) -> tuple[Tensor, Tensor]:
    if num_classes is None and _are_indices(y):
        logits = mixed_forward(model, plan, x, output=output)
        if logits.ndim != 2 or logits.shape[1] < 2:
            raise ValueError(
                f"class indices need logits [N, C] with at least 2 classes, got {list(logits.shape)}: "
                "pass y.float() for real values, y.float().unsqueeze(1) for one logit"
            )
        return logits, plan.mix_target(y, logits.shape[1], smoothing)
    target = plan.mix_target(y)
    logits = mixed_forward(model, plan, x, output=output)
    if logits.shape != target.shape:
        raise ValueError(
            f"logits and target must have one shape, got {list(logits.shape)} and {list(target.shape)}; "
            "for a loss of another form use mixed_forward and plan.mix_target"
        )
    return logits, target


def _checked(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    num_classes: int | None,
    smoothing: float,
    given: Mapping[str, Any],
) -> Tensor:
    """``y`` as a target that can be mixed, or as class indices if their number is not known before the model has run.

    Everything that can be wrong is found here, before a draw is made or the model runs.
    """
    check_method(method)
    check_batch(x, method.mixes_at)
    check_labels(y, x)
    check_share("smoothing", smoothing)
    check_finite(x)
    for name in method.carries:
        if isinstance(given.get(name), Tensor):
            check_finite(given[name], name)
    check_layers(model, method.mixes_at)
    if method.watches is not None:
        watched_layer(model, method.watches)
    method.check_given(given)
    if num_classes is not None or not _are_indices(y):
        return soft_target(y, num_classes, smoothing)
    if y.dtype != torch.bool and readable(y) and int(y.min()) < 0:
        raise ValueError(f"class indices must be at least 0, got {int(y.min())}")
    return y


def _are_indices(y: Tensor) -> bool:
    return y.ndim == 1 and not y.is_floating_point()
