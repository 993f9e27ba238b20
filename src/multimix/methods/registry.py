"""Every mixing method by its name. A method says with ``@register`` all that the rest of the project has to know about it.

Built-in methods are imported by ``methods/__init__.py``. A package of its own names its module as an entry point of the group
``multimix.methods``, which is imported when a name that is not built in is asked for, or all names are listed.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib.metadata import entry_points
from numbers import Number
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, overload

from torch import Generator, Tensor

from ..checks import check_choice, nearest
from .base import Method
from .one_of import OneOf

GROUP = "multimix.methods"
Layout = Literal["images", "points", "any"]
Promise = Literal[
    "target is the pixel share",
    "order in k",
    "partner at 1",
    "a step is K = 1",
    "pairing",
    "geometry",
    "one mask for the batch",
    "signals",
    "volumes",
    "large samples",
]
Options = Mapping[str, Any]
Kind = TypeVar("Kind", bound=type[Method])
NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Look:
    """How ``multimix look`` shows a method on two pictures, where its defaults do not fit or two pictures are not enough.

    ``options(side)`` are those for pictures of so many pixels a side. ``short`` says in few short lines what differs from
    training, ``whole`` in sentences. ``steps(method, a, b, lam, generator, contrast)`` gives pictures ``[K, 3, H, W]`` and the
    shares ``[K]`` of B in them for methods that do not mix pairs; ``contrast(x)`` stands for saliency. Without ``any_lam`` no
    share can be asked for: there are as many steps as ``lam`` has numbers.
    """

    options: Callable[[int], Options] = lambda side: NOTHING
    short: str = ""
    whole: str = ""
    steps: (
        Callable[[Any, Tensor, Tensor, Sequence[float], Generator, Callable[[Tensor], Tensor]], tuple[Tensor, Tensor]] | None
    ) = None
    any_lam: bool = True


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is known about a registered method.

    ``layout`` is what it mixes: batches ``[B, C, …]`` of images, signals or volumes, clouds of points ``[B, N, 3]``, or any
    numbers. ``published`` gives our names of options that the authors call otherwise. ``shared`` and ``order`` are what the K
    steps of a path have in common and whether they are ordered, for the table of methods.

    ``examples`` are the options it is tested with, at least one, with ``"body"`` as the name of a layer; ``exceptions`` name the
    promises of :mod:`multimix.testing` that it does not give, with the reason. ``recipe`` are options for training on a network
    with the layers stage1 … stage3 where a recipe says nothing else, ``small`` those for images of 8 × 8 and a network with the
    layers stage1 and stage2.
    """

    method: type[Method]
    name: str
    aliases: tuple[str, ...] = ()
    summary: str
    layout: Layout = "images"
    published: Mapping[str, str] = field(default_factory=dict)
    shared: str = ""
    order: str = ""
    examples: tuple[Options, ...] = (NOTHING,)
    exceptions: Mapping[Promise, str] = field(default_factory=dict)
    look: Look = field(default_factory=Look)
    recipe: Options = field(default_factory=dict)
    small: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, get_args(Layout))
        for promise in self.exceptions:
            check_choice("promise", promise, get_args(Promise))

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return (self.name, *self.aliases)

    @property
    def options(self) -> tuple[str, ...]:
        """The names of all its options."""
        return tuple(option.name for option in fields(self.method))  # type: ignore[arg-type]  # register asks for a dataclass

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the options that have no default."""
        options = fields(self.method)  # type: ignore[arg-type]
        return tuple(option.name for option in options if option.default is MISSING and option.default_factory is MISSING)

    def mixes(self, layout: str) -> bool:
        """Whether it mixes batches of this layout."""
        return self.layout in (layout, "any")


def register(name: str, *, summary: str = "", **about: Any) -> Callable[[Kind], Kind]:
    """A decorator that makes a method known by ``name``, with all else that :class:`Entry` says about it.

    ``summary``, a line about the method, is the first line of its module's docstring unless given.
    """

    def registered(kind: Kind) -> Kind:
        if not is_dataclass(kind) or not issubclass(kind, Method):
            raise TypeError(
                f"@register({name!r}) must stand above @dataclass(frozen=True, kw_only=True) and a subclass of Method"
            )
        line = (summary or sys.modules[kind.__module__].__doc__ or kind.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        new = Entry(method=kind, name=name, summary=line, **about)
        for key in new.names:
            if key in _by_name():
                raise ValueError(f"the name {key!r} of {kind.__qualname__} is taken by {_by_name()[key].method.__qualname__}")
        kind.name, kind.layout = name, new.layout
        _entries[name] = new
        return kind

    return registered


def entries() -> tuple[Entry, ...]:
    """All registered methods: the built-in ones, then those of plug-ins."""
    _load_plugins()
    return tuple(_entries.values())


def entry(name: str) -> Entry:
    """The method registered under ``name`` or one of its aliases."""
    if not isinstance(name, str) or name not in _by_name():
        _load_plugins()
    known = _by_name()
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"no method {name!r}{nearest(name, known)}; there are {', '.join(_entries)}")
    return known[name]


def create(name: str, **options: Any) -> Method:
    """The method registered under ``name`` or one of its aliases, made with ``options``.

    Options may also come as :func:`to_dict` writes them: lists for tuples, dictionaries for methods and descriptions.

    >>> create("cutmix", k=5).k
    5
    """
    options = {given: _from_plain(value, given) for given, value in options.items()}
    if name == OneOf.name:
        return OneOf(**options)
    known = entry(name)
    for given in options:
        if given not in known.options:
            ours = known.published.get(given)
            hint = f" (it is called {ours!r} here)" if ours else nearest(given, known.options)
            raise ValueError(f"{name} has no option {given!r}{hint}; it has {', '.join(known.options)}")
    for missing in known.required:
        if missing not in options:
            raise ValueError(f"{name} needs {missing}=")
    return known.method(**options)


def to_dict(method: Method) -> dict[str, Any]:
    """``method`` as plain values, for JSON and for files that load with ``weights_only``; ``create(**values)`` makes it again.

    Networks are not in it: use a description such as ``NewBlock`` and keep ``method.modules.state_dict()`` beside it.

    >>> create(**to_dict(create("cutmix", k=5))) == create("cutmix", k=5)
    True
    """
    if not isinstance(method, Method) or not is_dataclass(method):
        raise TypeError(f"to_dict needs a mixing method, got {type(method).__name__}")
    return {"name": method.name, **_options(method)}


def _options(value: Any) -> dict[str, Any]:
    return {option.name: _to_plain(getattr(value, option.name), option.name) for option in fields(value)}


def _to_plain(value: Any, name: str) -> Any:
    if isinstance(value, Method):
        return to_dict(value)
    if isinstance(value, tuple | list):
        return [_to_plain(part, name) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": f"{type(value).__module__}:{type(value).__qualname__}", **_options(value)}
    if isinstance(value, Number) and hasattr(value, "item"):
        return value.item()  # NumPy's
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{name} is a {type(value).__name__}, which cannot be written as plain values")


def _from_plain(value: Any, name: str) -> Any:
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return tuple(_from_plain(part, name) for part in value)
    if not isinstance(value, dict):
        return value
    if "name" in value:
        return create(**value)
    module, _, kind = str(value.get("kind", "")).partition(":")
    # Nothing is imported that a file names: of packages with methods, what is loaded already.
    packages = {known.method.__module__.partition(".")[0] for known in entries()}
    found = getattr(sys.modules.get(module), kind, None) if module.partition(".")[0] in packages else None
    if not isinstance(found, type) or not is_dataclass(found):
        raise ValueError(f"{name} must be what multimix.to_dict writes, got {value!r}")
    return found(**{option: _from_plain(part, option) for option, part in value.items() if option != "kind"})


class _Methods(Sequence[type[Method]]):
    """The classes of all registered methods, read from the registry at every use."""

    @overload
    def __getitem__(self, index: int) -> type[Method]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[type[Method], ...]: ...
    def __getitem__(self, index: int | slice) -> type[Method] | tuple[type[Method], ...]:
        return tuple(entry.method for entry in entries())[index]

    def __len__(self) -> int:
        return len(entries())


METHODS = _Methods()
_entries: dict[str, Entry] = {}
_plugins_are_loaded = False


def _by_name() -> dict[str, Entry]:
    return {key: entry for entry in _entries.values() for key in entry.names}


def _load_plugins() -> None:
    global _plugins_are_loaded
    if _plugins_are_loaded:
        return
    _plugins_are_loaded = True  # before they run: a plug-in may list the methods itself
    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()
        except Exception as error:  # noqa: PERF203  # whatever is wrong with it, the built-in methods work
            said = f"{type(error).__name__}: {error}".replace("\n", " ")
            warnings.warn(f"the multimix plug-in {plugin.name!r} ({plugin.value}) is left out: {said}", stacklevel=4)
