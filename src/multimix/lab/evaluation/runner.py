"""Every measure on every run or network: what is stored already is found, the rest is measured and stored beside the run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from ..storage import digest, make_folder, processor, write_atomically
from ..terminal import bar, note
from ..training.checkpoint import Which
from .cache import Query, find_row, finished_runs, is_run, store_row
from .predictions import Reading
from .registry import measure_named
from .subject import Samples, Subject, View, network_subject, run_subject

Result = TypeVar("Result")
Draw = Callable[[str, Subject, Any], Mapping[str, bytes]]  # pictures by file name, of the result of a measure


class Evaluated(NamedTuple):
    """The ``numbers`` of one measure about one subject, whose run is in ``folder``; ``new`` if it was measured now."""

    subject: str
    folder: Path
    on: str
    numbers: Mapping[str, float | None]
    files: list[Path]
    new: bool


class Target(NamedTuple):
    """A run or a network to measure: its name, its folder, and how to get it with its last or best weights."""

    name: str
    folder: Path
    subject: Callable[[Which], Subject]


def evaluate_places(
    places: Sequence[str],
    on: Sequence[str],
    *,
    data: Path,
    out: Path,
    draw: Draw,
    checkpoint: Which | None,
    samples: Samples,
    view: View,
    options: Mapping[str, Any],
    reading: Reading,
    device: str | None,
    again: bool,
) -> tuple[list[Evaluated], list[str]]:
    """The measures ``on`` of all runs and networks in ``places``, and a sentence for everything that could not be measured.

    Of ``options`` every measure takes its own. ``draw`` makes the pictures. With ``again`` what is stored is measured anew.
    """
    for name in on:
        measure_named(name)
    if not places:
        raise ValueError("name the folder of a run or of results, or package.module:function of a network")
    done: list[Evaluated] = []
    failed: list[str] = []
    for place in places:
        targets = _attempt(_targets, place, data, samples, view, out, device)
        if isinstance(targets, str):
            failed.append(targets)
            continue
        for target in targets:
            for name in on:
                one = _attempt(evaluate, target, name, checkpoint, options, reading, draw, again)
                if isinstance(one, Evaluated):
                    done.append(one)
                else:
                    failed.append(f"{target.name}, {name}: {one}")
    return done, failed


def evaluate(
    target: Target,
    name: str,
    checkpoint: Which | None,
    options: Mapping[str, Any],
    reading: Reading,
    draw: Draw,
    again: bool = False,
) -> Evaluated:
    """One measure of one target: measured and stored in its folder, or taken from there."""
    chosen = measure_named(name)
    which = checkpoint or chosen.checkpoint
    subject, folder = target.subject(which), target.folder
    own = {option: options.get(option, usual) for option, usual in chosen.defaults.items()}
    query = query_for(name, subject, own, which)
    place = folder / query.folder
    known = None if again else find_row(folder, query, note)
    if known is not None:
        return Evaluated(subject.title, folder, name, known["numbers"], sorted(place.glob("*.*")), new=False)
    found = chosen.find(subject, reading._replace(progress=bar(f"{subject.title}: {name}")), **own)
    pictures = draw(name, subject, found.result)
    files = [place / file for file in pictures]
    try:
        if files:
            make_folder(place)
        for path, content in zip(files, pictures.values(), strict=True):
            write_atomically(path, content)
        store_row(folder, query, numbers=found.numbers, result=asdict(found.result))
    except OSError as error:
        note(f"the numbers of {subject.title} cannot be stored: {error}")
        files = []
    return Evaluated(subject.title, folder, name, found.numbers, files, new=True)


def query_for(name: str, subject: Subject, options: Mapping[str, Any], checkpoint: Which) -> Query:
    """The evaluation with all that its numbers depend on, so that the same one is recognised when it comes again."""
    chosen = measure_named(name)
    given, usual = _flat(options), _flat(chosen.defaults)
    if name != "transfer":  # which looks at birds only
        given, usual = {**subject.samples, **given}, {**(subject.usual or subject.samples), **usual}
    # How many epochs of a transfer changes none of them.
    unusual = [
        f"{key} = {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in given.items()
        if value != usual.get(key) and key != "transfer.count"
    ]
    whole = {**given, "labels": digest([labels.tolist() for labels in chosen.labels(subject, options)])[:10]}
    if chosen.timed:
        device = next(subject.network.parameters()).device.type
        whole |= {"device": device, "threads": torch.get_num_threads(), "processor": processor()}
    return Query(name, checkpoint, subject.weights, whole, ", ".join(unusual), subject.file)


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON gives them back; the fields of one that is a dataclass follow its name and a dot."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        fields = {f"{name}.{key}": inner for key, inner in asdict(value).items()} if is_dataclass(value) else {name: value}  # type: ignore[arg-type]  # an instance
        flat |= fields
    return {name: list(value) if isinstance(value, tuple) else value for name, value in flat.items()}


def _attempt(work: Callable[..., Result], *given: Any) -> Result | str:
    """The result, or a sentence on why there is none: the others go on."""
    try:
        return work(*given)
    except (ValueError, OSError) as error:
        return str(error)


def _targets(place: str, data: Path, samples: Samples, view: View, out: Path, device: str | None) -> list[Target]:
    if ":" in place and not Path(place).exists():
        subject = network_subject(place, data, samples, view, device)
        return [Target(place, out / place.replace(":", "."), lambda which: subject)]
    if any(view):
        raise ValueError("mean, std, crop and foreign are for networks that are no runs; a run knows how it was trained")
    runs = finished_runs(place, note)
    if not runs and is_run(Path(place)):
        note(f"{Path(place).name} is not finished: its newest checkpoint is evaluated")
        runs = [Path(place)]
    if not runs:
        raise ValueError(f"{place} has no finished runs")
    return [Target(run.name, run, _loader(run, data, samples, device)) for run in runs]


def _loader(run: Path, data: Path, samples: Samples, device: str | None) -> Callable[[Which], Subject]:
    @cache
    def load(which: Which) -> Subject:
        subject = run_subject(run, data, checkpoint=which, samples=samples, device=device)
        if subject.settings is not None and subject.settings.running.threads is not None:
            torch.set_num_threads(subject.settings.running.threads)  # as it was trained; times depend on it
        return subject

    return load
