"""What `multimix evaluate` and `multimix transfer` show: pictures of every measure, and tables on the terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.console import Console

from ..data import Files
from ..evaluation import COUNTS, MEASURES
from ..evaluation.boxes import with_boxes
from ..evaluation.runner import Evaluated
from ..evaluation.subject import Subject
from ..terminal import note
from .figures.against_k import norm_figures, time_figures
from .figures.boxes import box_examples, box_picture
from .figures.confusion import confusion_figures
from .figures.reliability import reliability_figures
from .table import NOTHING, Cell, Table

EXAMPLES = 10  # pictures with boxes
MOST = 12  # numbers of a measure that have a column each


def _box_examples(subject: Subject) -> dict[str, bytes]:
    assert isinstance(subject.report, Files)
    boxed = with_boxes(subject.report)
    index = torch.linspace(0, len(boxed) - 1, min(EXAMPLES, len(boxed))).round().long()
    examples = box_examples(subject.network, boxed, subject.evaluation, index, foreign=subject.foreign)
    return {"boxes.png": box_picture(examples, note=subject.title)}


FIGURES: Mapping[str, Callable[[Subject, Any], Mapping[str, bytes]]] = {
    "error": lambda subject, found: confusion_figures(found, found.classes, subject.title),
    "calibration": lambda subject, found: reliability_figures(found.calibration, subject.title, found.scaling),
    "localization": lambda subject, found: _box_examples(subject),
    "gradient_norm": lambda subject, found: norm_figures(found, subject.title),
    "training_time": lambda subject, found: time_figures(found, subject.title),
}


def draw(name: str, subject: Subject, result: Any) -> Mapping[str, bytes]:
    """Pictures of what the measure ``name`` found, by file name."""
    return FIGURES[name](subject, result) if name in FIGURES else {}


def show_evaluations(on: Sequence[str], done: Sequence[Evaluated], failed: Sequence[str]) -> None:
    """A table for every measure in ``on``; then what could not be measured, as a ValueError at the end."""
    for name in on:
        own = [one for one in done if one.on == name]
        if own:
            _show(name, own)
    known = sum(not one.new for one in done)
    if known:
        note(f"{known} of {len(done)} evaluations were known already (--again measures anew)")
    if len(failed) == 1 and not done:
        raise ValueError(failed[0])
    if failed:
        for sentence in failed:
            note(sentence)
        raise ValueError(f"{len(failed)} of {len(done) + len(failed)} evaluations could not be made")


def _show(name: str, done: Sequence[Evaluated]) -> None:
    """A line for each subject; for one alone, or a measure with many numbers, a line for each number."""
    labels = _labels(done)
    title = f"{name}: {MEASURES[name].about}"
    every = tuple(dict.fromkeys(key for one in done for key in one.numbers))
    names = [key for key in MEASURES[name].columns or every if any(one.numbers.get(key) is not None for one in done)]
    if len(done) > 1 and len(names) <= MOST:
        lines: list[list[Cell]] = [
            [label, *(_number(key, one.numbers.get(key)) for key in names)] for label, one in zip(labels, done, strict=True)
        ]
        heads = ["run", *(key.replace("_", " ") for key in names)]
    else:
        lines = [[key.replace("_", " "), *(_number(key, one.numbers.get(key)) for one in done)] for key in every]
        heads = ["", *labels]
    Console().print(Table(title, heads, lines))
    pictures = [file for one in done for file in one.files]
    if len(done) == 1:
        for file in pictures:
            print(f"picture {file}")
    elif pictures:
        print(f"{len(pictures)} pictures, such as {pictures[0]}")


def _labels(done: Sequence[Evaluated]) -> list[str]:
    """What tells the subjects from each other: arm, K and seed; if need be with recipe and scale, or the run's whole name."""
    titles = [one.subject for one in done]
    longer = [f"{'/'.join(one.folder.resolve().parts[-3:-1])} {one.subject}" for one in done]
    whole = ["/".join(one.folder.resolve().parts[-3:]) for one in done]
    return next((labels for labels in (titles, longer) if len(set(labels)) == len(done)), whole)


def _number(name: str, value: float | None) -> str:
    """Counts are whole; for the rest two places, or three digits of what is small."""
    if value is None:
        return NOTHING
    if name in COUNTS:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"
