"""Settings as JSON values by dotted names and back; and fields changed by the words of a command line."""

import ast
import io
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import fields, is_dataclass
from itertools import accumulate
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ...checks import nearest
from ...methods import METHODS, Method

Kind = TypeVar("Kind")
IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "none"}


def describe(settings: Any) -> dict[str, Any]:
    """Every field by its dotted name, as a JSON value; where a field may hold one of several classes, one line names the class.

    >>> from multimix.lab.recipes.schedule import Milestones
    >>> describe(Milestones(0.1, at=(3.0,)))
    {'rate': 0.1, 'at': [3.0], 'factor': 0.1, 'warmup': 0.0}
    """
    return {name: _lists(value) for name, _, value in _walk(settings, "")}


def rebuild(kind: type[Kind], description: Mapping[str, Any], prefix: str = "") -> Kind:
    """What :func:`describe` was given, from its result after a trip through JSON.

    Fields that are missing, because the run is older than they are, get their defaults; unknown ones are a ValueError.
    """
    description = _renamed(description)
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
            part = get_args(hints[name])[0]
            given[name] = tuple(rebuild(part, description, f"{path}.{i}.") for i in range(count))
        elif _choices(hints[name]):
            given[name] = rebuild(_chosen(hints[name], description.get(path)), description, f"{path}.")
        elif path in description:
            given[name] = _tuples(description[path])
    return kind(**given)


def _renamed(description: Mapping[str, Any]) -> Mapping[str, Any]:
    """A description of an older version in the words of this one: the scale of a loss followed from the training loss then."""
    scale = "per_class" if description.get("loss") == "softmax_bce" else "plain"
    changes: dict[str, Any] = {}
    if description.get("method.clean_scale") == "auto":
        changes["method.clean_scale"] = scale
    if description.get("method") == "recursivemix" and "method.omega_scale" not in description:
        changes["method.omega_scale"] = scale
    if "method.clean" in description:
        changes["method.clean_weight"] = description["method.clean"]
    return {name: value for name, value in {**description, **changes}.items() if name != "method.clean"}


def apply_changes(settings: Kind, changes: Mapping[str, str]) -> Kind:
    """``settings`` with each field named by a dotted path set to what its words say; a number is a position in a tuple.

    All change together: a dataclass checks its values once, when all new ones are in. What it raises is passed on.

    >>> from multimix.lab.recipes.schedule import Milestones
    >>> apply_changes(Milestones(0.1), {"rate": "0.2", "at": "100, 200"})
    Milestones(rate=0.2, at=(100.0, 200.0), factor=0.1, warmup=0.0)
    """
    if not changes:
        return settings
    import tyro

    hints = {name: hint for name, hint, _ in _walk(settings, "")}
    words: list[str] = []
    for given, text in changes.items():
        name = given.replace("-", "_")
        is_list = _holds_list(hints.get(name)) or any(known.startswith(f"{name}.0.") for known in hints)
        if is_list and text.strip("()[] ") == "":
            others = {path: value for path, value in describe(settings).items() if not path.startswith(f"{name}.")}
            settings = rebuild(type(settings), {**others, name: []})
            continue
        if hints.get(name) is None:
            raise ValueError(_unknown(name, hints))
        text = _tidy(name, hints[name], text)
        if _beyond_tyro(hints[name], text):
            settings = rebuild(type(settings), {**describe(settings), name: _literal(name, hints[name], text)})
        else:
            own = _words(text, hints[name])
            length = get_args(hints[name])
            if get_origin(hints[name]) is tuple and Ellipsis not in length and len(own) != len(length):
                raise _misfit(name, hints[name], text)
            words += [f"--{name}", *own]
    config = (tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return tyro.cli(type(settings), default=settings, args=words, config=config)
    except SystemExit:
        raise ValueError(_one_sentence(complaint.getvalue(), hints, changes)) from None


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
        return [*METHODS]
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


def _tidy(name: str, hint: Any, text: str) -> str:
    """Whole numbers such as 1e2 written out, as tyro wants them. Numbers must be finite, and lists complete: no 1,,2 or (1, 2."""
    kinds = list(_kinds(hint))
    if _holds_list(hint):
        depths = list(accumulate({"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0) for sign in text))
        no_value = re.search(r"(^|[,(\[])\s*,", text)
        no_comma = str not in kinds and re.search(r"[^\s,(\[]\s+[^\s,)\]]", text)
        if min(depths) < 0 or depths[-1] != 0 or no_value or no_comma:
            raise _misfit(name, hint, text)
    if str in kinds or not {int, float} & {*kinds}:
        return text

    def number(match: re.Match[str]) -> str:
        try:
            value = float(match[0])
        except ValueError:
            return match[0]
        if not math.isfinite(value):
            raise _misfit(name, hint, text)
        # A whole number stays as it is: a float would round a large seed.
        whole = float not in kinds and value.is_integer() and not re.fullmatch(r"[+-]?\d+", match[0])
        return str(int(value)) if whole else match[0]

    return re.sub(r"[^\s,()\[\]]+", number, text)


def _words(text: str, hint: Any) -> list[str]:
    """The words of a value as tyro takes them, from a list with or without brackets."""
    kinds = list(_kinds(hint))
    if _holds_list(hint):
        text = re.sub(r"^\s*[(\[](.*)[)\]]\s*$", r"\1", text)
        # Words may have brackets of their own, such as width=(8, 16).
        words = re.split(r",(?![^(\[]*[)\]])" if str in kinds else r"[\s,()\[\]]+", text)
        words = [word.strip(" '\"") for word in words if word.strip()]
    else:
        words = [text.strip()]
    python = {"none": "None", "null": "None"} if type(None) in kinds else {}
    if bool in kinds:
        python |= dict.fromkeys(("true", "yes", "on", "1"), "True") | dict.fromkeys(("false", "no", "off", "0"), "False")
    return [python.get(word.lower(), word) for word in words]


def _kinds(hint: Any) -> Iterator[Any]:
    """A type and all that it is made of."""
    yield hint
    for inner in get_args(hint) if get_origin(hint) in (tuple, Union, UnionType) else ():
        yield from _kinds(inner) if inner is not Ellipsis else ()


def _holds_list(hint: Any) -> bool:
    return any(get_origin(kind) is tuple for kind in _kinds(hint))


def _beyond_tyro(hint: Any, text: str) -> bool:
    """Whether tyro cannot take the value: numbers beside lists of them, or a word where an object may be, too."""
    kinds = list(_kinds(hint))
    nested = get_origin(hint) is tuple and get_origin(get_args(hint)[0]) in (Union, UnionType) and str not in kinds
    objects = [kind for kind in kinds if kind not in IN_WORDS and get_origin(kind) not in (tuple, Literal, Union, UnionType)]
    return bool(objects or (nested and re.search(r"[(\[]", text)))


def _literal(name: str, hint: Any, text: str) -> Any:
    """The value as Python writes it; none and words that the type lists need no quotes."""
    if text in [word for kind in _kinds(hint) if get_origin(kind) is Literal for word in get_args(kind)]:
        return text
    try:
        return None if text.lower() == "none" else _lists(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        raise _misfit(name, hint, text) from None


def _one_sentence(complaint: str, hints: Mapping[str, Any], changes: Mapping[str, str]) -> str:
    """What tyro says between the first two rules of its box: a value that does not fit its type, or what a dataclass raised."""
    sentence = " ".join(re.sub("[│╭╮╰╯]", " ", re.split(r"[─-]{3,}", complaint)[1]).split())
    for given, text in changes.items():
        if re.search(rf"--{re.escape(given.replace('_', '-'))}(?![\w.-])", sentence.replace("_", "-")):
            return str(_misfit(given, hints[given.replace("-", "_")], text))
    return re.sub(r"^Error parsing [\w.]+: ", "", sentence)


def _misfit(name: str, hint: Any, text: str) -> ValueError:
    return ValueError(f"{name} must be {_in_words(hint)}, got {text!r}")


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
