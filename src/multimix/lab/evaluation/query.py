"""What an evaluator is asked about a subject, so that the same question is known when it comes again."""

from dataclasses import asdict
from typing import Any

import torch

from ..storage import digest, processor
from ..training.checkpoint import Which
from .base import Evaluator, Options
from .cache import Asked
from .registry import evaluator
from .subject import Subject


def asked(name: str, subject: Subject, options: Options, checkpoint: Which) -> Asked:
    """What an evaluator is asked about a subject, with all that its numbers depend on."""
    chosen = evaluator(name)
    given, usual = _flat(chosen, options), _flat(chosen, Options())
    if name != "transfer":  # which looks at birds only
        given, usual = {**subject.samples, **given}, {**(subject.usual or subject.samples), **usual}
    # How many epochs of a transfer changes none of them.
    unusual = [
        f"{key} = {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in given.items()
        if value != usual.get(key) and key != "transfer.count"
    ]
    found = [labels.tolist() for labels in chosen.labels(subject, options)]
    whole = {**given, "labels": digest(found)[:10]}
    if chosen.timed:
        device = next(subject.network.parameters()).device.type
        whole |= {"device": device, "threads": torch.get_num_threads(), "processor": processor()}
    return Asked(name, checkpoint, subject.weights, whole, ", ".join(unusual), subject.file)


def _flat(chosen: Evaluator, options: Options) -> dict[str, Any]:
    """The options that matter by name, those of transfer with a dot, as JSON gives them back."""
    given = {option: getattr(options, option) for option in chosen.uses if option != "transfer"}
    if "transfer" in chosen.uses:
        given |= {f"transfer.{name}": value for name, value in asdict(options.transfer).items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
