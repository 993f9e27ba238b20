"""Forward hooks that mix at named hidden layers of any model."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Number
from threading import Lock, get_ident
from traceback import walk_stack
from typing import Any

import torch
from torch import Tensor, nn

from .checks import nearest
from .plan import Plan

# The compiler of torch 2.13.0 fuses the backward pass of a gather with its reader after some
# layers, which makes the gradients wrong without an error (pytorch issue 185509, fixed by 185873).
GATHERS_WRONG = torch.__version__.partition("+")[0] == "2.13.0"

_installed: weakref.WeakKeyDictionary[nn.Module, MixPoints] = weakref.WeakKeyDictionary()


class Hooks:
    """Forward hooks on named layers of a model, idle unless ``forward`` runs a plan."""

    def __init__(self, model: nn.Module, layers: Sequence[str]) -> None:
        self.plan: Plan | None = None
        self.mixed: Callable[[Plan, Any, int, str], Any] = mixed_output
        self.batch = self.fired = self.thread = 0
        self.layers = tuple(layers)
        modules = {name: named_layer(model, name) for name in layers}
        self._handles = [
            module.register_forward_hook(_Hook(self, name)) for name, module in modules.items()
        ]

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def forward(self, model: nn.Module, plan: Plan, x: Tensor) -> Any:
        """Run ``model(x)`` with ``plan`` applied to the output of its layer.

        Raises:
            MixingError: If the layer does not run exactly once, or the model fails.
        """
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
                f"the model failed on {plan.k} × {len(x)} rows after mixing at layer "
                f"{plan.layer!r}: choose a layer that carries the whole signal, not a branch "
                "beside a skip connection, and a model without a fixed batch size or other inputs "
                f"with {len(x)} rows, such as an attention mask ({error})"
            ) from error
        finally:
            self.plan = None
        if self.fired == 0:
            raise MixingError(f"layer {plan.layer!r} did not run, so nothing was mixed")
        return result


class MixPoints(Hooks):
    """Permanent hooks for mixing at hidden layers of compiled models.

    ``torch.compile`` ignores hooks that are added later. The hooks do nothing unless a plan is
    applied, and leaving a ``with`` block removes them. Copied or reloaded models have no mix
    points.

    Args:
        model: The model, before ``torch.compile``.
        layers: Names of the layers at which the method mixes, such as ``method.layers``. None, the
            input, is ignored.

    Raises:
        ValueError: If the model is compiled, has mix points already, or lacks a layer.

    Note:
        Sets ``torch._dynamo.config.skip_nnmodule_hook_guards = False`` for the process. Otherwise
        the compiler would not see that a plan is set or removed.

    Example::

        points = MixPoints(model, ("layer1", "layer2"))
        compiled = torch.compile(model)
        out = mixed_forward(compiled, ManifoldMixup(layers=("layer1", "layer2")), x, y)
    """

    def __init__(self, model: nn.Module, layers: Sequence[str | None]) -> None:
        core, compiled = unwrapped(model)
        if compiled:
            raise ValueError("model must not be compiled yet: make MixPoints before torch.compile")
        if isinstance(layers, str):
            raise ValueError(f"layers must be a tuple, such as ('layer1',), got {layers!r}")
        if core in _installed:
            names = ", ".join(_installed[core].layers)
            raise ValueError(f"model already has MixPoints at {names}: remove them first")
        super().__init__(core, [name for name in layers if name is not None])
        if GATHERS_WRONG:
            # Mixing stays out of the compiled graphs.
            self.mixed = torch.compiler.disable(mixed_output)  # type: ignore[no-untyped-call]
        # By default the compiler assumes that hooks never change: a graph that was compiled with
        # one plan, or without, could run again with the next.
        from torch._dynamo import config

        config.skip_nnmodule_hook_guards = False
        self._core = weakref.ref(core)
        self._lock = Lock()
        _installed[core] = self

    def forward(self, model: nn.Module, plan: Plan, x: Tensor) -> Any:
        """Run :meth:`Hooks.forward`, one plan at a time."""
        with self._lock:  # one plan at a time
            return super().forward(model, plan, x)

    def remove(self) -> None:
        """Remove the hooks."""
        super().remove()
        core = self._core()
        if core is not None and _installed.get(core) is self:
            del _installed[core]

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in a copy of a module that has its mix points as an attribute."""
        return type(None), ()

    def __enter__(self) -> MixPoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class MixingError(RuntimeError):
    """Raised if a model cannot be mixed at a layer, or fails on a batch."""


MODEL_ERRORS = (RuntimeError, IndexError, ValueError, TypeError)
"""Errors to wrap. Derived classes, such as torch.OutOfMemoryError, are raised unchanged."""


def run(model: Callable[[Tensor], Any], x: Tensor, what: str) -> Any:
    """Run ``model(x)``.

    Args:
        model: The model.
        x: ``[B, …]`` samples.
        what: What ``x`` holds, for the error message.

    Returns:
        The model's result.

    Raises:
        MixingError: If the model raises one of ``MODEL_ERRORS``.
    """
    try:
        return model(x)
    except MODEL_ERRORS as error:
        if type(error) not in MODEL_ERRORS:
            raise
        raise failed(error, what, x) from error


def failed(error: Exception, what: str, x: Tensor) -> MixingError:
    """Return a MixingError for the error that a model raised on ``x``."""
    shape = list(x.shape[1:])
    return MixingError(f"the model failed on {what} of shape {shape}, {x.dtype}: {error}")


class _Hook:
    """Mixes the output of a layer if the plan is for it."""

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
            raise MixingError(
                f"layer {self.name!r} runs more than once in a forward pass: choose another"
            )
        if not torch.compiler.is_compiling() and _inside_checkpoint():
            raise MixingError(
                f"layer {self.name!r} is inside a gradient checkpoint and would run unmixed when "
                "recomputed: choose a layer outside it, or disable checkpointing"
            )
        return points.mixed(points.plan, result, points.batch, self.name)

    def __reduce__(self) -> tuple[type[_IdleHook], tuple[()]]:
        return _IdleHook, ()


class _IdleHook:
    """Replaces a hook in a copied or loaded model."""

    def __call__(self, module: nn.Module, args: Any, result: Any) -> None:
        return None


def mixed_output(plan: Plan, result: Any, batch: int, name: str) -> Any:
    """Mix a layer's output: a tensor ``[B, …]``, or a tuple or list of tensors and constants."""
    if isinstance(result, Tensor):
        if result.shape[:1] == (batch,) and result.is_floating_point():
            return plan.mix(result)
    elif type(result) in (tuple, list) and not _has_no_rows(result):
        parts = (
            part if _has_no_rows(part) else mixed_output(plan, part, batch, name) for part in result
        )
        return type(result)(parts)
    got = type(result).__name__
    if isinstance(result, Tensor):
        got = f"{result.dtype} {list(result.shape)}"
    raise MixingError(
        f"layer {name!r} must return floating-point tensors with {batch} rows, got {got}"
    )


def _has_no_rows(part: Any) -> bool:
    """Whether a part of an output is the same for every sample: None, numbers, strings."""
    if isinstance(part, tuple | list):
        return all(map(_has_no_rows, part))
    return part is None or isinstance(part, Number | str)


def hidden_forward(model: nn.Module, plan: Plan, x: Tensor) -> Any:
    """Run ``model(x)`` mixed at the plan's hidden layer, with MixPoints or temporary hooks."""
    if torch.compiler.is_compiling():
        raise MixingError(
            "mixing at a hidden layer cannot be traced: compile the model, not the step"
        )
    assert plan.layer is not None
    check_layers(model, (plan.layer,))
    core, _ = unwrapped(model)
    points = _installed.get(core)
    if points is not None and plan.layer in points.layers:
        return points.forward(model, plan, x)
    hooks = Hooks(core, [plan.layer])
    try:
        return hooks.forward(model, plan, x)
    finally:
        hooks.remove()


def check_layers(model: nn.Module, layers: tuple[str | None, ...]) -> None:
    """Raise unless every hidden layer exists and the model, if compiled, has MixPoints there."""
    hidden = [name for name in layers if name is not None]
    if not hidden:
        return
    core, compiled = unwrapped(model)
    points = _installed.get(core)
    for name in hidden:
        named_layer(core, name)
        has_point = points is not None and name in points.layers
        if not has_point and (compiled or _is_in_compiled(core, name)):
            raise MixingError(
                f"the model is compiled and would ignore mixing at layer {name!r}: create "
                "MixPoints(model, method.layers) before torch.compile, or pass it uncompiled"
            )


def named_layer(model: nn.Module, name: str) -> nn.Module:
    """Return the submodule ``name``, or raise ValueError with the names that exist."""
    layer: object = model if name else None
    for part in name.split("."):
        layer = getattr(layer, part, None)
    if isinstance(layer, nn.Module):
        return layer
    names = [path for path, _ in model.named_modules(remove_duplicate=False) if path]
    known = ", ".join(names[:40]) + (f", … ({len(names)} in all)" if len(names) > 40 else "")
    hint = nearest(name, names)
    raise ValueError(f"no layer {name!r}{hint}; the model has {known or 'no named layers'}")


def unwrapped(model: nn.Module) -> tuple[nn.Module, bool]:
    """Return the model inside DDP and ``torch.compile`` wrappers, and whether it is compiled."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"mixing at a hidden layer needs an nn.Module, got {type(model).__name__}")
    compiled = False
    while True:
        compiled = compiled or _is_compiled(model)
        if isinstance(model, nn.DataParallel):
            raise MixingError(
                "nn.DataParallel splits the batch before hooks can mix it: use "
                "DistributedDataParallel"
            )
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.get_submodule("module")
        elif _is_compile_wrapper(model):
            model = model.get_submodule("_orig_mod")
        else:
            return model, compiled


def _inside_checkpoint() -> bool:
    names = (frame.f_globals.get("__name__") for frame, _ in walk_stack(None))
    return "torch.utils.checkpoint" in names


def _is_in_compiled(model: nn.Module, name: str) -> bool:
    """Whether the layer, or a submodule that contains it, is compiled separately."""
    parts = name.split(".")
    paths = (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return any(_is_compiled(model.get_submodule(path)) for path in paths)


def _is_compiled(module: nn.Module) -> bool:
    return _is_compile_wrapper(module) or getattr(module, "_compiled_call_impl", None) is not None


def _is_compile_wrapper(module: nn.Module) -> bool:
    # By name, since importing the class would load the compiler.
    return type(module).__name__ == "OptimizedModule" and "_orig_mod" in module._modules


@contextmanager
def captured(model: nn.Module, name: str | None, *, copy: bool = False) -> Iterator[list[Any]]:
    """Collect the output of a layer during one forward pass.

    Args:
        model: The model.
        name: Name of the layer; None collects nothing.
        copy: Copy the output, for models whose next layer works in place.

    Yields:
        A list that holds the output after the block.

    Raises:
        MixingError: If the layer does not run exactly once, or is hidden by a gradient checkpoint.
    """
    outputs: list[Any] = []
    if name is None:
        yield outputs
        return
    needs_grad = torch.is_grad_enabled()  # a gradient checkpoint disables it inside

    def store(layer: nn.Module, args: Any, result: Any) -> None:
        trains = needs_grad and any(weight.requires_grad for weight in layer.parameters())
        if trains and isinstance(result, Tensor) and not result.requires_grad:
            raise MixingError(f"layer {name!r} is inside a gradient checkpoint: name another one")
        outputs.append(result.clone() if copy and isinstance(result, Tensor) else result)

    handle = visible_layer(model, name).register_forward_hook(store)
    try:
        yield outputs
    finally:
        handle.remove()
    if len(outputs) != 1:
        raise MixingError(
            f"layer {name!r} must run once per forward pass, uncompiled, "
            f"but ran {len(outputs)} times"
        )


def visible_layer(model: nn.Module, name: str) -> nn.Module:
    """Return the submodule ``name``; raise MixingError if the model is compiled around it."""
    core, compiled = unwrapped(model)
    layer = named_layer(core, name)
    if compiled or _is_in_compiled(core, name):
        raise MixingError(
            f"the model is compiled and does not show the output of layer {name!r}: "
            "pass it uncompiled"
        )
    return layer
