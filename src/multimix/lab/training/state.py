"""What a checkpoint of a training holds besides tensors, checked once: a sound file may hold anything."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, get_args, get_type_hints

from torch import Tensor

from .checkpoint import Checkpoint, unflatten
from .log import Epoch

SUMS = ("updates", "loss", "accuracy", "images", "rows", "seconds", "cpu_seconds")  # of an epoch that has begun
OPTIONS = ("momentum", "dampening", "weight_decay", "nesterov")  # of SGD; a newer torch may have more


@dataclass
class Position:
    """Where a training is: ``epoch`` and ``step`` of the next update, and the sums of the running epoch."""

    epoch: int = 0
    step: int = 0
    updates: int = 0
    history: list[Epoch] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)


class State(NamedTuple):
    """A training between two updates. ``pixels`` is None in older checkpoints; ``method_states`` has all shares."""

    seed: int
    settings: str
    samples: str
    pixels: str | None
    at: Position
    network: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    method: Mapping[str, Any] | None
    scaler: Mapping[str, Any] | None
    method_states: tuple[Mapping[str, Tensor], ...]


def state_of(checkpoint: Checkpoint) -> State:
    """The state in a checkpoint, or a ValueError that says which part of it is odd."""
    values = checkpoint.values
    method_states = unflatten(checkpoint, "method_states") if "method_states" in values else {"shares": ()}
    shares = method_states.get("shares") if isinstance(method_states, Mapping) else None
    if not isinstance(shares, tuple) or not all(isinstance(share, Mapping) for share in shares):
        raise ValueError("checkpoint field 'method_states' is malformed")
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
        method_states=shares,
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


def check_optimizer(groups: Sequence[Mapping[str, Any]], state: Mapping[str, Any]) -> None:
    """Raise ValueError unless ``state`` is that of an SGD with these ``groups``; load_state_dict would take almost anything."""
    held, kept = state.get("param_groups"), state.get("state")
    if not isinstance(held, list) or len(held) != len(groups) or not isinstance(kept, Mapping):
        raise ValueError("its optimizer is odd")
    weights: list[Tensor] = []
    for group, found in zip(groups, held, strict=True):
        last = len(weights) + len(group["params"])
        wanted = {**{name: group[name] for name in OPTIONS}, "params": list(range(len(weights), last))}
        for name, value in wanted.items():
            if not isinstance(found, Mapping) or repr(found.get(name)) != repr(value):
                raise ValueError(f"its optimizer has an odd {name}")
        _typed(found, "lr", float)
        weights += group["params"]
    for place, one in kept.items():
        name = f"its optimizer/state/{place}/momentum_buffer"
        if type(place) is not int or not 0 <= place < len(weights) or not isinstance(one, Mapping):
            raise ValueError(f"{name} is odd")
        if one.get("momentum_buffer") is not None:
            _check_momentum(name, one["momentum_buffer"], weights[place])


def _check_momentum(name: str, momentum: Any, weight: Tensor) -> None:
    if not isinstance(momentum, Tensor) or (momentum.shape, momentum.dtype) != (weight.shape, weight.dtype):
        raise ValueError(f"{name} is not like its weight, {str(weight.dtype)[6:]} {list(weight.shape)}")
    if bool(momentum.isnan().any()):  # the next update would make weights of it
        raise ValueError(f"{name} holds NaN")
