"""The pictures of the page: what the paper's figures show, from our runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..look.paper_figures import four_interpolations, one_sample_each
from ..look.pictures import cat, dog
from ..results.figures.paper import measured_figure
from ..results.paper import Exhibit
from ..results.paper_table import FilledTable
from ..results.rows import Rows
from ..terminal import note
from .plan import Plan
from .run import DEMO_FOLDER


class Picture(NamedTuple):
    """A PNG with what it shows in words."""

    png: bytes
    alt: str


def pictures(plan: Plan, filled: Mapping[Exhibit, FilledTable], rows: Rows, out: Path) -> dict[Exhibit, list[Picture]]:
    """Those of every figure of the plan that has something to show."""
    found = {one: _pictures(one, plan, filled.get(one), rows, out) for one in plan.exhibits if one.kind == "figure"}
    return {one: pictures for one, pictures in found.items() if pictures}


def _pictures(one: Exhibit, plan: Plan, filled: FilledTable | None, rows: Rows, out: Path) -> list[Picture]:
    if one.name == "samples":
        return [Picture(one_sample_each(cat(), dog(), note=note), "A cat and a dog, mixed once by every method")]
    if one.name == "interpolations":
        return [Picture(four_interpolations(cat(), dog()), "Four interpolations of a cat and a dog by three methods")]
    if one.name == "spiral":
        stem = "spiral-quick" if plan.scale == "smoke" else "spiral"
        files = {out / DEMO_FOLDER / f"{stem}-{name}.png": words for name, words in SPIRAL.items()}
        return [Picture(path.read_bytes(), words) for path, words in files.items() if path.exists()]
    if filled is not None:
        drawn = measured_figure(filled, rows, plan.follow)
        return [Picture(content, one.title) for name, content in drawn.items() if name.endswith(".png")]
    return []


SPIRAL = {
    "data": "The points of the spiral, a fifth of the training labels flipped",
    "boundaries": "What the median run of every training decides, over the plane",
}
