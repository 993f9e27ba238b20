"""Evaluate runs and networks: read stored numbers, measure the others, and store them."""

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
        new: Whether they were measured; False for stored numbers.
    """

    subject: str
    folder: Path
    on: str
    numbers: Mapping[str, float | None]
    new: bool


def evaluate_sources(
    sources: Sequence[str],
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
    """Evaluate all runs and networks in ``sources``.

    Args:
        sources: Folders of runs or of results, or ``package.module:function`` of networks.
        on: Names of measures.
        data: Folder of the data sets.
        out: Folder for evaluations of networks that were not trained here.
        checkpoint: Weights to evaluate; None for the default of each measure.
        samples: Samples to evaluate on.
        batchnorm: Kinds of batch-norm statistics; every measure is evaluated with each kind.
        view: Preparation of images for networks that were not trained here.
        options: Options of all measures; each measure takes the options that it knows.
        reading: Batch size and workers.
        device: Device; None for the accelerator of the machine, or the CPU.
        again: Whether to repeat stored evaluations.
        trust: Import paths of networks whose code may run.

    Returns:
        The evaluations, and a sentence for every evaluation that failed.

    Raises:
        ValueError: If ``sources`` is empty or a measure does not exist.
    """
    measures = {name: measure_named(name) for name in on}
    if not sources:
        raise ValueError("sources must have a folder of a run or of results, or package.module:function of a network, got none")
    evaluated: list[Evaluated] = []
    failed: list[str] = []
    subjects: dict[Path, Callable[[Which], Subject]] = {}
    for source in sources:
        try:
            subjects |= _subjects(source, data, samples, view, out, device, trust)
        except (ValueError, OSError) as error:  # noqa: PERF203  the others go on
            failed.append(str(error))
    reasons: dict[str, list[str]] = {}
    tasks = [(folder, load, name, statistics) for folder, load in subjects.items() for statistics in batchnorm for name in on]
    for folder, load, name, statistics in paced("Evaluating", tasks):
        try:
            which = checkpoint or MEASURES[name].checkpoint
            evaluated.append(_evaluate(folder, load(which), name, measures[name], which, statistics, options, reading, again))
        except (ValueError, OSError) as error:  # noqa: PERF203  the others go on
            reasons.setdefault(str(error), []).append(f"{folder.name}, {name}")
    # One sentence for a reason that several evaluations share, such as missing data.
    return evaluated, [*failed, *(f"{'; '.join(titles)}: {reason}" for reason, titles in reasons.items())]


def _evaluate(
    folder: Path,
    subject: Subject,
    name: str,
    measure: Measure,
    checkpoint: Which,
    batchnorm: Batchnorm,
    requested: Mapping[str, Any],
    reading: Reading,
    again: bool,
) -> Evaluated:
    """Return the stored numbers of one measure of one subject, or measure and store them."""
    query = query_for(name, subject, requested, checkpoint, batchnorm)
    if batchnorm != "as_trained" and not measure.uses_statistics:
        raise ValueError(f"batchnorm {batchnorm} has no effect: {name} is measured in training mode")
    title = subject.title if batchnorm == "as_trained" else f"{subject.title}, {batchnorm}"
    stored = None if again else find_row(folder, query, note)
    if stored is not None:
        return Evaluated(title, folder, name, stored["numbers"], new=False)
    options = measure.options(subject, requested)
    reading = reading._replace(progress=bar(f"{subject.title}: {name}"))
    finding = measure.find(subject.with_batchnorm(batchnorm), reading, **options)
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
    name: str, subject: Subject, requested: Mapping[str, Any], checkpoint: Which, batchnorm: Batchnorm = "as_trained"
) -> Query:
    """Return the query of an evaluation, with all options that its numbers depend on.

    Args:
        name: Name of the measure.
        subject: The subject.
        requested: Options to set; the others have their defaults.
        checkpoint: Weights of the subject.
        batchnorm: Kind of batch-norm statistics.
    """
    measure = measure_named(name)
    options = measure.options(subject, requested)
    values, defaults = _as_json(options), _as_json(measure.options(subject, {}))
    if name == "transfer":  # measured on birds, not on the subject's samples; its stored options have a prefix
        values, defaults = ({f"transfer.{key}": value for key, value in stored.items()} for stored in (values, defaults))
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
    source: str, data: Path, samples: Samples, view: View, out: Path, device: str | None, trust: Collection[str]
) -> dict[Path, Callable[[Which], Subject]]:
    """Return functions that load a subject with its last or best weights, by folder."""
    if ":" in source and not Path(source).exists():
        subject = network_subject(source, data, samples, view, device)
        return {out / source.replace(":", "."): lambda which: subject}
    if any(view):
        options = ", ".join(name for name, value in view._asdict().items() if value)
        raise ValueError(f"{options} cannot be set for {source}: a run uses the preparation of its training")
    runs = finished_runs(source, note)
    if not runs and is_run(Path(source)):
        note(f"{Path(source).name} is not finished: its newest checkpoint is evaluated")
        runs = [Path(source)]
    if not runs:
        raise ValueError(f"{source} has no finished runs")
    return {run: cache(partial(_load, run, data, samples, device, trust)) for run in runs}


def _load(run: Path, data: Path, samples: Samples, device: str | None, trust: Collection[str], which: Which) -> Subject:
    subject = run_subject(run, data, checkpoint=which, samples=samples, device=device, trust=trust)
    if subject.settings is not None and subject.settings.running.threads is not None:
        torch.set_num_threads(subject.settings.running.threads)  # as in training, since times depend on it
    return subject
