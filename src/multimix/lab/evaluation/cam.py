"""Where a network looks: the class activation map, or Grad-CAM where there is none.

    M_c(h, w) = Σ_k w_ck · A_k(h, w)

for a network whose last feature map A is averaged over all places and goes into a linear layer with weights w. Its mean over the
places is the logit of class c without bias. Grad-CAM puts the mean gradient of the logit in place of w_ck and keeps what is
positive; at A itself it is the same map, cut off at 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...hooks import named_layer, unwrapped
from ...logits import logits_of
from ...saliency import evaluation_mode

Upsampling = Literal["bilinear", "bicubic"]
Hook = Callable[[nn.Module, Any, Any], Any]

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
    """Where maps come from, by name: the ``layer`` that puts out the feature map, and the linear ``head``; None is to be found.

    ``activation`` is the function between the layer and the pooling. With ``gradient`` it is Grad-CAM at ``layer``, which must be
    named; a head is not needed then.
    """

    layer: str | None = None
    head: str | None = None
    activation: str = "none"
    gradient: bool = False


class CamPass(NamedTuple):
    """Logits ``[B, C]`` of a batch, and the maps ``raw(classes) [B, h, w]`` of one class ``[B]`` for each image."""

    logits: Tensor
    raw: Callable[[Tensor], Tensor]


def heat_maps(raw: Tensor, size: tuple[int, int], *, box_sum: bool = False, upsample: Upsampling = "bilinear") -> Tensor:
    """``[B, *size]`` in 0 … 1, float32 on the CPU: ``raw [B, h, w]`` made larger, then stretched so that each map has 0 and 1.

    ``box_sum`` first adds up every 3 × 3 places (zeros outside), as the reference script does; that script's ``upsample`` is
    ``"bicubic"``. A constant map becomes 0 everywhere.
    """
    raw = raw.detach().float().cpu()
    bad = (~raw.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"maps must be finite, got NaN or infinity in image {', '.join(map(str, bad[:5]))} of the batch")
    low, high = raw.amin((1, 2), keepdim=True), raw.amax((1, 2), keepdim=True)
    # Looked for here: what interpolation makes of a constant is not quite constant.
    flat = high - low <= FLAT * torch.maximum(low.abs(), high.abs())
    maps = raw.unsqueeze(1)
    if box_sum:
        maps = functional.avg_pool2d(maps, 3, 1, padding=1, divisor_override=1)
    maps = functional.interpolate(maps, size=size, mode=upsample, align_corners=False).squeeze(1)
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return torch.where(flat | (low == high), 0.0, (maps - low) / (high - low))


def cam_pass(network: nn.Module, x: Tensor, layers: CamLayers) -> CamPass:
    """Logits and maps of a batch, in evaluation mode. The network keeps its modes, gradients and buffers."""
    core, _ = unwrapped(network)
    layer = layers.layer
    assert layer is not None
    if layers.gradient:
        return _gradient_pass(core, x, layer)
    assert layers.head is not None
    head = named_layer(core, layers.head)
    assert isinstance(head, nn.Linear)
    outputs: dict[str, Tensor] = {}
    with torch.no_grad():
        logits = _run(core, x, {layer: lambda _, __, result: outputs.update({layer: result})})
        features = ACTIVATIONS[layers.activation](_feature_map(outputs, layer))
    weight = head.weight.detach()

    def raw(classes: Tensor) -> Tensor:
        return torch.einsum("bkhw,bk->bhw", features, weight[_checked(classes, logits)])

    return CamPass(logits, raw)


def find_layers(network: nn.Module, x: Tensor, cam: CamLayers | None = None) -> CamLayers:
    """The layers maps come from. What ``cam`` names is taken as it is if the shapes fit; the rest is found by running ``x``.

    The head is the last linear layer that puts out logits. The feature map is the last and largest one whose mean over
    the places (perhaps after ReLU or another plain function) is what goes into the head.
    """
    cam = CamLayers() if cam is None else cam
    core, _ = unwrapped(network)
    if x.ndim != 4 or len(x) == 0:
        raise ValueError(f"x must be images [B, C, H, W], B ≥ 1, got {list(x.shape)}")
    if cam.gradient and cam.layer is None:
        raise ValueError("layer must be named for Grad-CAM, such as the last stage of the network, got None")
    if cam.layer is not None:
        named_layer(core, cam.layer)
    if cam.gradient:
        return cam
    trace = _Trace(core, x[:PROBE])
    head = _find_head(core, trace, cam.head)
    pooled = trace.pooled[head]
    if cam.layer is not None:
        features = _feature_map(trace.maps, cam.layer)
        if features.shape[1] != pooled.shape[1]:
            raise ValueError(
                f"layer {cam.layer!r} must put out as many channels as head {head!r} takes, got {features.shape[1]} for "
                f"{pooled.shape[1]}"
            )
        return CamLayers(cam.layer, head, _activation(features, pooled) or "none")
    activations = {name: _activation(features, pooled) for name, features in trace.maps.items()}
    fitting = {name: activation for name, activation in activations.items() if activation is not None}
    if not fitting:
        raise ValueError(
            f"no feature map was found whose mean over all places goes into head {head!r}: name one with "
            "CamLayers(layer=…, head=…), or use Grad-CAM at a layer with CamLayers(layer=…, gradient=True)"
        )
    # The output of the pooling fits as well, with one place; of equal ones the outermost layer comes last.
    name = max(reversed(fitting), key=lambda name: trace.maps[name][0, 0].numel())
    return CamLayers(name, head, fitting[name])


class _Trace:
    """One pass: the last feature map of every layer in ``maps``, the input of every linear layer in ``pooled``, in order."""

    def __init__(self, core: nn.Module, x: Tensor) -> None:
        self.maps: dict[str, Tensor] = {}
        self.pooled: dict[str, Tensor] = {}
        with torch.no_grad():
            self.logits = _run(core, x, {name: partial(self._note, name) for name, _ in core.named_modules() if name})
        if not bool(self.logits.isfinite().all()):
            raise ValueError("the network must give finite logits, got NaN or infinity")

    def _note(self, name: str, module: nn.Module, given: Any, result: Any) -> None:
        linear = isinstance(module, nn.Linear) and isinstance(result, Tensor) and result.ndim == 2
        if linear or (isinstance(result, Tensor) and result.ndim == 4):
            outputs = self.pooled if linear else self.maps
            outputs.pop(name, None)  # so that a layer that runs again is put last
            outputs[name] = (given[0] if linear else result).detach()


def _find_head(core: nn.Module, trace: _Trace, head: str | None) -> str:
    wanted = trace.logits.shape[1]
    if head is not None:
        if not isinstance(named_layer(core, head), nn.Linear) or head not in trace.pooled:
            raise ValueError(f"head must be an nn.Linear that gets [B, features], {head!r} is not")
        return head
    for name in reversed(trace.pooled):
        layer = named_layer(core, name)
        if isinstance(layer, nn.Linear) and layer.out_features == wanted:
            return name
    raise ValueError(
        f"no linear layer with {wanted} outputs ran on [B, features], so there is no class activation map: "
        "use Grad-CAM at a layer with CamLayers(layer=…, gradient=True)"
    )


def _activation(features: Tensor, pooled: Tensor) -> str | None:
    """The function after which the mean of ``features`` over the places is ``pooled``, or None."""
    if features.shape[:2] != pooled.shape:
        return None
    size = float(pooled.abs().max())
    for name, function in ACTIVATIONS.items():
        if torch.allclose(function(features).mean((2, 3)), pooled, rtol=1e-4, atol=1e-5 * size):
            return name
    return None


def _gradient_pass(core: nn.Module, x: Tensor, layer: str) -> CamPass:
    outputs: dict[str, Tensor] = {}

    def cut(_: nn.Module, __: Any, result: Any) -> Tensor:
        # The graph begins here: nothing before this layer is recorded, and no parameter gets a gradient.
        torch.set_grad_enabled(True)
        outputs[layer] = _feature_map({layer: result}, layer).detach().clone().requires_grad_()
        return outputs[layer].clone()  # what follows may work in place

    with torch.inference_mode(False), torch.no_grad():
        logits = _run(core, x, {layer: cut})
    features = _feature_map(outputs, layer)

    def raw(classes: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            chosen = logits.gather(1, _checked(classes, logits).clone()[:, None]).sum()
        (gradient,) = torch.autograd.grad(chosen, features, retain_graph=True)
        return functional.relu((gradient.mean((2, 3), keepdim=True) * features.detach()).sum(1))

    return CamPass(logits.detach(), raw)


def _feature_map(outputs: dict[str, Tensor], layer: str) -> Tensor:
    found = outputs.get(layer)
    if found is None:
        raise ValueError(f"layer {layer!r} must run in a forward pass and put out a feature map [B, C, h, w], it did not")
    if not isinstance(found, Tensor) or found.ndim != 4:
        got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"layer {layer!r} must put out a feature map [B, C, h, w], got {got}")
    return found


def _checked(classes: Tensor, logits: Tensor) -> Tensor:
    if classes.shape != logits.shape[:1] or not 0 <= int(classes.min()) <= int(classes.max()) < logits.shape[1]:
        raise ValueError(
            f"classes must be one of 0 … {logits.shape[1] - 1} for each of {len(logits)} images, got shape {list(classes.shape)}"
            f" with {int(classes.min())} … {int(classes.max())}"
        )
    return classes.to(logits.device)


def _run(core: nn.Module, x: Tensor, hooks: dict[str, Hook]) -> Tensor:
    """Logits in evaluation mode, with a forward hook at every layer of ``hooks``."""
    handles = [named_layer(core, name).register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        with evaluation_mode(core):
            return logits_of(core(x))
    finally:
        for handle in handles:
            handle.remove()
