"""A forward pass with mixing, on the input or at a hidden layer, for any model."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .checks import check_batch, check_finite, check_labels, check_share, readable
from .hooks import check_layers, hidden_forward
from .methods.base import Method, check_method
from .plan import PairPlan
from .target import soft_target

Output = str | int | Callable[[Any], Tensor]


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

    Labels are checked before anything is drawn or run; whether an index is too large only if ``num_classes`` is given.
    """
    y = _checked(model, method, x, y, num_classes, smoothing)
    plan = method.plan(x, generator=generator, **given)
    return _logits_and_target(model, plan, x, y, num_classes, smoothing, output)


def mixed_forward(model: nn.Module, plan: PairPlan, x: Tensor, *, output: Output | None = None) -> Tensor:
    """``[K·B, …]``: what the model says about the batch mixed as planned; layers up to the mixing layer run once."""
    result = model(plan.mix(x)) if plan.layer is None else hidden_forward(model, plan, x)
    logits = _tensor(result, output)
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
    y = _checked(model, method, x, y, num_classes, smoothing)
    plan = method.plan(x, generator=generator, **given)
    for part in plan.split(steps):
        yield *_logits_and_target(model, part, x, y, num_classes, smoothing, output), part.k / plan.k


def _logits_and_target(
    model: nn.Module,
    plan: PairPlan,
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


def _checked(model: nn.Module, method: Method, x: Tensor, y: Tensor, num_classes: int | None, smoothing: float) -> Tensor:
    """``y`` as a target that can be mixed, or as class indices if their number is not known before the model has run.

    Everything that can be wrong is found here, before a draw is made or the model runs.
    """
    check_method(method)
    check_batch(x, method.mixes_at)
    check_labels(y, x)
    check_share("smoothing", smoothing)
    check_finite(x)
    check_layers(model, method.mixes_at)
    if num_classes is not None or not _are_indices(y):
        return soft_target(y, num_classes, smoothing)
    if y.dtype != torch.bool and readable(y) and int(y.min()) < 0:
        raise ValueError(f"class indices must be at least 0, got {int(y.min())}")
    return y


def _are_indices(y: Tensor) -> bool:
    return y.ndim == 1 and not y.is_floating_point()


def _tensor(result: Any, output: Output | None) -> Tensor:
    """The logits inside whatever the model returned."""
    if output is None and isinstance(result, Mapping) and "logits" in result:
        output = "logits"
    if callable(output):
        result = output(result)
    elif output is not None:
        result = _part(result, output)
    if not isinstance(result, Tensor):
        raise ValueError(
            f"the model returned {_described(result)}; say with output= which part holds the logits "
            "(a key, a position or a function)"
        )
    return result


def _part(result: Any, output: str | int) -> Any:
    if isinstance(output, str) and hasattr(result, output) and not isinstance(result, Mapping | Tensor):
        return getattr(result, output)
    try:
        if isinstance(result, Tensor):
            raise TypeError
        return result[output]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"the model returned {_described(result)}, which has no output {output!r}") from None


def _described(result: Any) -> str:
    if isinstance(result, Mapping):
        return f"a {type(result).__name__} with {', '.join(map(str, result))}"
    if isinstance(result, list | tuple):
        return f"a {type(result).__name__} of {len(result)}"
    return f"a {type(result).__name__}"
