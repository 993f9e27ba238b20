"""What a checkpoint of a training holds besides tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from .checkpoint import Checkpoint, unflatten
from .log import Epoch


@dataclass
class Position:
    """Where a training is: ``epoch`` and ``step`` of the next update, and the sums of the running epoch."""

    epoch: int = 0
    step: int = 0
    updates: int = 0
    history: list[Epoch] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)


class State(NamedTuple):
    """A training between two updates. ``method_states`` has all shares."""

    seed: int
    settings: str
    samples: str
    pixels: str
    at: Position
    network: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    method: Mapping[str, Any]
    scaler: Mapping[str, Any] | None
    method_states: tuple[Mapping[str, Tensor], ...]


def state_of(checkpoint: Checkpoint) -> State:
    """Return the state in a checkpoint; raise a ValueError if it cannot be read."""
    parts = {name: unflatten(checkpoint, name) for name in ("method", "scaler", "method_states") if name in checkpoint.values}
    try:
        values = checkpoint.values
        at = values["at"]
        return State(
            **{name: values[name] for name in ("seed", "settings", "samples", "pixels")},
            at=Position(**{**at, "history": [Epoch(**epoch) for epoch in at["history"]]}),
            network=unflatten(checkpoint, "network"),
            optimizer=unflatten(checkpoint, "optimizer"),
            method=parts.get("method", {}),
            scaler=parts.get("scaler"),
            method_states=parts.get("method_states", {"shares": ()})["shares"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"its state cannot be read ({type(error).__name__}: {error})") from error
