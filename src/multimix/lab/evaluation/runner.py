"""Every measure on every run or network: stored numbers are read, others are measured and stored beside the run."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..recipes.runs import Which
from ..storage import digest, make_folder, processor, write_atomically
from ..terminal import bar, note, paced
from .base import Measure, measure_named
from .cache import Query, find_row, finished_runs, is_run, store_row
from .names import MEASURES
from .predictions import READING, Reading
from .subject import Batchnorm, Samples, Subject, View, network_subject, run_subject

AS_TRAINED, USUAL_VIEW = Samples(), View()


class Evaluated(NamedTuple):
    """Numbers of one measure of one subject.

    Args:
        subject: Title of the subject.
        folder: Folder of its run.
        on: Name of the measure.
        numbers: Numbers by name.
        new: Whether they were measured now, not read.
    """

    subject: str
    folder: Path
    on: str
    numbers: Mapping[str, float | None]
    new: bool


def evaluate_places(
    places: Sequence[str],
    on: Sequence[str],
    *,
    data: Path,
    out: Path = Path("multimix-evaluations"),
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
    """Measure all runs and networks in ``places``.

    Args:
        places: Folders of runs or of results, or ``package.module:function`` of networks.
        on: Names of measures.
        data: Folder of the data sets.
        out: Folder for the findings on networks that were not trained here.
        checkpoint: Weights to measure; None for the default of each measure.
        samples: Samples to measure on.
        batchnorm: Kinds of batch-norm statistics; everything is measured with each.
        view: Preparation of pictures for networks that were not trained here.
        options: Options of measures. Each measure takes its own.
        reading: How samples are read.
        device: Device; None for the accelerator of the machine, or the CPU.
        again: Whether to repeat stored measurements.
        trust: Import paths of networks that the folders of runs may name.

    Returns:
        The evaluations, and a sentence for everything that could not be measured.

    Raises:
        ValueError: If ``places`` is empty or a measure does not exist.
    """
    measures = {name: measure_named(name) for name in on}
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
            which = checkpoint or MEASURES[name].checkpoint
            done.append(_evaluate(folder, load(which), name, measures[name], which, way, options, reading, again))
        except (ValueError, OSError) as error:  # noqa: PERF203  the others go on
            reasons.setdefault(str(error), []).append(f"{folder.name}, {name}")
    # Once, where data that all need are missing.
    return done, [*failed, *(f"{'; '.join(who)}: {reason}" for reason, who in reasons.items())]


def _evaluate(
    folder: Path,
    subject: Subject,
    name: str,
    measure: Measure,
    checkpoint: Which,
    way: Batchnorm,
    given: Mapping[str, Any],
    reading: Reading,
    again: bool,
) -> Evaluated:
    """Return the stored numbers of one measure of one subject, or measure and store them."""
    query = query_for(name, subject, given, checkpoint, way)
    title = subject.title if way == "as_trained" else f"{subject.title}, {way}"
    stored = None if again else find_row(folder, query, note)
    if stored is not None:
        return Evaluated(title, folder, name, stored["numbers"], new=False)
    options = measure.options(subject, given)
    reading = reading._replace(progress=bar(f"{subject.title}: {name}"))
    finding = measure.find(subject.with_batchnorm(way), reading, **options)
    try:
        if finding.pictures:
            make_folder(folder / query.folder)
        for file, grid in finding.pictures.items():
            write_atomically(folder / query.folder / f"{file}.npz", grid.to_bytes())
        store_row(folder, query, numbers=finding.numbers, result=asdict(finding.result))
    except OSError as error:
        note(f"the numbers of {subject.title} cannot be stored: {error}")
    return Evaluated(title, folder, name, finding.numbers, new=True)


def query_for(
    name: str, subject: Subject, given: Mapping[str, Any], checkpoint: Which, batchnorm: Batchnorm = "as_trained"
) -> Query:
    """Return an evaluation with everything that its numbers depend on.

    Args:
        name: Name of the measure.
        subject: The subject.
        given: Options; the others have their defaults.
        checkpoint: Which weights the subject has.
        batchnorm: Kind of batch-norm statistics.
    """
    measure = measure_named(name)
    options = measure.options(subject, given)
    values, defaults = _as_json(options), _as_json(measure.options(subject, {}))
    if name == "transfer":  # measured on birds, not on the samples of the subject; stored rows have prefixed names
        values, defaults = ({f"transfer.{key}": value for key, value in own.items()} for own in (values, defaults))
    else:
        values, defaults = {**subject.samples, **values}, {**(subject.usual or subject.samples), **defaults}
    if batchnorm != "as_trained":
        values["batchnorm"] = batchnorm
    # More epochs of a transfer do not change the earlier ones.
    unusual = [
        f"{key} = {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in values.items()
        if value != defaults.get(key) and key != "transfer.count"
    ]
    values["labels"] = digest([labels.tolist() for labels in measure.labels(subject, options)])[:10]
    if measure.timed:
        device = next(subject.network.parameters()).device.type
        values |= {"device": device, "threads": torch.get_num_threads(), "processor": processor()}
    return Query(name, checkpoint, subject.weights, values, ", ".join(unusual), subject.file)


def _as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def _subjects(
    place: str, data: Path, samples: Samples, view: View, out: Path, device: str | None, trust: Collection[str]
) -> dict[Path, Callable[[Which], Subject]]:
    """For every run or network its folder, and how to get it with its last or best weights."""
    if ":" in place and not Path(place).exists():
        subject = network_subject(place, data, samples, view, device)
        return {out / place.replace(":", "."): lambda which: subject}
    if any(view):
        given = ", ".join(name for name, value in view._asdict().items() if value)
        raise ValueError(f"{given} cannot be set for {place}: a run uses the preparation of its training")
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
