"""Checkpoints: written at once, verified when read, the last two kept; plain tensors and JSON, so that loading runs no code."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ...methods import Method
from ..nets import NETWORKS, OWN_NETWORKS, TIMM, check_network_path
from ..recipes.runs import BEST, SETTINGS, Which
from ..recipes.serialise import rebuild
from ..recipes.settings import Network, Settings
from ..storage import checkpoint_sum, make_folder, named, parse_json, write_atomically

FORMAT = "multimix checkpoint 1"
KEPT = 2
TRUST_VARIABLE = "MULTIMIX_TRUST"


class Checkpoint(NamedTuple):
    """All tensors by name, and whatever else as JSON values; floats come back bit for bit."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


def write_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """The file of this step; older ones than the last two are deleted once it is there.

    It holds one line with format, length and checksum, then a safetensors file.
    """
    make_folder(folder)
    path = folder / f"step-{step:09d}.checkpoint"
    _write(path, checkpoint)
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def write_best(folder: Path, checkpoint: Checkpoint) -> Path:
    """The file of the best epoch so far, beside those of the last two steps."""
    path = folder / BEST
    _write(path, checkpoint)
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """What a file holds, or one sentence that says what is wrong with it."""
    try:
        head_line, _, payload = path.read_bytes().partition(b"\n")
        head = parse_json(head_line)
        said, count, check = head["format"], head["bytes"], head["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: it is no checkpoint ({type(error).__name__})") from error
    if said != FORMAT:
        raise ValueError(f"{path} is no checkpoint of this version, it says {said!r}")
    if len(payload) != count or hashlib.sha256(payload).hexdigest() != check:
        raise ValueError(f"{path} is damaged: its content does not have the checksum it was written with")
    try:
        size = int.from_bytes(payload[:8], "little")
        return Checkpoint(load(payload), parse_json(parse_json(payload[8 : 8 + size])["__metadata__"]["values"]))
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ValueError(f"{path} is damaged: it is no checkpoint ({type(error).__name__})") from error


Check = Callable[[Checkpoint], object]


def latest_checkpoint(
    folder: Path, note: Callable[[str], None] = print, check: Check = lambda checkpoint: None
) -> Checkpoint | None:
    """The newest checkpoint that can be read, None without one. A damaged file is named and set aside; the one before serves.

    One that ``check`` raises a ValueError for counts as damaged.
    """
    for path in reversed(checkpoints(folder)):
        found = sound_checkpoint(path, note, check)
        if found is not None:
            return found
    return None


def sound_checkpoint(path: Path, note: Callable[[str], None], check: Check = lambda checkpoint: None) -> Checkpoint | None:
    """What a file holds; one that is damaged is named and set aside."""
    try:
        found = read_checkpoint(path)
        try:
            check(found)
        except ValueError as odd:
            raise ValueError(f"{path} is damaged: {odd}") from odd
        return found
    except ValueError as error:
        aside = path.with_name(path.name + ".damaged")
        os.replace(path, aside)
        note(f"{error}; set aside as {aside.name}")
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The files of a run, oldest first."""
    return sorted(folder.glob("step-*.checkpoint"))


def flatten(states: Mapping[str, Any], values: Mapping[str, Any]) -> Checkpoint:
    """Every ``state_dict`` as tensors called ``name/…`` and JSON values for all else, beside other ``values``."""
    tensors: dict[str, Tensor] = {}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            tensors[path] = value
            return {"tensor": path}
        if isinstance(value, Mapping):
            return {"items": [[key, walk(inner, f"{path}/{key}")] for key, inner in value.items()]}
        if isinstance(value, list | tuple):
            return {type(value).__name__: [walk(inner, f"{path}/{i}") for i, inner in enumerate(value)]}
        return {"value": value}

    trees = {name: walk(state, name) for name, state in states.items()}
    return Checkpoint(tensors, {**trees, **values})


def unflatten(checkpoint: Checkpoint, name: str) -> Any:
    """A state that :func:`flatten` was given."""

    def build(node: Any) -> Any:
        ((kind, content),) = node.items()
        if kind == "tensor":
            return checkpoint.tensors[content]
        if kind == "items":
            return {key: build(inner) for key, inner in content}
        if kind in ("list", "tuple"):
            parts = [build(inner) for inner in content]
            return parts if kind == "list" else tuple(parts)
        return content

    try:
        return build(checkpoint.values[name])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"its {name} cannot be read") from error


def only(checkpoint: Checkpoint, *names: str) -> Checkpoint:
    """The states called by one of ``names``, as far as they are there."""
    tensors = {key: value for key, value in checkpoint.tensors.items() if key.partition("/")[0] in names}
    return Checkpoint(tensors, {name: checkpoint.values[name] for name in names if name in checkpoint.values})


def _write(path: Path, checkpoint: Checkpoint) -> None:
    # Clones, because safetensors refuses tensors that share memory, and views of a larger one.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in checkpoint.tensors.items()}
    payload = save(tensors, {"values": json.dumps(checkpoint.values, allow_nan=False)})
    head = {"format": FORMAT, "bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    try:
        with named(path):
            write_atomically(path, json.dumps(head).encode() + b"\n" + payload)
    except OSError as error:
        raise OSError(f"{error}; the checkpoints before it are kept") from error


class LoadedRun(NamedTuple):
    """The network in evaluation mode, how it was trained, and ``about``: recipe, scale, arm, k, seed, digest, file …

    ``method`` is that of the settings with the networks of its own, if it has any, as they were trained beside.
    """

    network: nn.Module
    method: Method
    classes: tuple[str, ...]
    settings: Settings
    about: dict[str, Any]


def load_run(folder: str | Path, which: Which = "last", trust: Collection[str] = ()) -> LoadedRun:
    """The network of a run, with the weights of its newest checkpoint or of its best epoch.

    A folder that somebody sent must be safe to look at: an import path in it is followed only if it is one of ``trust``, or a
    network class of multimix itself.
    """
    folder = Path(folder)
    said = _Said.read(folder)
    settings = said.settings
    found = checkpoints(folder) if which == "last" else [folder / BEST]
    if not found or not found[-1].exists():
        raise ValueError(f"{folder} has no {which} checkpoint; train it first, or wait until it has written one")
    checkpoint = read_checkpoint(found[-1])
    if checkpoint.values.get("settings", said.stored) != said.stored:  # the best epoch does not say
        raise ValueError(f"{found[-1]} was written with other settings than {SETTINGS} says ({said.stored})")
    check_trusted(settings.network, trust, folder)
    build = partial(_untrained(settings.network).built, len(said.classes), said.channels)
    try:
        weights = unflatten(checkpoint, "network")
        if settings.network.name in NETWORKS or settings.network.name.startswith(OWN_NETWORKS):
            with torch.device("meta"):  # a network of any size takes no memory there
                expected = build().state_dict()
            check_shapes(expected, weights)
    except (ValueError, AttributeError) as error:
        raise ValueError(f"the weights in {found[-1]} do not fit the network {settings.network.name}: {error}") from None
    if ":" in settings.network.name:
        check_network_path(settings.network.name)
    network = build()
    try:
        method = settings.method.bind(
            network, torch.zeros(1, said.channels, *settings.data.entry().size[1:]), learn=False, generator=torch.Generator()
        )
        network.load_state_dict(weights)
        if len(method.modules) > 0:
            method.modules.load_state_dict(unflatten(checkpoint, "method"))
    except (RuntimeError, ValueError, TypeError) as error:  # the network's code may have changed since
        why = " ".join(str(error).split())[:300]
        raise ValueError(f"the weights in {found[-1]} do not fit the network {settings.network.name}: {why}") from None
    about = {**said.about, "checkpoint": found[-1].name, "file": checkpoint_sum(found[-1])}
    return LoadedRun(network.eval(), method, said.classes, settings, about)


class _Said(NamedTuple):
    """What the folder of a run says about it; ``stored`` is the digest of its settings."""

    settings: Settings
    classes: tuple[str, ...]
    channels: int
    about: dict[str, Any]
    stored: str

    @classmethod
    def read(cls, folder: Path) -> "_Said":
        """From settings.json, whose content must have the digest it says."""
        path = folder / SETTINGS
        try:
            said = parse_json(path.read_bytes())
            about = {name: said[name] for name in ("recipe", "scale", "arm", "k", "seed", "digest")}
            classes, channels = said["classes"], said["channels"]
            settings = rebuild(Settings, said["settings"])
            stored = str(about["digest"]).partition("-")[0]  # without the number of processes
            sound = settings.digest() == stored
        except FileNotFoundError:
            raise ValueError(f"{folder} is not the folder of a run: it has no {SETTINGS}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is damaged ({type(error).__name__}: {error})") from None
        if not sound:
            raise ValueError(f"{path} is damaged or was changed: its settings do not have the digest {stored}")
        return cls(settings, tuple(classes), channels, about, stored)


def check_shapes(expected: Mapping[Any, Any], state: Mapping[Any, Any]) -> None:
    """Raise a ValueError unless ``state`` has the tensors of ``expected``, each in the same shape."""
    for name in {**expected, **state}:
        wanted, stored = (getattr(part.get(name), "shape", None) for part in (expected, state))
        if wanted != stored:
            words = ["missing" if shape is None else str(list(shape)) for shape in (wanted, stored)]
            raise ValueError(f"{name} should be {words[0]}, it is {words[1]}")


def check_trusted(network: Network, trust: Collection[str], folder: Path) -> None:
    """Raise ValueError for code, or for files that timm would read or fetch, if a run's folder names them and the user does not.

    Nothing is imported to see that. The user names the network by ``trust``, or for good in the variable MULTIMIX_TRUST.
    """
    name = network.name
    if name in {*trust, *os.environ.get(TRUST_VARIABLE, "").split()} or name.startswith(OWN_NETWORKS):
        return
    hint = f"add --trust {name} if you know it (or set {TRUST_VARIABLE})"
    if ":" in name:
        raise ValueError(
            f"the run {folder.name} has a network by import path, {name}, and loading it would run that code: {hint}"
        )
    # Words and dictionaries can be addresses to fetch weights from, and folders to write them to; numbers cannot.
    if name.startswith(TIMM) and not all(isinstance(value, int | float) for value in network.given().values()):
        raise ValueError(
            f"the run {folder.name} has {name} with options that can make timm fetch, read or write files "
            f"({', '.join(network.options)}): {hint}"
        )


def _untrained(network: Network) -> Network:
    """Without the weights that timm would fetch first, since those of the run follow."""
    kept = tuple(words for words in network.options if words.partition("=")[0] != "pretrained")
    return replace(network, options=kept) if network.name.startswith(TIMM) else network


def weights_digest(network: nn.Module) -> str:
    """SHA-256 of all weights and statistics, bit for bit."""
    whole = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        whole.update(name.encode() + plain.numpy().tobytes())
    return whole.hexdigest()
