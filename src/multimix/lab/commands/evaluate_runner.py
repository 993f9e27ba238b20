"""`multimix evaluate` and `multimix transfer`: every evaluator asked about every run, what is known already not asked again."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from rich.console import Console

from ..evaluation.base import Options
from ..evaluation.cache import finished_in, is_run, keep, kept
from ..evaluation.query import asked
from ..evaluation.registry import COUNTS, EVALUATORS, evaluator
from ..evaluation.subject import Samples, Subject, network_subject, run_subject
from ..results.sheet import NOTHING, Sheet, terminal
from ..storage import make_folder, write_atomically
from ..terminal import bar, note
from ..training.checkpoint import Which

Result = TypeVar("Result")
MOST = 12  # numbers of an evaluator that have a column each


class Told(NamedTuple):
    """What one evaluator said about one subject, whose run is in ``folder``; ``new`` if it was measured now."""

    subject: str
    folder: Path
    on: str
    numbers: dict[str, float | None]
    files: list[Path]
    new: bool


class Viewed(NamedTuple):
    """How pictures are prepared for a network that is no run."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop: int | None = None
    foreign: bool = False


def run(
    places: Sequence[str],
    *,
    on: Sequence[str],
    data: Path,
    checkpoint: Which | None,
    samples: Samples,
    viewed: Viewed,
    options: Options,
    out: Path,
    device: str | None,
    again: bool,
) -> None:
    """What the commands do: all evaluations, then tables; what could not be done is said at the end, and nothing is lost."""
    for name in on:
        evaluator(name)
    if not places:
        raise ValueError("name the folder of a run or of results, or package.module:function of a network")
    told: list[Told] = []
    wrong: list[str] = []
    for place in places:
        subjects = _tried(_subjects, place, data, samples, viewed, out, device)
        if isinstance(subjects, str):
            wrong.append(subjects)
            continue
        for label, folder, made in subjects:
            for name in on:
                done = _tried(evaluated, made, folder, name, checkpoint, options, again)
                if isinstance(done, Told):
                    told.append(done)
                else:
                    wrong.append(f"{label}, {name}: {done}")
    for name in on:
        _show(name, [one for one in told if one.on == name])
    known = sum(not one.new for one in told)
    if known:
        note(f"{known} of {len(told)} evaluations were known already (--again measures anew)")
    if len(told) + len(wrong) == 1 and wrong:
        raise ValueError(wrong[0])
    if wrong:
        for sentence in wrong:
            note(sentence)
        raise ValueError(f"{len(wrong)} of {len(told) + len(wrong)} evaluations could not be made")


def _tried(work: Callable[..., Result], *given: Any) -> Result | str:
    """What came of it, or one sentence on why nothing did: the others go on."""
    try:
        return work(*given)
    except (ValueError, OSError) as error:
        return str(error)


def evaluated(
    made: Callable[[Which], Subject], folder: Path, name: str, checkpoint: Which | None, options: Options, again: bool = False
) -> Told:
    """One evaluator on one subject: measured and kept in ``folder``, or taken from there."""
    which = checkpoint or evaluator(name).checkpoint
    subject = made(which)
    question = asked(name, subject, options, which)
    place = folder / question.folder
    before = None if again else kept(folder, question, note)
    if before is not None:
        return Told(subject.title, folder, name, before["numbers"], sorted(place.glob("*.*")), new=False)
    found = evaluator(name).measure(subject, options, bar(f"{subject.title}: {name}"))
    try:
        if found.files:
            make_folder(place)
        for file, content in found.files.items():
            write_atomically(place / file, content)
        keep(folder, question, numbers=found.numbers, result=found.result)
    except OSError as error:
        note(f"what was found about {subject.title} cannot be kept: {error}")
        return Told(subject.title, folder, name, found.numbers, [], new=True)
    return Told(subject.title, folder, name, found.numbers, [place / file for file in found.files], new=True)


def _subjects(
    place: str, data: Path, samples: Samples, viewed: Viewed, out: Path, device: str | None
) -> list[tuple[str, Path, Callable[[Which], Subject]]]:
    """What is to be evaluated there: its name, its folder, and how to get it with which weights."""
    if ":" in place and not Path(place).exists():
        subject = network_subject(place, data, samples, **viewed._asdict(), device=device)
        return [(place, out / place.replace(":", "."), lambda which: subject)]
    if any(value for value in viewed):
        raise ValueError("mean, std, crop and foreign are for networks that are no runs; a run knows how it was trained")
    runs = finished_in(place, note)
    if not runs and is_run(Path(place)):
        note(f"{Path(place).name} is not finished: its newest checkpoint is evaluated")
        runs = [Path(place)]
    if not runs:
        raise ValueError(f"{place} has no finished runs")
    return [(run.name, run, _remembered(run, data, samples, device)) for run in runs]


def _remembered(run: Path, data: Path, samples: Samples, device: str | None) -> Callable[[Which], Subject]:
    """The subject, made when it is first asked for."""
    known: dict[Which, Subject] = {}

    def made(which: Which) -> Subject:
        if which not in known:
            known[which] = subject = run_subject(run, data, checkpoint=which, samples=samples, device=device)
            if subject.settings is not None and subject.settings.running.threads is not None:
                torch.set_num_threads(subject.settings.running.threads)  # as it was trained; times depend on it
        return known[which]

    return made


def _show(name: str, told: Sequence[Told]) -> None:
    """A line for each subject; for one alone, or an evaluator with many numbers, a line for each number."""
    if not told:
        return
    labels = _labels(told)
    title = f"{name}: {EVALUATORS[name].about}"
    wanted = EVALUATORS[name].shown or tuple(dict.fromkeys(key for one in told for key in one.numbers))
    names = [key for key in wanted if any(one.numbers.get(key) is not None for one in told)]
    if len(told) > 1 and len(names) <= MOST:
        lines = [
            [(label, ""), *((_number(key, one.numbers.get(key)), "") for key in names)]
            for label, one in zip(labels, told, strict=True)
        ]
        Console().print(terminal(Sheet(title, ["run", *(key.replace("_", " ") for key in names)], lines, [])))
    else:
        keys = dict.fromkeys(key for one in told for key in one.numbers)
        lines = [[(key.replace("_", " "), ""), *((_number(key, one.numbers.get(key)), "") for one in told)] for key in keys]
        Console().print(terminal(Sheet(title, ["", *labels], lines, [])))
    pictures = [file for one in told for file in one.files]
    if len(told) == 1:
        for file in pictures:
            print(f"picture {file}")
    elif pictures:
        print(f"{len(pictures)} pictures, such as {pictures[0]}")


def _labels(told: Sequence[Told]) -> list[str]:
    """What tells the subjects from each other: arm, K and seed; if need be with recipe and scale, or the run's whole name."""
    titles = [one.subject for one in told]
    longer = [f"{'/'.join(one.folder.resolve().parts[-3:-1])} {one.subject}" for one in told]
    whole = ["/".join(one.folder.resolve().parts[-3:]) for one in told]
    return next((labels for labels in (titles, longer) if len(set(labels)) == len(told)), whole)


def _number(name: str, value: float | None) -> str:
    """Counts are whole; for the rest two places, or three digits of what is small."""
    if value is None:
        return NOTHING
    if name in COUNTS:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"
