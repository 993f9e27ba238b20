"""What a measure is: a function that finds numbers about a subject, registered by a decorator with what they depend on."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from ...core.checks import nearest
from ..training.checkpoint import Which
from .subject import Subject

COUNTS = ("n", "classes", "selected_epoch")  # numbers that are whole


class Finding(NamedTuple):
    """``numbers`` for tables by name, and the whole ``result``, a dataclass of JSON values."""

    numbers: Mapping[str, float | None]
    result: Any


class Measure(NamedTuple):
    """``find(subject, reading, **options)`` gives a ``Finding``; its keyword-only parameters are the options of the measure.

    ``columns`` are the numbers that tables show (none: all), ``labels`` those of all samples that the numbers depend on. If
    ``timed`` they depend on the machine as well. ``resolve`` puts into options what None means for the subject.
    """

    about: str
    find: Callable[..., Finding]
    columns: tuple[str, ...] = ()
    checkpoint: Which = "last"
    labels: Callable[[Subject, Mapping[str, Any]], list[Tensor]] = lambda subject, options: subject.labels("report")
    timed: bool = False
    resolve: Callable[[Subject, Mapping[str, Any]], Mapping[str, Any]] = lambda subject, options: options

    @property
    def defaults(self) -> dict[str, Any]:
        """The options with their usual values."""
        parameters = inspect.signature(self.find).parameters.values()
        return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


MEASURES: dict[str, Measure] = {}
Function = TypeVar("Function", bound=Callable[..., Finding])


def measure(name: str, about: str, **traits: Any) -> Callable[[Function], Function]:
    """Register the decorated function under ``name``; ``traits`` are the fields of ``Measure``."""

    def register(find: Function) -> Function:
        MEASURES[name] = Measure(about, find, **traits)
        return find

    return register


def measure_named(name: str) -> Measure:
    """The measure called ``name``."""
    if name not in MEASURES:
        raise ValueError(f"no measure {name!r}{nearest(name, MEASURES)}; there are {', '.join(MEASURES)}")
    return MEASURES[name]
