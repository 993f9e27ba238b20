"""A network that was trained, from the folder of its run."""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from ...methods import Method
from ..recipes.rebuilt import rebuilt
from ..recipes.settings import Settings
from .checkpoint import BEST, checkpoint_sum, checkpoints, read_checkpoint, unflattened
from .fitting import set_network_states

SETTINGS = "settings.json"
Which = Literal["last", "best"]


class Loaded(NamedTuple):
    """The network in evaluation mode, how it was trained, and ``about``: recipe, scale, arm, k, seed, digest, file …

    ``method`` is that of the settings with the networks of its own, if it has any, as they were trained beside.
    """

    network: nn.Module
    method: Method
    classes: tuple[str, ...]
    settings: Settings
    about: dict[str, Any]


def loaded(folder: str | Path, which: Which = "last") -> Loaded:
    """The network of a run, with the weights of its newest checkpoint or of its best epoch."""
    folder = Path(folder)
    try:
        said = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        settings, classes = rebuilt(said["settings"]), tuple(said["classes"])
        channels = int(said["channels"])
        about = {name: said[name] for name in ("recipe", "scale", "arm", "k", "seed", "digest")}
    except FileNotFoundError:
        raise ValueError(f"{folder} is not the folder of a run: it has no {SETTINGS}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / SETTINGS} is damaged ({type(error).__name__}: {error})") from None
    found = checkpoints(folder) if which == "last" else [folder / BEST]
    if not found or not found[-1].exists():
        raise ValueError(f"{folder} has no {which} checkpoint; train it first, or wait until it has written one")
    checkpoint = read_checkpoint(found[-1])
    network = settings.network.built(len(classes), channels)
    one = torch.zeros(1, channels, *settings.data.entry().size[1:])
    try:
        method = settings.method.fitted(network, one, blank=True, generator=torch.Generator())
        if method.networks:
            set_network_states(method, unflattened(checkpoint, "method"))
        network.load_state_dict(unflattened(checkpoint, "network"))
    except RuntimeError as error:  # the network's code may have changed since
        why = " ".join(str(error).split())[:300]
        raise ValueError(f"the weights in {found[-1]} do not fit the network {settings.network.name}: {why}") from None
    return Loaded(
        network.eval(), method, classes, settings, {**about, "checkpoint": found[-1].name, "file": checkpoint_sum(found[-1])}
    )
