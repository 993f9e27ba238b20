"""Mixing inside a model that knows nothing about it: forward hooks on layers by name."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from numbers import Number
from threading import Lock, get_ident
from traceback import walk_stack
from typing import Any

import torch
from torch import Tensor, nn

from .checks import nearest
from .plan import Plan

# The compiler of torch 2.13.0 fuses the backward pass of a gather with its reader after some layers, and the gradients of those
# come out wrong, without an error (pytorch issue 185509, fixed by 185873). 2.6 to 2.12, 2.14 and 2.15 are right.
GATHERS_WRONG = torch.__version__.partition("+")[0] == "2.13.0"

_installed: weakref.WeakKeyDictionary[nn.Module, MixPoints] = weakref.WeakKeyDictionary()


class Hooks:
    """Forward hooks on named layers of a model, idle until ``forward`` is given a plan."""

    def __init__(self, model: nn.Module, layers: Sequence[str]) -> None:
        self.plan: Plan | None = None
        self.mixed: Callable[[Plan, Any, int, str], Any] = mixed_output
        self.batch = self.fired = self.thread = 0
        self.layers = tuple(layers)
        modules = [named_layer(model, name) for name in layers]
        self._handles = [module.register_forward_hook(_Hook(self, name)) for module, name in zip(modules, layers, strict=True)]

    def remove(self) -> None:
        """Take the hooks off again."""
        for handle in self._handles:
            handle.remove()

    def forward(self, model: nn.Module, plan: Plan, x: Tensor) -> Any:
        """``model(x)`` with ``plan`` applied where its layer puts out; exactly one firing, or one clear sentence."""
        self.plan, self.batch, self.fired, self.thread = plan, len(x), 0, get_ident()
        try:
            result = model(x)
        except MixingError:
            raise
        except MODEL_ERRORS as error:
            if type(error) not in MODEL_ERRORS:
                raise
            if self.fired == 0 or plan.k == 1:
                raise failed(error, f"{len(x)} samples", x) from error
            raise MixingError(
                f"the model failed on {plan.k} × {len(x)} rows after mixing at layer {plan.layer!r}: name a layer that carries "
                "the whole signal, not a branch beside a skip connection, and a model that neither fixes its batch size nor "
                f"hands on anything else with {len(x)} rows, such as an attention mask ({error})"
            ) from error
        finally:
            self.plan = None
        if self.fired == 0:
            raise MixingError(f"layer {plan.layer!r} did not run in this forward pass, so nothing was mixed")
        return result


class MixPoints(Hooks):
    """Hooks that stay, for models that are compiled: ``torch.compile`` does not see hooks that come later::

        points = MixPoints(model, ("layer1", "layer2"))
        compiled = torch.compile(model)
        logits, target = mixed_logits(compiled, method, x, y)

    Idle without mixing. ``remove``, or leaving a ``with`` block, takes them off again. A copy of the model, such as a moving
    average of its weights, or one that was saved and loaded, has no mix points until you make some. For the whole process they
    set ``torch._dynamo.config.skip_nnmodule_hook_guards = False``, without which the compiler does not see mixing come and go.
    """

    def __init__(self, model: nn.Module, layers: Sequence[str | None]) -> None:
        core, compiled = unwrapped(model)
        if compiled:
            raise ValueError("MixPoints must be made before torch.compile, which does not see hooks that come later")
        if isinstance(layers, str):
            raise ValueError(f"layers must be a tuple of layer names, such as ('layer1', 'layer2'), got {layers!r}")
        if core in _installed:
            raise ValueError(f"the model has MixPoints at {', '.join(_installed[core].layers)} already: remove them first")
        super().__init__(core, [name for name in layers if name is not None])
        if GATHERS_WRONG:
            # Mixing stays out of the compiled graphs.
            self.mixed = torch.compiler.disable(mixed_output)  # type: ignore[no-untyped-call]
        # By default the compiler takes hooks for things that never change: a graph that was compiled with one plan, or without,
        # would run again with the next, depending on where the layer is and on whether its class overrides __call__.
        from torch._dynamo import config

        config.skip_nnmodule_hook_guards = False
        self._core = weakref.ref(core)
        self._lock = Lock()
        _installed[core] = self

    def forward(self, model: nn.Module, plan: Plan, x: Tensor) -> Any:
        with self._lock:  # one slot for the plan, so one mixed pass at a time
            return super().forward(model, plan, x)

    def remove(self) -> None:
        """Take the hooks off again."""
        super().remove()
        core = self._core()
        if core is not None and _installed.get(core) is self:
            del _installed[core]

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """None in a copy: a module that keeps its points as an attribute is copied and saved without them, as its layers are."""
        return type(None), ()

    def __enter__(self) -> MixPoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class MixingError(RuntimeError):
    """A model that cannot be mixed at the layer asked for, or fails on what it is given."""


# Of exactly these types, and not derived ones, which may be somebody's own or say that memory ran out.
MODEL_ERRORS = (RuntimeError, IndexError, ValueError, TypeError)


def run(model: Callable[[Tensor], Any], x: Tensor, what: str) -> Any:
    """``model(x)``; where it cannot take ``x``, which holds ``what``, its error with a sentence of ours before."""
    try:
        return model(x)
    except MODEL_ERRORS as error:
        if type(error) not in MODEL_ERRORS:
            raise
        raise failed(error, what, x) from error


def failed(error: Exception, what: str, x: Tensor) -> MixingError:
    """``error`` of a model that was given ``x``, in our words and its own."""
    return MixingError(f"the model failed on {what} of shape {list(x.shape[1:])}, {x.dtype}: {error}")


class _Hook:
    """What runs after a layer: nothing, or the mixing of its output."""

    def __init__(self, points: Hooks, name: str) -> None:
        self.points, self.name = points, name

    def __call__(self, module: nn.Module, args: Any, result: Any) -> Any:
        points = self.points
        if points.plan is None or points.plan.layer != self.name:
            return None
        if not torch.compiler.is_compiling() and points.thread != get_ident():
            return None  # another thread runs the same model
        points.fired += 1
        if points.fired > 1:
            raise MixingError(f"layer {self.name!r} runs more than once in a forward pass, so where to mix is not defined")
        if not torch.compiler.is_compiling() and _inside_checkpoint():
            raise MixingError(
                f"layer {self.name!r} lies inside a gradient checkpoint and would run unmixed when recomputed: "
                "mix at a layer outside it, or switch checkpointing off"
            )
        return points.mixed(points.plan, result, points.batch, self.name)

    def __reduce__(self) -> tuple[type[_IdleHook], tuple[()]]:
        return _IdleHook, ()


class _IdleHook:
    """What a copied or loaded model has in place of a hook: its MixPoints belong to the model they were made for."""

    def __call__(self, module: nn.Module, args: Any, result: Any) -> None:
        return None


def mixed_output(plan: Plan, result: Any, batch: int, name: str) -> Any:
    """A layer's output, mixed: a tensor ``[B, …]``, or a tuple or list of such tensors and of sizes, numbers or Nones."""
    if isinstance(result, Tensor) and result.ndim > 0 and len(result) == batch and result.is_floating_point():
        return plan.mix(result)
    if type(result) in (tuple, list) and not _has_no_rows(result):
        return type(result)(part if _has_no_rows(part) else mixed_output(plan, part, batch, name) for part in result)
    got = f"{result.dtype} {list(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
    raise MixingError(f"layer {name!r} must put out floating-point tensors with the batch of {batch} first, got {got}")


def _has_no_rows(part: Any) -> bool:
    """Whether this part of an output is the same for every sample: None, a number, a name, a size."""
    if isinstance(part, tuple | list):
        return all(map(_has_no_rows, part))
    return part is None or isinstance(part, Number | str)


def hidden_forward(model: nn.Module, plan: Plan, x: Tensor) -> Any:
    """``model(x)`` mixed at the plan's hidden layer, through hooks that are there or are set for this call only."""
    if torch.compiler.is_compiling():
        raise MixingError("mixing at a hidden layer cannot be traced; compile the model, not the training step")
    assert plan.layer is not None
    check_layers(model, (plan.layer,))
    core, _ = unwrapped(model)
    points = _installed.get(core)
    if points is not None and plan.layer in points.layers:
        return points.forward(model, plan, x)
    own = Hooks(core, [plan.layer])
    try:
        return own.forward(model, plan, x)
    finally:
        own.remove()


def check_layers(model: nn.Module, layers: tuple[str | None, ...]) -> None:
    """Raise ValueError unless each of the hidden ``layers`` exists and mixing there would be seen by the model."""
    hidden = [name for name in layers if name is not None]
    if not hidden:
        return
    core, compiled = unwrapped(model)
    points = _installed.get(core)
    for name in hidden:
        named_layer(core, name)
        if (points is None or name not in points.layers) and (compiled or _compiled_on_the_way(core, name)):
            raise MixingError(
                f"the model is compiled and would not see mixing at layer {name!r}: "
                "make MixPoints(model, method.layers) first and compile after, or pass the model uncompiled"
            )


def named_layer(model: nn.Module, name: str) -> nn.Module:
    """The submodule called ``name``; if there is none, the message lists what exists."""
    layer: object = model if name else None
    for part in name.split("."):
        layer = getattr(layer, part, None)
    if isinstance(layer, nn.Module):
        return layer
    names = [known for known, _ in model.named_modules(remove_duplicate=False) if known]
    shown = ", ".join(names[:40]) + (f", … ({len(names)} in all)" if len(names) > 40 else "")
    raise ValueError(f"no layer {name!r}{nearest(name, names)}; the model has {shown or 'no named layers'}")


def unwrapped(model: nn.Module) -> tuple[nn.Module, bool]:
    """The model inside DDP and ``torch.compile`` wrappers, and whether it is compiled."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"mixing at a hidden layer needs an nn.Module, got {type(model).__name__}")
    compiled = False
    while True:
        compiled = compiled or _is_compiled(model)
        if isinstance(model, nn.DataParallel):
            raise MixingError("nn.DataParallel splits the batch before the hooks can mix it; use DistributedDataParallel")
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.get_submodule("module")
        elif _is_compile_wrapper(model):
            model = model.get_submodule("_orig_mod")
        else:
            return model, compiled


def _inside_checkpoint() -> bool:
    return any(frame.f_globals.get("__name__") == "torch.utils.checkpoint" for frame, _ in walk_stack(None))


def _compiled_on_the_way(model: nn.Module, name: str) -> bool:
    """Whether the layer or anything around it is compiled on its own."""
    parts = name.split(".")
    return any(_is_compiled(model.get_submodule(".".join(parts[:depth]))) for depth in range(1, len(parts) + 1))


def _is_compiled(module: nn.Module) -> bool:
    return _is_compile_wrapper(module) or getattr(module, "_compiled_call_impl", None) is not None


def _is_compile_wrapper(module: nn.Module) -> bool:
    # Asking for the class itself would import the whole compiler.
    return type(module).__name__ == "OptimizedModule" and "_orig_mod" in module._modules
