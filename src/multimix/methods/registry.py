"""Registry of mixing methods by name.

``methods/__init__.py`` imports the built-in methods. A plug-in package declares its module as an
entry point of the group ``multimix.methods``. The module is imported when an unknown name is
requested or all methods are listed.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from importlib.metadata import entry_points
from numbers import Number
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from ..core.checks import check_choice, nearest
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
NO_OPTIONS: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered method.

    Args:
        method: The class.
        name: Its name for :func:`create`.
        aliases: Other names.
        summary: One line about the method.
        layout: Layout of the samples: ``images`` (``[B, C, …]`` signals, images or volumes),
            ``points`` (clouds ``[B, N, 3]``), or ``any``.
        published: Maps option names of the authors' code to the names used here, for error hints.
        shared: Quantities that the K steps of a path share, for the table of methods.
        order: How the steps are ordered, for the table of methods.
        examples: Options to test the method with; ``"body"`` is the name of a layer.
        exceptions: Checks of :mod:`multimix.testing` that do not apply, with the reason.

    Raises:
        ValueError: If the layout or a key of ``exceptions`` is unknown.
    """

    method: type[Method]
    name: str
    aliases: tuple[str, ...] = ()
    summary: str
    layout: Layout = "images"
    published: Mapping[str, str] = field(default_factory=dict)
    shared: str = ""
    order: str = ""
    examples: tuple[Options, ...] = (NO_OPTIONS,)
    exceptions: Mapping[Promise, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, get_args(Layout))
        for promise in self.exceptions:
            check_choice("promise", promise, get_args(Promise))

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the aliases."""
        return (self.name, *self.aliases)

    @property
    def options(self) -> tuple[str, ...]:
        """The names of all options."""
        return tuple(option.name for option in _fields(self.method))

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the options without a default."""
        return tuple(
            option.name
            for option in _fields(self.method)
            if option.default is MISSING and option.default_factory is MISSING
        )

    def mixes(self, layout: str) -> bool:
        """Return whether the method mixes batches of a layout.

        Args:
            layout: ``images`` or ``points``.

        Returns:
            True for the method's own layout, and always for methods of ``any`` layout.
        """
        return self.layout in (layout, "any")


def register(name: str, *, summary: str = "", **about: Any) -> Callable[[Kind], Kind]:
    """Register a method. Use it as a decorator above ``@dataclass(frozen=True, kw_only=True)``.

    Args:
        name: The name for :func:`create`.
        summary: One line about the method. The default is the first line of its module's docstring.
        **about: Other fields of :class:`Entry`.

    Returns:
        The decorator.

    Raises:
        TypeError: If the class is not a dataclass derived from Method.
        ValueError: If a name is taken.

    Example::

        @register("my_mix")
        @dataclass(frozen=True, kw_only=True)
        class MyMix(PairMethod): ...
    """

    def decorate(kind: Kind) -> Kind:
        if not is_dataclass(kind) or not issubclass(kind, Method):
            raise TypeError(
                f"@register({name!r}) must be above @dataclass(frozen=True, kw_only=True) and a "
                "subclass of Method"
            )
        text = summary or sys.modules[kind.__module__].__doc__ or kind.__doc__ or ""
        line = text.strip().partition("\n")[0].rstrip(".")
        new = Entry(method=kind, name=name, summary=line, **about)
        taken = _by_name()
        for key in new.names:
            if key in taken:
                owner = taken[key].method.__qualname__
                raise ValueError(f"name {key!r} of {kind.__qualname__} is taken by {owner}")
        kind.name, kind.layout = name, new.layout
        _entries[name] = new
        return kind

    return decorate


def entries() -> tuple[Entry, ...]:
    """List all registered methods. Plug-ins are loaded at the first call.

    Returns:
        The built-in methods, then those of plug-ins, in the order of registration.
    """
    _load_plugins()
    return tuple(_entries.values())


def entry(name: str) -> Entry:
    """Return the method registered under a name or an alias.

    Args:
        name: A name or an alias.

    Returns:
        The entry.

    Raises:
        ValueError: If no method has this name.
    """
    if name not in _by_name():
        _load_plugins()
    known = _by_name()
    if name not in known:
        names = ", ".join(_entries)
        raise ValueError(f"no method {name!r}{nearest(name, known)}; there are {names}")
    return known[name]


def create(name: str, **options: Any) -> Method:
    """Create a method by name.

    Args:
        name: A registered name or alias, or ``"one_of"``.
        **options: Options of the method. The plain values of :func:`to_dict` are also accepted:
            lists for tuples, dictionaries for methods and descriptions of networks.

    Returns:
        The method.

    Raises:
        TypeError: If an option is unknown, or a required one is missing.
        ValueError: If the name is unknown, or the value of an option is invalid.

    Example::

        >>> create("cutmix", k=5).k
        5
    """
    options = {option: _from_plain(value, option) for option, value in options.items()}
    if name == OneOf.name:
        return OneOf(**options)
    known = entry(name)
    for option in options:
        if option not in known.options and option in known.published:
            ours = known.published[option]
            raise TypeError(f"{name} has no option {option!r} (called {ours!r} here)")
    return known.method(**options)


def to_dict(method: Method) -> dict[str, Any]:
    """Convert a method to plain values, for JSON and for files loaded with ``weights_only``.

    Networks cannot be converted: use a description such as ``NewBlock`` and save
    ``method.modules.state_dict()`` beside it.

    Args:
        method: A method.

    Returns:
        The name and all options. ``create(**values)`` creates an equal method.

    Raises:
        TypeError: If ``method`` is not a mixing method.
        ValueError: If an option is a network or another object without plain values.

    Example::

        >>> create(**to_dict(create("cutmix", k=5))) == create("cutmix", k=5)
        True
    """
    if not isinstance(method, Method):
        raise TypeError(f"method must be a mixing method, got {type(method).__name__}")
    return {"name": method.name, **_options(method)}


def _fields(value: Any) -> tuple[Field[Any], ...]:
    return fields(value)


def _options(value: Any) -> dict[str, Any]:
    return {
        option.name: _to_plain(getattr(value, option.name), option.name)
        for option in _fields(value)
    }


def _to_plain(value: Any, name: str) -> Any:
    if isinstance(value, Method):
        return to_dict(value)
    if isinstance(value, tuple | list):
        return [_to_plain(part, name) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        return {"kind": kind, **_options(value)}
    if isinstance(value, Number) and hasattr(value, "item"):
        return value.item()  # a NumPy scalar
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{name} must have plain values, got a {type(value).__name__}")


def _from_plain(value: Any, name: str) -> Any:
    if type(value) in (list, tuple):
        return tuple(_from_plain(part, name) for part in value)
    if not isinstance(value, dict):
        return value
    if "name" in value:
        return create(**value)
    module, _, kind = str(value.get("kind", "")).partition(":")
    # Loading a file must not import modules: search loaded modules of packages with methods.
    packages = {known.method.__module__.partition(".")[0] for known in entries()}
    is_trusted = module.partition(".")[0] in packages
    description = getattr(sys.modules.get(module), kind, None) if is_trusted else None
    if not isinstance(description, type) or not is_dataclass(description):
        raise ValueError(f"{name} must be a result of multimix.to_dict, got {value!r}")
    options = {option: _from_plain(part, option) for option, part in value.items()}
    del options["kind"]
    return description(**options)


_entries: dict[str, Entry] = {}
_plugins_are_loaded = False


def _by_name() -> dict[str, Entry]:
    return {key: known for known in _entries.values() for key in known.names}


def _load_plugins() -> None:
    global _plugins_are_loaded
    if _plugins_are_loaded:
        return
    _plugins_are_loaded = True  # set first, because a plug-in may list the methods
    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()
        except Exception as error:  # noqa: PERF203  # built-in methods must keep working
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")
            warnings.warn(
                f"the multimix plug-in {plugin.name!r} ({plugin.value}) is skipped: {reason}",
                stacklevel=4,
            )
