"""Fields of nested frozen dataclasses changed by dotted names, as the command line gives them."""

import ast
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ...checks import nearest

Settings = TypeVar("Settings")


def overridden(settings: Settings, changes: Mapping[str, str]) -> Settings:
    """``settings`` with each field named by a dotted path set to what the words say.

    >>> from multimix.lab.training.schedule import Milestones
    >>> overridden(Milestones(0.1), {"rate": "0.2", "at": "100, 200"})
    Milestones(rate=0.2, at=(100.0, 200.0), factor=0.1, warmup=0.0)
    """
    for path, words in changes.items():
        settings = _changed(settings, path.replace("-", "_").split("."), words, path)
    return settings


def _changed(settings: Any, path: list[str], words: str, whole: str) -> Any:
    names = [field.name for field in fields(settings)] if is_dataclass(settings) else []
    if path[0] not in names:
        inside = ".".join(whole.split(".")[: -len(path)])
        where = f" in {inside}" if inside else ""
        raise ValueError(f"no field {path[0]!r}{where}{nearest(path[0], names)}; there are {', '.join(names) or 'none'}")
    value = getattr(settings, path[0])
    if len(path) > 1:
        return replace(settings, **{path[0]: _changed(value, path[1:], words, whole)})
    if is_dataclass(value):
        inner = ", ".join(f"{whole}.{field.name}" for field in fields(value))
        raise ValueError(f"{whole} has fields of its own, set one of them: {inner}")
    hint = get_type_hints(type(settings))[path[0]]
    try:
        return replace(settings, **{path[0]: _read(words, hint)})
    except _UnreadableError:
        raise ValueError(f"{whole} must be {_described(hint)}, got {words!r}") from None


class _UnreadableError(Exception):
    """The words do not fit the type."""


def _read(words: str, hint: Any) -> Any:
    """``words`` as a value of the type ``hint``."""
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # None and numbers before words, which take anything.
        return _read_first(words, sorted(choices, key=lambda choice: choice is str))
    if origin is Literal:
        for choice in choices:
            if words == str(choice):
                return choice
        raise _UnreadableError
    if origin is tuple:
        parts = [part.strip() for part in words.strip("()[] ").split(",") if part.strip()]
        inner = choices[:1] * len(parts) if choices[-1:] == (Ellipsis,) else choices
        if len(inner) != len(parts):
            raise _UnreadableError
        return tuple(_read(part, kind) for part, kind in zip(parts, inner, strict=True))
    return _plain(words, hint)


def _read_first(words: str, choices: list[Any]) -> Any:
    """``words`` as a value of the first type that fits."""
    try:
        return _read(words, choices[0])
    except _UnreadableError:
        if len(choices) == 1:
            raise
        return _read_first(words, choices[1:])


def _plain(words: str, hint: Any) -> Any:
    if hint is type(None):
        if words.lower() in ("none", "null"):
            return None
        raise _UnreadableError
    if hint is bool:
        if words.lower() in ("true", "yes", "on", "1", "false", "no", "off", "0"):
            return words.lower() in ("true", "yes", "on", "1")
        raise _UnreadableError
    if hint in (int, float):
        try:
            value = ast.literal_eval(words.strip())
        except (ValueError, SyntaxError):
            raise _UnreadableError from None
        if isinstance(value, bool) or not isinstance(value, int | float) or (hint is int and value != int(value)):
            raise _UnreadableError
        return hint(value)
    if hint is str:
        return words
    raise _UnreadableError


def _described(hint: Any) -> str:
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_described(choice) for choice in choices)
    if origin is Literal:
        return f"one of {', '.join(map(str, choices))}"
    if origin is tuple:
        return f"a list of {_described(choices[0])}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "none"}
    return words.get(hint, str(hint))
