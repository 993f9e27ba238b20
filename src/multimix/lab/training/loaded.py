"""A network that was trained, from the folder of its run."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import nn

from .checkpoint import checkpoints, read_checkpoint, unflattened
from .settings import Augmentation, Data, Network

SETTINGS = "settings.json"
Which = Literal["last", "best"]


class Loaded(NamedTuple):
    """The network in evaluation mode, what it was trained on, and ``about``: recipe, scale, arm, k, seed, digest, checkpoint."""

    network: nn.Module
    classes: tuple[str, ...]
    data: Data
    augment: Augmentation
    about: dict[str, Any]


def loaded(folder: str | Path, which: Which = "last") -> Loaded:
    """The network of a run, with the weights of its newest checkpoint or of its best epoch."""
    folder = Path(folder)
    try:
        said = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        given, classes = said["settings"], tuple(said["classes"])
        about = {name: said[name] for name in ("recipe", "scale", "arm", "k", "seed", "digest")}
    except FileNotFoundError:
        raise ValueError(f"{folder} is not the folder of a run: it has no {SETTINGS}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / SETTINGS} is damaged ({type(error).__name__}: {error})") from None
    found = checkpoints(folder) if which == "last" else [folder / "best.checkpoint"]
    if not found or not found[-1].exists():
        raise ValueError(f"{folder} has no {which} checkpoint; train it first, or wait until it has written one")
    checkpoint = read_checkpoint(found[-1])
    chosen: Network = _rebuilt(Network, given, "network")
    network = chosen.built(len(classes), said["channels"])
    network.load_state_dict(unflattened(checkpoint, "network"))
    data, augment = _rebuilt(Data, given, "data"), _rebuilt(Augmentation, given, "augment")
    return Loaded(network.eval(), classes, data, augment, {**about, "checkpoint": found[-1].name})


def _rebuilt(kind: Any, given: dict[str, Any], name: str) -> Any:
    """A settings dataclass from its described fields."""
    values = {field.name: given[f"{name}.{field.name}"] for field in fields(kind)}
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
