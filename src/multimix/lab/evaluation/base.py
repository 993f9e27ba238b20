"""Functions that measure trained networks, registered by a decorator and imported by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...core.checks import nearest
from .names import MEASURES

if TYPE_CHECKING:
    from torch import Tensor

    from ..images import ImageGrid
    from .subject import Subject

Function = TypeVar("Function", bound=Callable[..., "Finding"])
_REGISTERED: dict[str, Measure] = {}


class Finding(NamedTuple):
    """What a measure found.

    Args:
        numbers: Numbers for tables, by name.
        result: Everything, as a dataclass of JSON values.
        pictures: Pictures that need the network, by file name without suffix.
    """

    numbers: Mapping[str, float | None]
    result: Any
    pictures: Mapping[str, ImageGrid] = {}


class Measure(NamedTuple):
    """A function that measures a subject, and what its numbers depend on.

    Args:
        find: ``find(subject, reading, **options)`` returns a :class:`Finding`. Its keyword-only
            parameters are the options of the measure.
        labels: Returns the labels of all samples that the numbers depend on.
        timed: Whether the numbers depend on the machine.
        resolve: Completes given options by defaults that depend on the subject.
        uses_statistics: Whether the numbers depend on the running statistics of batch norm.
    """

    find: Callable[..., Finding]
    labels: Callable[[Subject, Mapping[str, Any]], list[Tensor]] = lambda subject, options: subject.labels("report")
    timed: bool = False
    resolve: Callable[[Subject, Mapping[str, Any]], Mapping[str, Any]] = lambda subject, given: given
    uses_statistics: bool = True

    @property
    def defaults(self) -> dict[str, Any]:
        """Defaults of all options."""
        parameters = inspect.signature(self.find).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}

    def options(self, subject: Subject, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all options for a subject.

        Args:
            subject: The subject.
            given: Options by name. Those of other measures are ignored.
        """
        defaults = self.defaults
        resolved = self.resolve(subject, {name: value for name, value in given.items() if name in defaults})
        return {**defaults, **resolved}


def measure(name: str, **traits: Any) -> Callable[[Function], Function]:
    """Register the decorated function as the measure ``name`` of :data:`.names.MEASURES`.

    Args:
        name: Name of the measure and of its module.
        **traits: Fields of :class:`Measure`.
    """

    def register(find: Function) -> Function:
        _REGISTERED[name] = Measure(find, **traits)
        return find

    return register


def measure_named(name: str) -> Measure:
    """Import and return the measure called ``name``.

    Raises:
        ValueError: If there is no such measure.
    """
    if name not in MEASURES:
        raise ValueError(f"no measure {name!r}{nearest(name, MEASURES)}; there are {', '.join(MEASURES)}")
    import_module(f".{name}", __package__)
    return _REGISTERED[name]
