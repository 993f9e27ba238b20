"""What a checkpoint of a training holds besides tensors, checked once: a sound file may hold anything."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, get_args, get_type_hints

from torch import Tensor

from .checkpoint import Checkpoint, unflatten
from .log import Epoch

SUMS = ("updates", "loss", "accuracy", "images", "rows", "seconds", "cpu_seconds")  # of an epoch that has begun


@dataclass
class Position:
    """Where a training is: ``epoch`` and ``step`` of the next update, and the sums of the running epoch."""

    epoch: int = 0
    step: int = 0
    updates: int = 0
    history: list[Epoch] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)


class State(NamedTuple):
    """A training between two updates. ``pixels`` is None in checkpoints of older versions; ``carried`` has all shares."""

    seed: int
    settings: str
    samples: str
    pixels: str | None
    at: Position
    network: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    method: Mapping[str, Any] | None
    scaler: Mapping[str, Any] | None
    carried: tuple[Mapping[str, Tensor], ...]


def state_of(checkpoint: Checkpoint) -> State:
    """The state in a checkpoint, or a ValueError that says which part of it is odd."""
    values = checkpoint.values
    carried = unflatten(checkpoint, "carried") if "carried" in values else {"shares": ()}
    shares = carried.get("shares") if isinstance(carried, Mapping) else None
    if not isinstance(shares, tuple) or not all(isinstance(share, Mapping) for share in shares):
        raise ValueError("its carried is odd")
    return State(
        seed=_typed(values, "seed", int),
        settings=_typed(values, "settings", str),
        samples=_typed(values, "samples", str),
        pixels=_typed(values, "pixels", str) if "pixels" in values else None,
        at=_position(_typed(values, "at", dict)),
        network=part_of(checkpoint, "network"),
        optimizer=part_of(checkpoint, "optimizer"),
        method=part_of(checkpoint, "method") if "method" in values else None,
        scaler=part_of(checkpoint, "scaler") if "scaler" in values else None,
        carried=shares,
    )


def part_of(checkpoint: Checkpoint, name: str) -> Mapping[str, Any]:
    """A ``state_dict`` in a checkpoint, or a ValueError."""
    part = unflatten(checkpoint, name)
    if not isinstance(part, Mapping):
        raise ValueError(f"its {name} is odd")
    return part


def _typed(values: Mapping[str, Any], name: str, kind: type) -> Any:
    value = values.get(name)
    if type(value) is not kind:
        raise ValueError(f"its {name} must be a {kind.__name__}, it is {type(value).__name__}")
    return value


def _position(at: Mapping[str, Any]) -> Position:
    if at.keys() != {one.name for one in fields(Position)}:
        raise ValueError(f"its at has {', '.join(map(str, at)) or 'nothing'}")
    numbers = {name: _typed(at, name, int) for name in ("epoch", "step", "updates")}
    history = [_epoch(epoch) for epoch in _typed(at, "history", list)]
    sums = _typed(at, "sums", dict)
    begun = set(SUMS) <= sums.keys() if numbers["step"] else not sums
    if not begun or not all(isinstance(value, float | int) and math.isfinite(value) for value in sums.values()):
        raise ValueError("its sums are odd")
    if min(numbers.values()) < 0 or [epoch.number for epoch in history] != list(range(1, numbers["epoch"] + 1)):
        raise ValueError(f"it is in epoch {numbers['epoch']}, step {numbers['step']}, after {len(history)} epochs")
    return Position(**numbers, history=history, sums=dict(sums))


def _epoch(values: Any) -> Epoch:
    hints = get_type_hints(Epoch)
    if not isinstance(values, Mapping) or values.keys() != hints.keys():
        raise ValueError("its history is odd")
    for name, value in values.items():
        kinds = get_args(hints[name]) or (hints[name],)
        # A float may be written like a whole number, and True is no number.
        number = type(value) is int or (type(value) is float and float in kinds and math.isfinite(value))
        if not number and not (value is None and type(None) in kinds):
            raise ValueError(f"its history has {value!r} for {name}")
    return Epoch(**values)
