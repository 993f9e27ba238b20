"""What a table of the paper is: rows of trainings, columns of what was measured, and the paper's numbers where they are known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...recipes import recipe
from ...recipes.base import Scale

REPORTED = "reported"  # the number that a recipe reports at a scale
DEMO = "demo"  # in place of a recipe: the study of the spiral
Key = tuple[str, int]  # an arm and its K
MULTI_MIX: Key = ("puzzlemix", 5)


class TableRow(NamedTuple):
    """One line: an arm, its K, and what the paper calls it."""

    arm: str
    k: int
    label: str

    @property
    def key(self) -> Key:
        return self.arm, self.k


@dataclass(frozen=True)
class Column:
    """One measurement: ``value`` of the runs of ``recipe``, an outcome's or an evaluation's by its dotted name.

    With ``of`` all rows are read from the runs of this arm and K, and ``value`` has a place ``{k}`` for the row's own K.
    ``paper`` are numbers of the paper that the recipe does not hold. ``places`` is None for what may have any size.
    """

    head: str
    recipe: str
    value: str = REPORTED
    lower: bool = True
    unit: str = "per cent"
    places: int | None = 2
    of: Key | None = None
    paper: Mapping[Key, float] = field(default_factory=dict)

    def name(self, scale: Scale, k: int) -> str:
        """The number's name in the results of a run."""
        return recipe(self.recipe).reported(scale) if self.value == REPORTED else self.value.format(k=k)

    def number(self, key: Key) -> float | None:
        """The paper's number for a row, if it is known here."""
        held = recipe(self.recipe).paper(*key) if self.value == REPORTED and self.recipe != DEMO else None
        return self.paper.get(key) if held is None else held

    @property
    def evaluator(self) -> str | None:
        """The evaluator that measures it, None where training does."""
        return self.value.partition(".")[0].partition("@")[0] if "." in self.value else None


@dataclass(frozen=True)
class PaperTable:
    """One table or figure of the paper with measured numbers.

    ``number`` is ours. ``against`` is the row that the paper tests all others against, and ``notes`` are what to know about the
    paper's numbers: where its text and its tables differ, and what it leaves open.
    """

    number: int
    name: str
    title: str
    about: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    against: Key = MULTI_MIX

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes whose runs fill it, each once."""
        return tuple(dict.fromkeys(column.recipe for column in self.columns))

    @property
    def evaluators(self) -> tuple[str, ...]:
        """The evaluators it needs beside training, each once."""
        return tuple(dict.fromkeys(column.evaluator for column in self.columns if column.evaluator is not None))


METHODS: tuple[TableRow, ...] = (
    TableRow("none", 1, "no mixing"),
    TableRow("mixup", 1, "input mixup"),
    TableRow("manifoldmix", 1, "manifold mixup"),
    TableRow("cutout", 1, "cutout"),
    TableRow("cutmix", 1, "cutmix"),
    TableRow("fmix", 1, "FMix"),
    TableRow("comixup", 1, "co-mixup"),
    TableRow("puzzlemix", 1, "puzzle-mix"),
    TableRow("smoothing", 1, "label smoothing"),
    TableRow("puzzlemix", 5, "multi-mix, K = 5"),
)
INTERPOLATIONS: tuple[TableRow, ...] = tuple(TableRow("puzzlemix", k, f"K = {k}") for k in (1, 3, 5, 7, 9))
