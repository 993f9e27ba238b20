"""Options of measures from the command line."""

from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from ...core.checks import nearest
from ..recipes.serialise import parse_value
from .base import measure_named
from .names import MEASURES
from .subject import View


def option_types(name: str) -> dict[str, Any]:
    """Return the types of a measure's options by name.

    Args:
        name: Name of the measure.
    """
    measure = measure_named(name)
    hints = get_type_hints(measure.find)
    return {option: hints[option] for option in measure.defaults}


def parse_options(texts: Mapping[str, str], on: Sequence[str]) -> tuple[dict[str, Any], View]:
    """Parse options of measures, and of the view of a network that was not trained here.

    Args:
        texts: Unparsed values by name.
        on: Names of the measures.

    Returns:
        Options of the measures by name, and the view.

    Raises:
        ValueError: If none of the measures takes an option, or a value does not have its type.
    """
    types = {option: hint for name in on for option, hint in option_types(name).items()}
    view_types = get_type_hints(View)
    options, view = {}, {}
    for typed, text in texts.items():
        name = typed.replace("-", "_")
        if name in types:
            options[name] = parse_value(name, text, types[name])
        elif name in view_types:
            view[name] = parse_value(name, text, view_types[name])
        else:
            raise ValueError(_unknown(name))
    return options, View(**view)


def _unknown(name: str) -> str:
    options = {measure: tuple(option_types(measure)) for measure in MEASURES}
    takers = [measure for measure, names in options.items() if name in names]
    if takers:
        return f"{name} is an option of {' and '.join(takers)}; add {takers[0]} to --on"
    names_of_all = dict.fromkeys([*(option for names in options.values() for option in names), *View._fields])
    lists = "; ".join(f"{measure} takes {', '.join(names)}" for measure, names in options.items() if names)
    return (
        f"no measure has an option {name!r}{nearest(name, names_of_all)}; {lists}; "
        f"a network that was not trained here takes {', '.join(View._fields)}"
    )
