"""Every mixing method: one file each, one line each in METHODS."""

from dataclasses import MISSING, fields
from typing import Any

from ..checks import nearest
from .base import Method, PairMethod, PathMethod
from .cutmix import CutMix
from .cutout import Cutout
from .fmix import FMix
from .input_mixup import InputMixup
from .manifold_mixup import ManifoldMixup
from .no_mix import NoMix
from .one_of import OneOf
from .puzzle_mix import PuzzleMix

METHODS: tuple[type[Method], ...] = (
    NoMix,
    Cutout,
    InputMixup,
    ManifoldMixup,
    CutMix,
    FMix,
    PuzzleMix,
)

__all__ = [
    "METHODS",
    "CutMix",
    "Cutout",
    "FMix",
    "InputMixup",
    "ManifoldMixup",
    "Method",
    "NoMix",
    "OneOf",
    "PairMethod",
    "PathMethod",
    "PuzzleMix",
    "create",
    "required_options",
]


def create(name: str, **options: Any) -> Method:
    """The method registered under ``name`` or one of its aliases, made with ``options``.

    >>> create("cutmix", k=5).k
    5
    """
    known = {key: method for method in METHODS for key in (method.name, *method.aliases)}
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"no method {name!r}{nearest(name, known)}; there are {', '.join(m.name for m in METHODS)}")
    accepted = [option.name for option in fields(known[name])]  # type: ignore[arg-type]  # every registered method is a dataclass
    for given in options:
        if given not in accepted:
            ours = known[name].published.get(given)
            hint = f" (it is called {ours!r} here)" if ours else nearest(given, accepted)
            raise ValueError(f"{name} has no option {given!r}{hint}; it has {', '.join(accepted)}")
    for missing in required_options(known[name]):
        if missing not in options:
            raise ValueError(f"{name} needs {missing}=")
    return known[name](**options)


def required_options(kind: type[Method]) -> list[str]:
    """The options of a method that have no default."""
    options = fields(kind)  # type: ignore[arg-type]  # every registered method is a dataclass
    return [option.name for option in options if option.default is MISSING and option.default_factory is MISSING]
