"""Settings from their description: the inverse of :func:`described`, for whoever finds only the folder of a run."""

import re
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from ...methods import METHODS
from ...methods.samix.block import NewBlock
from ...methods.style.small_pair import NewPair
from .schedule import Cosine, Knots, Milestones
from .settings import Augmentation, Data, Network, Optimizer, Phase, Running, Settings

PARTS = {"data": Data, "network": Network, "augment": Augmentation, "optimizer": Optimizer, "running": Running}
NETWORKS = {"block": NewBlock, "pair": NewPair}
SCHEDULES = {kind.__name__: kind for kind in (Milestones, Knots, Cosine)}


def rebuilt(description: Mapping[str, Any]) -> Settings:
    """The settings that ``description`` was made of, as JSON gives it back.

    Fields it does not have, since the run is older than they are, get their defaults; those that no longer exist are refused.
    """
    kinds: dict[str, Any] = {**PARTS, "schedule": SCHEDULES[description["schedule"]]}
    whole: dict[str, Any] = {name: _record(kind, description, f"{name}.") for name, kind in kinds.items()}
    whole["method"] = _method(description)
    whole["phases"] = tuple(_record(Phase, description, f"phases.{i}.") for i in range(_count(description)))
    # A description without phases has the empty list of them, with phases one line for each of their fields.
    plain = {name: _tuples(value) for name, value in description.items() if "." not in name and name not in whole}
    return Settings(**whole, **plain)


def _method(description: Mapping[str, Any]) -> Any:
    found, name = {kind.name: kind for kind in METHODS}, description["method"]
    if name not in found:
        raise ValueError(f"the run was made with method {name!r}, which this version does not have")
    options: Any = fields(found[name])  # type: ignore[arg-type]  # methods are dataclasses
    network = next((option.name for option in options if option.name in NETWORKS), None)
    if network is None:
        return _record(found[name], description, "method.")
    inside = f"method.{network}."
    rest = {key: value for key, value in description.items() if not key.startswith(inside)}
    return _record(found[name], rest, "method.", {network: _record(NETWORKS[network], description, inside)})


def _record(kind: Any, description: Mapping[str, Any], prefix: str, made: Mapping[str, Any] = MappingProxyType({})) -> Any:
    own = {name.removeprefix(prefix): _tuples(value) for name, value in description.items() if name.startswith(prefix)}
    known = {field.name for field in fields(kind)}
    for name in own:
        if name not in known:
            raise ValueError(f"the run has the setting {prefix}{name}, which this version does not have")
    return kind(**own, **made)


def _count(description: Mapping[str, Any]) -> int:
    numbers = [int(found[1]) for name in description if (found := re.match(r"phases\.(\d+)\.", name))]
    return max(numbers, default=-1) + 1


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
