"""Settings as JSON values by dotted names and back; and fields changed by the words of a command line."""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from itertools import accumulate, pairwise
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ...core.checks import nearest
from ...methods import Method
from ...methods.registry import entries

Kind = TypeVar("Kind")
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "none"}


def describe(settings: Any) -> dict[str, Any]:
    """Every field by its dotted name, as a JSON value; where a field may hold one of several classes, one line names the class.

    >>> from multimix.lab.recipes.settings import Milestones
    >>> describe(Milestones(0.1, at=(3.0,)))
    {'rate': 0.1, 'at': [3.0], 'factor': 0.1, 'warmup': 0.0}
    """
    return {name: _lists(value) for name, _, value in _walk(settings, "")}


def describe_changes(settings: Any) -> dict[str, Any]:
    """Return the fields that differ from their defaults, by dotted name, as JSON values.

    Fields without a default are always included, and the class of a field that may hold several.

    Args:
        settings: A dataclass.

    Returns:
        Values by dotted name.

    >>> from multimix.lab.recipes.settings import Milestones
    >>> describe_changes(Milestones(0.1, at=(3.0,)))
    {'rate': 0.1, 'at': [3.0]}
    """
    return dict(_walk_changes(settings, None, ""))


def _walk_changes(value: Any, reference: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted names and values of fields that differ from ``reference``, or from their defaults."""
    hints = get_type_hints(type(value))
    for field in fields(value):
        inner, path = getattr(value, field.name), prefix + field.name
        default = _default(field) if reference is None else getattr(reference, field.name)
        if is_dataclass(inner):
            if hints[field.name] is not type(inner):
                yield path, getattr(inner, "name", type(inner).__name__)
            yield from _walk_changes(inner, default if type(default) is type(inner) else None, f"{path}.")
        elif isinstance(inner, tuple) and inner and all(is_dataclass(part) for part in inner):
            for i, part in enumerate(inner):
                yield from _walk_changes(part, None, f"{path}.{i}.")
        elif inner != default:
            yield path, _lists(inner)


def _default(field: Field[Any]) -> Any:
    """The default of a field; MISSING, which equals no value, if it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def rebuild(kind: type[Kind], description: Mapping[str, Any], prefix: str = "") -> Kind:
    """Return the settings that :func:`describe` was given, from its result after a trip through JSON.

    Args:
        kind: The dataclass of the settings.
        description: Values by dotted name; a field that is missing gets its default.
        prefix: The dotted name of ``kind`` in ``description``, with a dot at its end.

    Raises:
        ValueError: ``description`` has a field or a method that this version does not have.
    """
    hints, given = get_type_hints(kind), dict[str, Any]()
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass, which typing cannot say
    for path in description:
        if path.startswith(prefix) and (name := path.removeprefix(prefix)).split(".")[0] not in names:
            raise ValueError(f"the run has the setting {prefix}{name}, which this version does not have")
    for name in names:
        path = prefix + name
        inner = [key for key in description if key.startswith(f"{path}.")]
        if get_origin(hints[name]) is tuple and inner:
            count = 1 + max(int(key[len(path) + 1 :].split(".")[0]) for key in inner)
            if count > len(inner):
                raise ValueError(f"the run has {path}.{count - 1}, but not those before it")
            part = get_args(hints[name])[0]
            given[name] = tuple(rebuild(part, description, f"{path}.{i}.") for i in range(count))
        elif _choices(hints[name]):
            given[name] = rebuild(_chosen(hints[name], description.get(path)), description, f"{path}.")
        elif path in description:
            given[name] = _tuples(description[path])
    return kind(**given)


def apply_changes(settings: Kind, changes: Mapping[str, str]) -> Kind:
    """``settings`` with each field named by a dotted path set to what its words say; a number is a position in a tuple.

    All change together: a dataclass checks its values once, when all new ones are in. What it raises is passed on. Not by tyro,
    which takes neither lists in lists nor a word where an object may be, too.

    >>> from multimix.lab.recipes.settings import Milestones
    >>> apply_changes(Milestones(0.1), {"rate": "0.2", "at": "100, 200"})
    Milestones(rate=0.2, at=(100.0, 200.0), factor=0.1, warmup=0.0)
    """
    hints = {name: hint for name, hint, _ in _walk(settings, "") if hint is not None}
    values: dict[str, Any] = {}
    for given, text in changes.items():
        name = given.replace("-", "_")
        if any(known.startswith(f"{name}.0.") for known in hints) and text.strip("()[] ") == "":
            values[name] = ()
        elif name not in hints:
            raise ValueError(_unknown(name, hints))
        else:
            values[name] = parse_value(name, text, hints[name])
    return cast(Kind, _replace_fields(settings, values)) if values else settings


def parse_value(name: str, text: str, hint: Any) -> Any:
    """Parse a value from the command line.

    Args:
        name: What the error calls it.
        text: The value, with commas between the parts of a tuple.
        hint: Its type.

    Raises:
        ValueError: If ``text`` is not a value of this type.

    >>> parse_value("ks", "1,5", tuple[int, ...])
    (1, 5)
    """
    try:
        return _parse(text.strip(), hint)
    except (ValueError, SyntaxError):
        raise ValueError(f"{name} must be {_in_words(hint)}, got {text!r}") from None


def _replace_fields(value: Any, changes: Mapping[str, Any]) -> Any:
    """A dataclass or a tuple of them with new values by dotted names."""
    inside: dict[str, dict[str, Any]] = {}
    for path, new in changes.items():
        first, _, rest = path.partition(".")
        inside.setdefault(first, {})[rest] = new
    before = {str(i): part for i, part in enumerate(value)} if isinstance(value, tuple) else vars(value)
    after = {name: own[""] if "" in own else _replace_fields(before[name], own) for name, own in inside.items()}
    if isinstance(value, tuple):
        return tuple({**before, **after}.values())
    return replace(value, **after)


def _walk(value: Any, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and value of every field that is no dataclass; without a type, the name of the class that a field holds."""
    hints = get_type_hints(type(value))
    for field in fields(value):
        inner, path = getattr(value, field.name), prefix + field.name
        if is_dataclass(inner):
            if field.name in ("method", "schedule"):
                yield path, None, getattr(inner, "name", type(inner).__name__)
            yield from _walk(inner, f"{path}.")
        elif isinstance(inner, tuple) and inner and all(is_dataclass(part) for part in inner):
            for i, part in enumerate(inner):
                yield from _walk(part, f"{path}.{i}.")
        else:
            yield path, hints[field.name], inner


def _choices(hint: Any) -> list[Any]:
    """The dataclasses that a field of this type may hold."""
    if hint is Method:
        return [entry.method for entry in entries()]
    return [kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)] if get_origin(hint) is not tuple else []


def _chosen(hint: Any, name: str | None) -> Any:
    choices = {getattr(kind, "name", kind.__name__) if name else None: kind for kind in _choices(hint)}
    if name not in choices:
        raise ValueError(f"the run was made with method {name!r}, which this version does not have")
    return choices[name]


def _unknown(name: str, hints: Mapping[str, Any]) -> str:
    inside = [known for known in hints if known.startswith(f"{name}.")]
    if inside:
        return f"{name} has fields of its own, set one of them: {', '.join(inside)}"
    return f"no field {name!r}{nearest(name, hints)}; --show lists all fields"


def _parse(text: str, hint: Any) -> Any:
    """The value of a type that the words say; a ValueError or SyntaxError if they say none."""
    origin, kinds, word = get_origin(hint), get_args(hint), text.lower()
    if origin in (Union, UnionType):
        # A word that is listed comes before none, and none before any other word.
        listed = [kind for kind in kinds if get_origin(kind) is Literal]
        for kind in (*listed, *(kind for kind in kinds if kind is type(None)), *kinds):
            with suppress(ValueError, SyntaxError):
                return _parse(text, kind)
    elif origin is tuple:
        return _parse_list(text, kinds)
    elif origin is Literal and text in map(str, kinds):
        return next(choice for choice in kinds if str(choice) == text)
    elif hint is bool and word in TRUE + FALSE:
        return word in TRUE
    elif hint is type(None) and word in ("none", "null"):
        return None
    elif hint is str:
        return text.strip("'\"")
    elif hint is int and re.fullmatch(r"[+-]?\d+", text):
        return int(text)  # not through a float, which would round a large seed
    elif hint in (int, float) and math.isfinite(number := float(text)) and (hint is float or number.is_integer()):
        return hint(number)
    elif hint not in IN_WORDS and origin is not Literal:
        return _tuples(ast.literal_eval(text))
    raise ValueError


def _parse_list(text: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a list with or without brackets; its parts may be lists, and words with brackets such as width=(8, 16)."""
    depths = list(accumulate({"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0) for sign in text))
    if depths and (min(depths) < 0 or depths[-1] != 0):
        raise ValueError
    if depths and depths[0] == 1 and 0 not in depths[:-1]:
        with suppress(ValueError, SyntaxError):
            return _parse_list(text[1:-1].strip(), kinds)
    commas = [place for place, sign in enumerate(text) if sign == "," and depths[place] == 0]
    parts = [text[start + 1 : end].strip() for start, end in pairwise([-1, *commas, len(text)])]
    if parts[-1] == "":  # after a last comma, or of an empty list
        parts.pop()
    wanted = [kinds[0]] * len(parts) if kinds[-1] is Ellipsis else kinds
    if len(parts) != len(wanted) or "" in parts:
        raise ValueError
    return tuple(map(_parse, parts, wanted))


def _in_words(hint: Any) -> str:
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_in_words, choices))
    if origin is Literal:
        return f"one of {', '.join(map(str, choices))}"
    if origin is tuple:
        kinds = (f"each {_in_words(choices[0])}",) if choices[-1] is Ellipsis else map(_in_words, choices)
        return f"a list ({', '.join(kinds)})"
    return IN_WORDS.get(hint, "an object (in Python)")


def _lists(value: Any) -> Any:
    return [_lists(part) for part in value] if isinstance(value, tuple | list) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
