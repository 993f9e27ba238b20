"""Every measure on every run or network: what is stored already is found, the rest is measured and stored beside the run."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..storage import digest, make_folder, processor, write_atomically
from ..terminal import bar, note, paced
from ..training.checkpoint import Which
from .base import measure_named
from .cache import Query, find_row, finished_runs, is_run, store_row
from .predictions import READING, Reading
from .subject import Batchnorm, Samples, Subject, View, network_subject, run_subject

AS_TRAINED, USUAL_VIEW = Samples(), View()
Draw = Callable[[str, Subject, Any], Mapping[str, bytes]]  # pictures by file name, of the result of a measure


class Evaluated(NamedTuple):
    """The ``numbers`` of one measure about one subject, whose run is in ``folder``; ``new`` if it was measured now."""

    subject: str
    folder: Path
    on: str
    numbers: Mapping[str, float | None]
    files: list[Path]
    new: bool


def evaluate_places(
    places: Sequence[str],
    on: Sequence[str],
    *,
    data: Path,
    out: Path = Path("multimix-evaluations"),
    draw: Draw = lambda name, subject, result: {},
    checkpoint: Which | None = None,
    samples: Samples = AS_TRAINED,
    batchnorm: Sequence[Batchnorm] = ("as_trained",),
    view: View = USUAL_VIEW,
    options: Mapping[str, Any] = {},
    reading: Reading = READING,
    device: str | None = None,
    again: bool = False,
    trust: Collection[str] = (),
) -> tuple[list[Evaluated], list[str]]:
    """The measures ``on`` of all runs and networks in ``places``, and a sentence for everything that could not be measured.

    Of ``options`` every measure takes its own. ``draw`` makes the pictures. With ``again`` what is stored is measured anew.
    ``trust`` are import paths of networks that the folders of runs may name. Everything is measured for each of ``batchnorm``.
    """
    for name in on:
        measure_named(name)
    if not places:
        raise ValueError("name the folder of a run or of results, or package.module:function of a network")
    done: list[Evaluated] = []
    failed: list[str] = []
    subjects: dict[Path, Callable[[Which], Subject]] = {}
    for place in places:
        try:
            subjects |= _subjects(place, data, samples, view, out, device, trust)
        except (ValueError, OSError) as error:  # noqa: PERF203  the others go on
            failed.append(str(error))
    reasons: dict[str, list[str]] = {}
    work = [(folder, load, name, way) for folder, load in subjects.items() for way in batchnorm for name in on]
    for folder, load, name, way in paced("Evaluating", work):
        try:
            done.append(_evaluate(folder, load, name, way, checkpoint, options, reading, draw, again))
        except (ValueError, OSError) as error:  # noqa: PERF203  the others go on
            reasons.setdefault(str(error), []).append(f"{folder.name}, {name}")
    # Once, where data that all need are missing.
    return done, [*failed, *(f"{'; '.join(who)}: {reason}" for reason, who in reasons.items())]


def _evaluate(
    folder: Path,
    load: Callable[[Which], Subject],
    name: str,
    way: Batchnorm,
    checkpoint: Which | None,
    options: Mapping[str, Any],
    reading: Reading,
    draw: Draw,
    again: bool,
) -> Evaluated:
    """One measure of one subject: measured and stored in its folder, or taken from there."""
    chosen = measure_named(name)
    which = checkpoint or chosen.checkpoint
    subject = load(which)
    own = {option: options.get(option, usual) for option, usual in chosen.defaults.items()}
    query = query_for(name, subject, own, which, way)
    place = folder / query.folder
    known = None if again else find_row(folder, query, note)
    title = subject.title if way == "as_trained" else f"{subject.title}, {way}"
    if known is not None:
        return Evaluated(title, folder, name, known["numbers"], sorted(place.glob("*.*")), new=False)
    subject = subject.with_batchnorm(way)
    found = chosen.find(subject, reading._replace(progress=bar(f"{subject.title}: {name}")), **own)
    pictures = {place / file: content for file, content in draw(name, subject, found.result).items()}
    try:
        if pictures:
            make_folder(place)
        for path, content in pictures.items():
            write_atomically(path, content)
        store_row(folder, query, numbers=found.numbers, result=asdict(found.result))
    except OSError as error:
        note(f"the numbers of {subject.title} cannot be stored: {error}")
        pictures = {}
    return Evaluated(title, folder, name, found.numbers, list(pictures), new=True)


def query_for(
    name: str, subject: Subject, options: Mapping[str, Any], checkpoint: Which, batchnorm: Batchnorm = "as_trained"
) -> Query:
    """The evaluation with all that its numbers depend on, so that the same one is recognised when it comes again."""
    chosen = measure_named(name)
    options, defaults = chosen.resolve(subject, options), chosen.resolve(subject, chosen.defaults)
    given, usual = _flat(options), _flat(defaults)
    if name != "transfer":  # which looks at birds only
        given, usual = {**subject.samples, **given}, {**(subject.usual or subject.samples), **usual}
    if batchnorm != "as_trained":
        given["batchnorm"] = batchnorm
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


def _subjects(
    place: str, data: Path, samples: Samples, view: View, out: Path, device: str | None, trust: Collection[str]
) -> dict[Path, Callable[[Which], Subject]]:
    """For every run or network its folder, and how to get it with its last or best weights."""
    if ":" in place and not Path(place).exists():
        subject = network_subject(place, data, samples, view, device)
        return {out / place.replace(":", "."): lambda which: subject}
    if any(view):
        raise ValueError("mean, std, crop and foreign are for networks that are no runs; a run knows how it was trained")
    runs = finished_runs(place, note)
    if not runs and is_run(Path(place)):
        note(f"{Path(place).name} is not finished: its newest checkpoint is evaluated")
        runs = [Path(place)]
    if not runs:
        raise ValueError(f"{place} has no finished runs")
    return {run: cache(partial(_load, run, data, samples, device, trust)) for run in runs}


def _load(run: Path, data: Path, samples: Samples, device: str | None, trust: Collection[str], which: Which) -> Subject:
    subject = run_subject(run, data, checkpoint=which, samples=samples, device=device, trust=trust)
    if subject.settings is not None and subject.settings.running.threads is not None:
        torch.set_num_threads(subject.settings.running.threads)  # as it was trained; times depend on it
    return subject
