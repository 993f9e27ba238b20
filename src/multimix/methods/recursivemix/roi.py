"""What a layer puts out, watched by its name, and its mean over a box of the image: RoI-align to one place."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...hooks import MixingError, named_layer, unwrapped
from ...precision import full_precision


def roi_mean(features: Tensor, low: Tensor, high: Tensor, size: torch.Size) -> Tensor:
    """``[K·B, C]``: the mean of ``features [K·B, C, *places]`` over boxes ``[low, high)`` of an image of ``size``.

    ``low, high [K, 1 or B, d]`` are in places of the image. The whole image gives the mean over all places, an empty box 0.
    A box is brought to the feature map, where the middle of the first place is 0, and cut into as many equal cells along each
    axis as it covers places, a begun place counted as one; the map is interpolated linearly at the middle of each cell.
    """
    k, rows, axes = low.shape
    if features.ndim != 2 + axes or len(size) != axes or len(features) % k or rows not in (1, len(features) // k):
        raise ValueError(
            f"features must be [{k} · B, C] and {axes} axes of places for {k} × {rows} boxes, got {list(features.shape)}"
        )
    mean = features.to(torch.promote_types(features.dtype, torch.float32)).reshape(k, -1, *features.shape[1:])
    # The interpolation is a product over axes, and so is its mean: one axis after the other, the last first.
    for axis in reversed(range(axes)):
        weight = axis_weights(low[..., axis], high[..., axis], size[axis], mean.shape[-1]).to(mean.dtype)
        with full_precision(mean):
            mean = (mean @ weight.reshape(k, rows, *[1] * axis, -1, 1)).squeeze(-1)
    return mean.flatten(0, 1)


def axis_weights(low: Tensor, high: Tensor, side: int, places: int) -> Tensor:
    """``[…, places]`` in float64: how much each place of an axis of the map counts in the mean over ``low … high […]``."""
    # Multiplied before it is divided, so that whole numbers stay whole: one cell too many would show.
    start, length = low.double() * places / side - 0.5, ((high - low).double() * places / side).unsqueeze(-1)
    cells = length.ceil()
    cell = torch.arange(max(1, int(cells.max())), device=low.device)
    at = start.unsqueeze(-1) + (cell + 0.5) * length / cells.clamp(min=1)
    counted = (cell < cells) & (at >= -1) & (at <= places)
    at = at.clamp(0, places - 1).unsqueeze(-1)
    near = (1 - (at - torch.arange(places, device=low.device)).abs()).clamp(min=0)
    return (near * counted.unsqueeze(-1)).sum(-2) / cells.clamp(min=1)


@contextmanager
def captured(model: nn.Module, name: str | None) -> Iterator[list[Any]]:
    """What the layer called ``name`` puts out in the one forward pass of the block; without a name nothing is watched."""
    seen: list[Any] = []
    if name is None:
        yield seen
        return
    learning = torch.is_grad_enabled()  # here: a gradient checkpoint switches it off inside

    def watch(layer: nn.Module, args: Any, result: Any) -> None:
        learns = learning and any(weight.requires_grad for weight in layer.parameters())
        if learns and isinstance(result, Tensor) and not result.requires_grad:
            raise MixingError(f"layer {name!r} puts out no gradient: name one that lies outside gradient checkpoints")
        seen.append(result)

    handle = watched_layer(model, name).register_forward_hook(watch)
    try:
        yield seen
    finally:
        handle.remove()
    if len(seen) != 1:
        raise MixingError(
            f"layer {name!r} must run once in a forward pass, uncompiled, to be watched; it was seen {len(seen)} times"
        )


def watched_layer(model: nn.Module, name: str) -> nn.Module:
    """The submodule called ``name``, or an error if there is none or a compiled model would not show what it puts out."""
    core, compiled = unwrapped(model)
    found, parts = named_layer(core, name), name.split(".")
    around = [core.get_submodule(".".join(parts[:depth])) for depth in range(1, len(parts) + 1)]
    if compiled or any(getattr(part, "_compiled_call_impl", None) is not None for part in around):
        raise MixingError(f"the model is compiled and would not show what layer {name!r} puts out: pass it uncompiled")
    return found
