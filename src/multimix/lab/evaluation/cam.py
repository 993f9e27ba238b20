"""Where a network looks: the class activation map

    M_c(h, w) = Σ_k w_ck · A_k(h, w)

of a network whose last feature map A is averaged over all places and goes into a linear layer with weights w. Its mean over the
places is the logit of class c without bias.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...core.hooks import named_layer, unwrapped
from ...core.logits import logits_of
from ...core.saliency import evaluation_mode

PROBE = 2  # samples are enough to find the layers
# A map whose spread is below this share of its size is constant: rounding must not be blown up to a picture.
FLAT = 1e-5
# What networks do to a feature map by a plain function, which has no hook.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda z: z,
    "relu": functional.relu,
    "relu6": functional.relu6,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "hardswish": functional.hardswish,
}


class CamLayers(NamedTuple):
    """Names of the ``layer`` that puts out the feature map, of the linear ``head``, and of the function before the pooling."""

    layer: str
    head: str
    activation: str = "none"


class CamPass(NamedTuple):
    """Of a batch: ``logits [B, C]`` and the ``features [B, K, h, w]`` that the head's ``weight [C, K]`` weighs."""

    logits: Tensor
    features: Tensor
    weight: Tensor

    def raw(self, classes: Tensor) -> Tensor:
        """The maps ``[B, h, w]`` of one class ``[B]`` for each image."""
        return torch.einsum("bkhw,bk->bhw", self.features, self.weight[classes.to(self.weight.device)])


def heat_maps(raw: Tensor, size: tuple[int, int], *, as_script: bool = False) -> Tensor:
    """``[B, *size]`` in 0 … 1, float32 on the CPU: ``raw [B, h, w]`` made larger, then stretched so that each map has 0 and 1.

    ``as_script`` first adds up every 3 × 3 places (zeros outside) and interpolates bicubically, as the reference script does.
    A constant map becomes 0 everywhere.
    """
    raw = raw.detach().float().cpu()
    bad = (~raw.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"maps must be finite, got NaN or infinity in image {', '.join(map(str, bad[:5]))} of the batch")
    maps = functional.avg_pool2d(raw.unsqueeze(1), 3, 1, padding=1, divisor_override=1) if as_script else raw.unsqueeze(1)
    # Looked for here: what interpolation makes of a constant is not quite constant. The sum of a 2 × 2 map is one, too.
    flat = _flat(raw) | _flat(maps.squeeze(1))
    maps = functional.interpolate(maps, size, mode="bicubic" if as_script else "bilinear", align_corners=False).squeeze(1)
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return torch.where(flat | (low == high), 0.0, (maps - low) / (high - low))


def _flat(maps: Tensor) -> Tensor:
    """``[B, 1, 1]``: which of ``maps [B, h, w]`` are constant but for rounding."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return high - low <= FLAT * torch.maximum(low.abs(), high.abs())


def cam_pass(network: nn.Module, x: Tensor, layers: CamLayers) -> CamPass:
    """Logits and maps of a batch, in evaluation mode. The network keeps its modes, gradients and buffers."""
    core, _ = unwrapped(network)
    head = named_layer(core, layers.head)
    assert isinstance(head, nn.Linear)
    outputs: list[Tensor] = []
    logits = _run(core, x, {layers.layer: lambda _, __, result: outputs.append(result)})
    return CamPass(logits, ACTIVATIONS[layers.activation](outputs[-1]), head.weight.detach())


def find_layers(network: nn.Module, x: Tensor) -> CamLayers:
    """The layers that maps come from, found by running ``x``.

    The head is the last linear layer that puts out logits. The feature map is the last and largest one whose mean over
    the places (perhaps after ReLU or another plain function) is what goes into the head.
    """
    core, _ = unwrapped(network)
    maps: dict[str, Tensor] = {}  # the last feature map of every layer, in the order they were made
    pooled: dict[str, Tensor] = {}  # the input of every linear layer

    def record(name: str, module: nn.Module, given: Any, result: Any) -> None:
        linear = isinstance(module, nn.Linear) and isinstance(result, Tensor) and result.ndim == 2
        if linear or (isinstance(result, Tensor) and result.ndim == 4):
            outputs = pooled if linear else maps
            outputs.pop(name, None)  # so that a layer that runs again is put last
            outputs[name] = (given[0] if linear else result).detach()

    logits = _run(core, x[:PROBE], {name: partial(record, name) for name, _ in core.named_modules() if name})
    if not bool(logits.isfinite().all()):
        raise ValueError("the network must give finite logits, got NaN or infinity")
    heads = [name for name in pooled if named_layer(core, name).out_features == logits.shape[1]]
    if not heads:
        raise ValueError(f"no linear layer with {logits.shape[1]} outputs ran on [B, features]: no class activation map exists")
    activations = {name: _activation(features, pooled[heads[-1]]) for name, features in maps.items()}
    fitting = {name: activation for name, activation in activations.items() if activation is not None}
    if not fitting:
        raise ValueError(
            f"no feature map was found whose mean over all places goes into head {heads[-1]!r}: no class activation map exists"
        )
    # The output of the pooling fits as well, with one place; of equal ones the outermost layer comes last.
    layer = max(reversed(fitting), key=lambda name: maps[name][0, 0].numel())
    return CamLayers(layer, heads[-1], fitting[layer])


def _activation(features: Tensor, pooled: Tensor) -> str | None:
    """The function after which the mean of ``features`` over the places is ``pooled``, or None."""
    if features.shape[:2] != pooled.shape:
        return None
    size = float(pooled.abs().max())
    for name, function in ACTIVATIONS.items():
        if torch.allclose(function(features).mean((2, 3)), pooled, rtol=1e-4, atol=1e-5 * size):
            return name
    return None


@torch.no_grad()
def _run(core: nn.Module, x: Tensor, hooks: dict[str, Callable[[nn.Module, Any, Any], Any]]) -> Tensor:
    """Logits in evaluation mode, with a forward hook at every layer of ``hooks``."""
    handles = [named_layer(core, name).register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        with evaluation_mode(core):
            return logits_of(core(x))
    finally:
        for handle in handles:
            handle.remove()
