"""`multimix evaluate` and `multimix transfer`: every evaluator asked about every run, what is known already not asked again."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ..results import make_folder, write_atomically
from ..sheet import NOTHING, Sheet, terminal
from ..terminal import bar, note
from ..training.loaded import Which
from .kept import PICTURES, finished_in, is_run, keep, kept
from .measures import EVALUATORS, Options, decisive, evaluator
from .subject import Samples, Subject, network_subject, run_subject

COUNTS = ("n", "classes", "selected_epoch")


class Told(NamedTuple):
    """What one evaluator said about one subject."""

    subject: str
    on: str
    numbers: dict[str, float | None]
    files: list[Path]


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
        raise ValueError("evaluate needs the folder of a run or of results, or package.module:function")
    told: list[Told] = []
    wrong: list[str] = []
    for place in places:
        subjects = _subjects(place, data, samples, viewed, out, device)
        for label, folder, made in subjects:
            for name in on:
                done = _tried(made, folder, name, checkpoint, options, again)
                if isinstance(done, Told):
                    told.append(done)
                else:
                    wrong.append(f"{label}, {name}: {done}")
                    note(wrong[-1])
    for name in on:
        _show(name, [one for one in told if one.on.partition("@")[0] == name])
    if wrong:
        same = len(wrong) == 1 or len({words.partition(": ")[2] for words in wrong}) == 1
        count = f"{len(wrong)} of {len(told) + len(wrong)} evaluations could not be made"
        raise ValueError(f"{count}: {wrong[0].partition(': ')[2] if same else '; '.join(wrong)}")


def _tried(
    made: Callable[[Which], Subject], folder: Path, name: str, checkpoint: Which | None, options: Options, again: bool
) -> Told | str:
    """What was found, or one sentence on why nothing was: the others go on."""
    try:
        return evaluated(made, folder, name, checkpoint, options, again)
    except ValueError as error:
        return str(error)


def evaluated(
    made: Callable[[Which], Subject], folder: Path, name: str, checkpoint: Which | None, options: Options, again: bool = False
) -> Told:
    """One evaluator on one subject: measured and kept in ``folder``, or taken from there."""
    which = checkpoint or evaluator(name).checkpoint
    subject = made(which)
    given = decisive(name, subject, options)
    weights = subject.weights
    key = f"{name}@best" if which == "best" else name
    before = None if again else kept(folder, name, weights=weights, options=given, note=note)
    place = folder / PICTURES / key
    if before is not None:
        files = sorted(place.glob("*.*")) if place.is_dir() else []
        return Told(subject.title, key, before["numbers"], files)
    found = evaluator(name).measure(subject, options, bar(f"{subject.title}: {name}"))
    if found.files:
        make_folder(place)
    for file, content in found.files.items():
        write_atomically(place / file, content)
    keep(folder, name, checkpoint=which, weights=weights, options=given, numbers=found.numbers, result=found.result)
    return Told(subject.title, key, found.numbers, [place / file for file in found.files])


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
            known[which] = run_subject(run, data, checkpoint=which, samples=samples, device=device)
        return known[which]

    return made


def _show(name: str, told: Sequence[Told]) -> None:
    """A line for each subject; for one alone, or an evaluator with many numbers, a line for each number."""
    if not told:
        return
    title = f"{name}: {EVALUATORS[name].about}"
    names = [key for key in EVALUATORS[name].shown if any(one.numbers.get(key) is not None for one in told)]
    if len(told) > 1 and names:
        lines = [[(one.subject, ""), *((_number(key, one.numbers.get(key)), "") for key in names)] for one in told]
        Console().print(terminal(Sheet(title, ["run", *(key.replace("_", " ") for key in names)], lines, [])))
    else:
        keys = dict.fromkeys(key for one in told for key in one.numbers)
        lines = [[(key.replace("_", " "), ""), *((_number(key, one.numbers.get(key)), "") for one in told)] for key in keys]
        Console().print(terminal(Sheet(title, ["", *(one.subject for one in told)], lines, [])))
    pictures = [file for one in told for file in one.files]
    if len(told) == 1:
        for file in pictures:
            print(f"picture {file}")
    elif pictures:
        print(f"{len(pictures)} pictures, in the folder {PICTURES}/{told[0].on} of every run")


def _number(name: str, value: float | None) -> str:
    """Counts are whole; for the rest two places, or three digits of what is small."""
    if value is None:
        return NOTHING
    if name in COUNTS:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"
