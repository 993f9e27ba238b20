"""Fields of nested frozen dataclasses changed by dotted names, as the command line gives them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ...checks import nearest

Settings = TypeVar("Settings")
Change = tuple[list[str], str]


def overridden(settings: Settings, changes: Mapping[str, str]) -> Settings:
    """``settings`` with each field named by a dotted path set to what the words say; a number is a position in a tuple.

    What belongs together is changed together: a dataclass checks itself once, when all its new values are in. What it raises
    then is passed on as it is.

    >>> from multimix.lab.recipes.schedule import Milestones
    >>> overridden(Milestones(0.1), {"rate": "0.2", "at": "100, 200"})
    Milestones(rate=0.2, at=(100.0, 200.0), factor=0.1, warmup=0.0)
    """
    parted = [(path.replace("-", "_").split("."), words) for path, words in changes.items()]
    changed: Settings = _changed(settings, parted, "")
    return changed


def _changed(value: Any, changes: list[Change], name: str) -> Any:
    """``value``, which is called ``name``, with all changes inside it made at once."""
    parts, new = _parts(value), dict[str, Any]()
    for first in dict.fromkeys(path[0] for path, _ in changes):
        if first not in parts:
            raise ValueError(_unknown(first, value, name))
        whole, part = f"{name}.{first}" if name else first, parts[first]
        for words in (words for path, words in changes if path == [first]):
            part = _set(value, first, words, whole)
        deeper = [(path[1:], words) for path, words in changes if path[0] == first and len(path) > 1]
        new[first] = _changed(part, deeper, whole) if deeper else part
    if not isinstance(value, tuple):
        return replace(value, **new)
    return tuple((parts | new).values())


def _parts(value: Any) -> dict[str, Any]:
    """What a path may go into: the fields of a dataclass, the positions of a tuple of dataclasses."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {str(i): part for i, part in enumerate(value)} if _holds_dataclasses(value) else {}


def _holds_dataclasses(value: Any) -> bool:
    return isinstance(value, tuple) and all(is_dataclass(part) for part in value)


def _set(settings: Any, name: str, words: str, whole: str) -> Any:
    """What the words say for one field, or one sentence why they cannot."""
    value = _parts(settings)[name]
    empties = isinstance(value, tuple) and words.strip("()[] ") == ""
    if is_dataclass(value) or (value and _holds_dataclasses(value) and not empties):
        inner, there = (value, whole) if is_dataclass(value) else (value[0], f"{whole}.0")
        raise ValueError(
            f"{whole} has fields of its own, set one of them: {', '.join(f'{there}.{key}' for key in _parts(inner))}"
        )
    hint = get_type_hints(type(settings))[name]
    try:
        return _read(words, hint)
    except _UnreadableError:
        raise ValueError(f"{whole} must be {_described(hint)}, got {words!r}") from None


def _unknown(wrong: str, value: Any, name: str) -> str:
    names, where = list(_parts(value)), f" in {name}" if name else ""
    if isinstance(value, tuple) and not _holds_dataclasses(value):
        return f"no field {wrong!r}{where}: it is a list of plain values, set {name} as a whole"
    word, hint = ("position", "") if isinstance(value, tuple) else ("field", nearest(wrong, names))
    return f"no {word} {wrong!r}{where}{hint}; there are {', '.join(names) or 'none'}"


class _UnreadableError(Exception):
    """The words do not fit the type."""


def _read(words: str, hint: Any) -> Any:
    """``words`` as a value of the type ``hint``."""
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # None and numbers before words, which take anything.
        return _first([partial(_read, words, choice) for choice in sorted(choices, key=lambda choice: choice is str)])
    if origin is Literal:
        found = [choice for choice in choices if words.strip() == str(choice)]
        if not found:
            raise _UnreadableError
        return found[0]
    if origin is tuple:
        return _first([partial(_read_parts, inside, choices) for inside in _insides(words.strip())])
    return _plain(words.strip(), hint)


def _first(attempts: list[Callable[[], Any]]) -> Any:
    """What the first attempt gives that can read the words."""
    try:
        return attempts[0]()
    except _UnreadableError:
        if len(attempts) == 1:
            raise
    return _first(attempts[1:])


def _insides(words: str) -> list[str]:
    """Where the parts of a list may stand: first between the brackets, if one pair encloses all of it, then in ``words``."""
    depths = _depths(words)
    enclosed = words[:1] in ("(", "[") and depths.index(0) == len(words) - 1
    return [words[1:-1], words] if enclosed else [words]


def _depths(words: str) -> list[int]:
    """How many brackets are open after each character; in the end and on the way they must fit."""
    depths = list(accumulate({"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0) for sign in words))
    if depths and (min(depths) < 0 or depths[-1] != 0):
        raise _UnreadableError
    return depths


def _read_parts(words: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple of ``kinds`` from parts between commas that stand in no bracket; a comma may end it."""
    commas = [i for i, (sign, depth) in enumerate(zip(words, _depths(words), strict=True)) if sign == "," and depth == 0]
    parts = [words[left + 1 : right].strip() for left, right in pairwise([-1, *commas, len(words)])]
    if parts[-1] == "":
        parts = parts[:-1]
    inner = kinds[:1] * len(parts) if kinds[-1:] == (Ellipsis,) else kinds
    if len(inner) != len(parts) or "" in parts:
        raise _UnreadableError
    return tuple(_read(part, kind) for part, kind in zip(parts, inner, strict=True))


def _plain(words: str, hint: Any) -> Any:
    if hint is type(None) and words.lower() in ("none", "null"):
        return None
    if hint is bool and words.lower() in ("true", "yes", "on", "1", "false", "no", "off", "0"):
        return words.lower() in ("true", "yes", "on", "1")
    if hint in (int, float):
        return _number(words, hint)
    if hint is str:
        # Python writes the words of a tuple in quotes.
        return words[1:-1] if len(words) > 1 and words[0] == words[-1] and words[0] in "'\"" else words
    raise _UnreadableError


def _number(words: str, hint: type[int] | type[float]) -> int | float:
    try:
        if hint is int and words.isdecimal():
            return int(words)  # not through a float, which would round a large seed
        value = float(words)
    except ValueError:
        raise _UnreadableError from None
    if not math.isfinite(value) or (hint is int and not value.is_integer()):
        raise _UnreadableError
    return hint(value)


def _described(hint: Any) -> str:
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_described(choice) for choice in choices)
    if origin is Literal:
        return f"one of {', '.join(map(str, choices))}"
    if origin is tuple and choices[-1:] == (Ellipsis,):
        return f"a list of values ({_described(choices[0])})"
    if origin is tuple:
        return f"{len(choices)} values ({', '.join(map(_described, choices))})"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "none"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))
