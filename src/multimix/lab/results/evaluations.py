"""What `multimix evaluate` and `multimix transfer` show: pictures of every measure, and tables on the terminal."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..data import Files
from ..data.cub import read_cub200
from ..evaluation import COUNTS, MEASURES
from ..evaluation.boxes import with_boxes
from ..evaluation.cache import PICTURES
from ..evaluation.runner import Evaluated
from ..evaluation.subject import Subject, resized_view
from ..evaluation.transfer import BirdBoxes
from ..recipes import recipe
from ..recipes.base import Follow, Scale
from ..terminal import note, say
from .figures.against_k import norm_figures, time_figures
from .figures.boxes import birds_strip, box_examples, box_picture, pictures_seen
from .figures.confusion import confusion_figures
from .figures.reliability import reliability_figures
from .paper import Exhibit
from .paper_table import with_own_settings
from .rows import Rows, aggregate
from .table import NOTHING, Cell, Table

EXAMPLES = 10  # pictures with boxes
BIRDS = "birds.png"
MOST = 12  # numbers of a measure that have a column each


def _box_examples(subject: Subject) -> dict[str, bytes]:
    assert isinstance(subject.report, Files)
    boxed = with_boxes(subject.report)
    index = torch.linspace(0, len(boxed) - 1, min(EXAMPLES, len(boxed))).round().long()
    examples = box_examples(subject.network, boxed, subject.evaluation, index, foreign=subject.foreign)
    return {"boxes.png": box_picture(examples, note=subject.title)}


def _birds(subject: Subject, examples: Sequence[BirdBoxes]) -> dict[str, bytes]:
    """The birds of a transfer with their boxes."""
    if not examples:
        return {}
    assert subject.folder is not None
    assert subject.settings is not None
    some = with_boxes(read_cub200(subject.folder).parts["test"].take(torch.tensor([one.row for one in examples])))
    images = pictures_seen(some, resized_view(subject.settings))
    boxes = [torch.tensor(one.predicted) for one in examples], [torch.tensor(one.true).reshape(-1, 4) for one in examples]
    return {BIRDS: birds_strip(list(images), *boxes)}


def bird_strips(exhibit: Exhibit, scale: Scale, rows: Rows, follow: Follow = "text") -> dict[str, bytes]:
    """The birds of the paper's Fig. 5 as stored beside the runs: for every row of it those of the first seed that has them."""
    strips: dict[str, bytes] = {}
    for name in exhibit.pictures_of:
        lines = {(line.arm, line.k): line for line in with_own_settings(aggregate(recipe(name, follow), scale, rows))}
        for row in exhibit.rows:
            runs = lines[row.key].runs.values() if row.key in lines else ()
            # Known to the run: those of weights that it no longer has may still lie in its folder.
            places = [Path(run.row["place"]) for run in runs if "transfer" in run.row["evaluations"]]
            files = [place / PICTURES / "transfer" / BIRDS for place in places]
            first = next((file for file in files if file.exists()), None)
            if first is not None:
                strips[row.label] = first.read_bytes()
    return strips


FIGURES: Mapping[str, Callable[[Subject, Any], Mapping[str, bytes]]] = {
    "error": lambda subject, found: confusion_figures(found, found.classes, subject.title),
    "calibration": lambda subject, found: reliability_figures(found.calibration, subject.title, found.scaling),
    "localization": lambda subject, found: _box_examples(subject),
    "transfer": lambda subject, found: _birds(subject, found.examples),
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
        raise ValueError("not all evaluations could be made, as said above")


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
            say(f"picture {file}")
    elif pictures:
        say(f"{len(pictures)} pictures, such as {pictures[0]}")


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
