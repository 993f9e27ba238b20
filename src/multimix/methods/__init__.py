"""Every mixing method: one file each, one line each in METHODS."""

from dataclasses import MISSING, fields
from typing import Any

from ..checks import nearest
from .align_mixup import AlignMixup
from .attentive_mix import AttentiveMix
from .base import Method, PairMethod, PathMethod
from .comixup.method import CoMixup
from .cutmix import CutMix
from .cutout import Cutout
from .fmix import FMix
from .grid_mix import GridMix
from .guided_mixup import GuidedMixup
from .input_mixup import InputMixup
from .manifold_mixup import ManifoldMixup
from .no_mix import NoMix
from .one_of import OneOf
from .puzzlemix.method import PuzzleMix
from .recursivemix.method import RecursiveMix
from .resize_mix import ResizeMix
from .sage import SAGE
from .sagemix.method import SageMix
from .saliency_mix import SaliencyMix
from .samix.method import SAMix
from .smooth_mix import SmoothMix
from .style.stylecutmix import StyleCutMix
from .style.stylemix import StyleMix

METHODS: tuple[type[Method], ...] = (
    NoMix,
    Cutout,
    InputMixup,
    ManifoldMixup,
    CutMix,
    FMix,
    PuzzleMix,
    CoMixup,
    SaliencyMix,
    StyleMix,
    StyleCutMix,
    RecursiveMix,
    AlignMixup,
    SAGE,
    SageMix,
    SAMix,
    ResizeMix,
    GridMix,
    SmoothMix,
    AttentiveMix,
    GuidedMixup,
)

__all__ = [
    "METHODS",
    "SAGE",
    "AlignMixup",
    "AttentiveMix",
    "CoMixup",
    "CutMix",
    "Cutout",
    "FMix",
    "GridMix",
    "GuidedMixup",
    "InputMixup",
    "ManifoldMixup",
    "Method",
    "NoMix",
    "OneOf",
    "PairMethod",
    "PathMethod",
    "PuzzleMix",
    "RecursiveMix",
    "ResizeMix",
    "SAMix",
    "SageMix",
    "SaliencyMix",
    "SmoothMix",
    "StyleCutMix",
    "StyleMix",
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
