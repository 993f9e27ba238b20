"""In which settings runs differ from each other and from their recipe, in words."""

import json
from collections.abc import Mapping
from typing import Any

from ..recipes.arms import arm_names, arm_settings
from ..recipes.base import Recipe, Scale
from ..recipes.settings import OF_THE_MACHINE, described


def recipe_settings(recipe: Recipe, scale: Scale, arm: str, k: int) -> dict[str, Any]:
    """The recipe's settings of an arm; without those of the method where the arm cannot be made, since rows outlive code."""
    base = recipe.settings(scale)
    try:
        return plain_settings(described(arm_settings(recipe, base, arm, k))) if arm in arm_names() else _without_method(base)
    except (ValueError, TypeError):
        return _without_method(base)


def _without_method(settings: Any) -> dict[str, Any]:
    return {name: value for name, value in plain_settings(described(settings)).items() if name.partition(".")[0] != "method"}


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are after JSON, without how a machine did it."""
    kept = {name: value for name, value in settings.items() if not name.startswith(OF_THE_MACHINE)}
    return json.loads(json.dumps(kept))  # type: ignore[no-any-return]  # a dictionary comes back as one


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[str, ...]:
    """Dotted names with what they are here and there; those of the method only where both have one."""
    names = [name for name in {**here, **there} if here.get(name, "unset") != there.get(name, "unset")]
    if not any(name.partition(".")[0] == "method" for name in there):
        names = [name for name in names if name.partition(".")[0] != "method"]
    return tuple(f"{name} = {_words(here.get(name, 'unset'))}, not {_words(there.get(name, 'unset'))}" for name in names)


def _words(value: Any) -> str:
    """A value as short as it can be told from others that people write."""
    if isinstance(value, list):
        return f"[{', '.join(map(_words, value))}]"
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else str(value)
