"""The networks of the paper as plain modules, a small sibling of each for CPU work, one for clouds, any other by import path.

They know nothing about mixing. The whole signal passes ``stem``, ``stage1``, ``stage2``, … one after the other, so manifold mixup
reaches it by those names; ``mix_layers`` of a network has the points where the reference mixes (None is the input).
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ...core.checks import nearest
from .pointnet import PointNet
from .resnet import (
    preact_resnet18,
    preact_resnet18_small,
    resnet50,
    resnet50_small,
    resnext29_4_24,
    resnext29_4_24_small,
    wrn16_8,
    wrn16_8_small,
)
from .vgg import vgg11, vgg11_small

__all__ = ["NETWORKS", "OF_POINTS", "network", "network_from_path", "parameter_groups"]

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "preact_resnet18": preact_resnet18,
    "preact_resnet18_small": preact_resnet18_small,
    "wrn16_8": wrn16_8,
    "wrn16_8_small": wrn16_8_small,
    "resnext29_4_24": resnext29_4_24,
    "resnext29_4_24_small": resnext29_4_24_small,
    "resnet50": resnet50,
    "resnet50_small": resnet50_small,
    "vgg11": vgg11,
    "vgg11_small": vgg11_small,
    "pointnet": PointNet,
}
TIMM = "timm/"
OF_POINTS = ("pointnet",)  # these take clouds [B, N, 3], all others images

OWN_NETWORKS = "multimix.lab.nets."  # import paths of our own that every run may name
NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def network(name: str, num_classes: int, *, in_channels: int | None = None, **options: Any) -> nn.Module:
    """The network registered under ``name``, timm's after ``timm/``, or what the import path ``name`` makes.

    An import path is ``package.module:name`` of an nn.Module class or of a function that returns a module; it is called with
    ``num_classes`` if it takes that. Without ``in_channels`` a network has its own: 3, and 1 for spectrograms.
    Start values are drawn from torch's global random stream, as by every nn.Module.

    >>> network("preact_resnet18_small", 10, stem_stride=2).head
    Linear(in_features=128, out_features=10, bias=True)
    """
    _check_count("num_classes", num_classes)
    given = dict(options)
    if in_channels is not None:
        _check_count("in_channels", in_channels)
        given["in_channels"] = in_channels
    if isinstance(name, str) and ":" in name:
        return network_from_path(name, given, num_classes)
    if isinstance(name, str) and name.startswith(TIMM):
        return _timm_network(name, num_classes, given)
    if not isinstance(name, str) or name not in NETWORKS:
        known = ", ".join(NETWORKS)
        others = "timm/NAME, and any other by package.module:name"
        raise ValueError(f"no network {name!r}{nearest(name, NETWORKS)}; there are {known}, {others}")
    _check_options(name, NETWORKS[name], given)
    return NETWORKS[name](num_classes, **given)


def _imported(place: str) -> ModuleType:
    """A module that is installed or on PYTHONPATH; else one in the current folder, where a command does not look by itself."""
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        here = os.getcwd()
        if error.name != place.split(".")[0] or here in sys.path:
            raise
        sys.path.append(here)
        try:
            importlib.invalidate_caches()
            return importlib.import_module(place)
        finally:
            sys.path.remove(here)


def network_from_path(path: str, options: Mapping[str, Any] = {}, num_classes: int | None = None) -> nn.Module:
    """What the class or function at the import path ``package.module:name`` makes.

    It is called with ``options``, and with ``num_classes`` if that is given and it takes it.
    """
    factory = _factory(path)
    given = dict(options)
    if num_classes is not None and _takes(factory, "num_classes"):
        given = {"num_classes": num_classes, **given}
    _check_options(path, factory, given)
    try:
        made = factory(**given)
    except (TypeError, ValueError) as error:
        words = ", ".join(f"{key}={value!r}" for key, value in given.items())
        raise ValueError(f"{path}({words}) failed: {error}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"{path} must make an nn.Module, got {type(made).__name__}")
    return made


def _timm_network(name: str, num_classes: int, given: Mapping[str, Any]) -> nn.Module:
    """A network of timm, with random weights unless the options say pretrained=True."""
    try:
        timm: Any = importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:  # torchvision, which timm imports, raises a RuntimeError beside a foreign torch
        raise ValueError(f"the network {name} needs timm, which cannot be imported: {error}") from None
    model = name.removeprefix(TIMM)
    if not timm.is_model(model):
        raise ValueError(f"timm {timm.__version__} has no network {model!r}{nearest(model, timm.list_models())}")
    options = {key: value for key, value in given.items() if key != "in_channels"}
    try:
        made: nn.Module = timm.create_model(model, num_classes=num_classes, in_chans=given.get("in_channels", 3), **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} cannot be made with {num_classes} classes and {options}: {error}") from error
    return made


def check_network_path(path: str) -> None:
    """Raise ValueError unless ``path`` is a class of networks or a function that says it returns one; neither is called.

    For paths that somebody else wrote down, such as those in the folder of a run.
    """
    factory = _factory(path)
    made = factory if isinstance(factory, type) else getattr(factory, "__annotations__", {}).get("return")
    if not (isinstance(made, type) and issubclass(made, nn.Module)):
        raise ValueError(
            f"{path} must be a class derived from nn.Module, or a function annotated to return one; it was not called"
        )


def _factory(path: str) -> Any:
    """The class or function at an import path."""
    place, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*place.split("."), name)):
        raise ValueError(f"an import path must have the form package.module:name, got {path!r}")
    try:
        module = _imported(place)
    except ImportError as error:
        hint = "; is it in this folder, or its folder on PYTHONPATH?" if error.name == place.split(".")[0] else ""
        raise ValueError(f"cannot import the network {path!r}: {error}{hint}") from error
    factory: Any = getattr(module, name, None)
    if path.startswith(OWN_NETWORKS) and not (isinstance(factory, type) and issubclass(factory, nn.Module)):
        raise ValueError(f"{path} must be a network class")  # such paths are followed without being asked
    if not callable(factory) or isinstance(factory, nn.Module):
        names = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        raise ValueError(f"no class or function {name!r} in {place}{nearest(name, names)}")
    return factory


def parameter_groups(model: nn.Module, weight_decay: float, *, norm_decay: bool) -> list[dict[str, Any]]:
    """All parameters for an optimiser, each once; without ``norm_decay`` those of batch norm (and other norms) do not decay.

    That is the ImageNet recipe. The biases of other layers decay.
    """
    if not weight_decay >= 0:
        raise ValueError(f"weight_decay must be at least 0, got {weight_decay:g}")
    layers = [module for module in model.modules() if isinstance(module, NORMS) and not norm_decay]
    norms = {id(weight) for layer in layers for weight in layer.parameters(recurse=False)}
    decayed = [weight for weight in model.parameters() if id(weight) not in norms]
    spared = [weight for weight in model.parameters() if id(weight) in norms]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _check_options(name: str, factory: Callable[..., Any], given: dict[str, Any]) -> None:
    """Raise ValueError unless the factory takes everything given and has defaults for the rest."""
    options = {key: option for key, option in _parameters(factory).items() if key != "num_classes"}
    for wrong in given:
        if not _takes(factory, wrong):
            there = ", ".join(options) or "none"
            raise ValueError(f"{name} has no option {wrong!r}{nearest(wrong, options)}; it has {there}")
    for key, option in options.items():
        if option.default is option.empty and key not in given:
            raise ValueError(f"{name} needs {key}=")


def _takes(factory: Callable[..., Any], key: str) -> bool:
    anything = any(option.kind is option.VAR_KEYWORD for option in inspect.signature(factory).parameters.values())
    return anything or key in _parameters(factory)


def _parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What the factory takes by name."""
    parameters = inspect.signature(factory).parameters.items()
    return {key: option for key, option in parameters if option.kind in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY)}


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
