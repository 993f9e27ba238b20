"""The rows of one recipe at one scale as lines: runs of the same arm, K and settings together, and what is odd about them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from operator import itemgetter
from statistics import fmean
from typing import Any, NamedTuple

from ..recipes.base import Recipe, Scale, arm_names, arm_settings, counts_k
from ..recipes.serialise import describe, rebuild
from ..recipes.settings import MACHINE_FIELDS, Settings
from ..statistics import Summary, summary
from ..sweep.plan import Equal
from ..training.log import Epoch, Outcome, outcome
from .paper import paper_error

BASELINE = "none"
ECE = "calibration.ece"
ERROR_WORDS = {
    "last": "error of the last epoch",
    "median": "median error of the last epochs",
    "best": "error of the best epoch",
    "selected": "error of the selected epoch",
}
ERRORS = tuple(ERROR_WORDS)
CHANGED = "†"  # beside an arm that was not trained with the recipe's settings
SCALE_WORDS: Mapping[Scale, str] = {
    "paper": "paper scale",
    "small": "small scale: a reduced study, not the paper's setting",
    "smoke": "smoke scale: shows that everything runs, not the paper's setting",
}
# Fields of every row that pages read; a row without one was not written by a training.
NEEDED = ("arm", "k", "seed", "digest", "settings", "device", "processes", "skipped", "environment")

Row = Mapping[str, Any]
Rows = Sequence[Row]


class Run(NamedTuple):
    """One finished training. ``evaluations`` are numbers by the evaluator's name and their own, such as ``calibration.ece``."""

    row: Row
    outcome: Outcome
    epochs: tuple[Epoch, ...]
    evaluations: Mapping[str, float]

    @property
    def machine(self) -> str:
        """What its seconds depend on."""
        processes, threads = self.row["processes"], self.row["environment"]["threads"]
        return f"{self.row['device']}, {processes} process{'' if processes == 1 else 'es'}, threads: {threads}"

    @property
    def on_cpu(self) -> bool:
        """Whether no accelerator did the work, so that CPU seconds are its cost."""
        return self.machine.startswith("cpu")

    def value(self, name: str) -> float | None:
        """A field of the outcome, or a number of an evaluation by its dotted name; None where there is none."""
        value = self.evaluations.get(name) if "." in name else getattr(self.outcome, name)
        return None if value is None else float(value)

    def spent(self, what: Equal, epochs: int | None = None) -> float:
        """Updates (steps), rows through the network (samples) or seconds (compute) of the first ``epochs``, or of all."""
        own = self.epochs[:epochs]
        if what == "steps":
            return own[-1].updates
        if what == "samples":
            return float(sum(epoch.rows for epoch in own))
        return sum(epoch.cpu_seconds if self.on_cpu else epoch.seconds for epoch in own)

    def until(self, epochs: int) -> "Run":
        """What it was after so many epochs, the last of them evaluated."""
        return self._replace(epochs=self.epochs[:epochs], outcome=outcome(self.epochs[:epochs]))


@dataclass(frozen=True)
class Line:
    """Runs of one arm, K and digest by seed, in ascending order; without runs it is a row of the recipe that was not trained.

    ``differs`` are settings that differ from those of most runs of this arm and K, ``changed`` from the recipe's own: dotted
    names with what they are here and there. Pairs and batch statistics are those of one of the ``processes``, so runs of
    another number of them are another line.
    """

    arm: str
    k: int
    paper: float | None
    digest: str = ""
    runs: Mapping[int, Run] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    processes: int = 1

    @property
    def label(self) -> str:
        """The arm, with K where it means something, and the number of processes if it was not one."""
        name = f"{self.arm} K = {self.k}" if counts_k(self.arm) or self.k != 1 else self.arm
        return name if self.processes == 1 else f"{name} ({self.processes} processes)"

    @property
    def marked(self) -> bool:
        """Whether it must be said that these are not the recipe's settings, and ``differs`` does not say it already."""
        return bool(self.changed) and self.changed != self.differs

    @property
    def seeds(self) -> list[int]:
        """Those that finished."""
        return list(self.runs)

    def values(self, name: str) -> dict[int, float]:
        """A number of the runs by seed, as :meth:`Run.value` names it, where there is one."""
        values = {seed: run.value(name) for seed, run in self.runs.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def summary(self, name: str) -> Summary | None:
        """Mean of such a number over the seeds with its interval, if there is any value."""
        values = self.values(name)
        return summary(list(values.values())) if values else None

    def mean(self, value: Callable[[Run], float]) -> float | None:
        """Mean of anything about a run over the seeds, if there are runs."""
        return fmean(map(value, self.runs.values())) if self.runs else None

    def spent(self, what: Equal) -> float | None:
        """What a run has spent, mean over the seeds."""
        return self.mean(lambda run: run.spent(what))

    def evaluated(self, on: str) -> list[Mapping[str, Any]]:
        """The rows of an evaluation, of those runs that have it."""
        every = (run.row.get("evaluations", {}).get(on) for run in self.runs.values())
        return [row for row in every if row is not None]

    @property
    def comparable(self) -> tuple[str, ...]:
        """Lines with the same value compare: everything but the method that is not the recipe's, and the number of processes."""
        changed = tuple(words for words in self.changed if not words.startswith(("method ", "method.")))
        return (*changed, f"processes = {self.processes}")


class Aggregate(NamedTuple):
    """The lines in the order of the recipe, then those it does not have, and sentences on what the reader must know."""

    recipe: Recipe
    scale: Scale
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def trained(self) -> list[Line]:
        """The lines with finished runs."""
        return [line for line in self.lines if line.runs]

    @property
    def error(self) -> str:
        """The error that is compared: the one the recipe reports, the last where it reports something else."""
        reported = self.recipe.reported(self.scale)
        return reported if reported in ERRORS else "last"

    @property
    def timed(self) -> str:
        """How seconds were taken."""
        return "CPU s" if all(run.on_cpu for line in self.lines for run in line.runs.values()) else "s"

    def marks(self) -> dict[tuple[str, ...], str]:
        """A sign for every way in which settings differ from those of most runs, explained below the table of results."""
        ways = dict.fromkeys(line.differs for line in self.lines if line.differs)
        return {differs: f"[{place}]" for place, differs in enumerate(ways, start=1)}

    def label(self, line: Line) -> str:
        """The line's name, with the mark it has in the table of results where settings differ."""
        return f"{line.label} {self.marks()[line.differs]}" if line.differs else line.label


def aggregate(recipe: Recipe, scale: Scale, rows: Rows) -> Aggregate:
    """All runs of ``recipe`` at ``scale``; rows of others are passed over, the last of several for one run counts."""
    if recipe.metric not in {field.name for field in fields(Outcome)}:
        raise ValueError(f"metric must be a field of an outcome, got {recipe.metric!r}")
    groups: dict[tuple[str, int], _Group] = {(row.arm, row.k): {} for row in recipe.rows}
    for row in rows:
        if (row.get("recipe"), row.get("scale")) == (recipe.name, scale):
            run = _run(row)
            groups.setdefault((row["arm"], row["k"]), {}).setdefault(row["digest"], []).append(run)
    lines = [line for (arm, k), group in groups.items() for line in _lines(recipe, scale, arm, k, group)]
    notes = []
    for (arm, k), group in groups.items():
        for members in group.values():
            for seed, count in Counter(run.row["seed"] for run in members).items():
                if count > 1:
                    notes.append(f"{Line(arm, k, None).label}, seed {seed}, has {count} rows: the last one counts")
    return Aggregate(recipe, scale, tuple(lines), (*notes, *_changes(lines), *_circumstances(lines)))


def join_settings(settings: Sequence[str], most: int = 4) -> str:
    """Settings in one sentence, the first ``most`` of them by name; CSV files name all."""
    more = [f"and {len(settings) - most} more"] if len(settings) > most else []
    return "; ".join([*settings[:most], *more])


_Group = dict[str, list[Run]]  # by digest


def _run(row: Row) -> Run:
    """A row as a run; a ValueError for a row with other fields than a training writes."""
    try:
        itemgetter(*NEEDED)(row)
        return Run(
            row=row,
            outcome=Outcome(**row["outcome"]),
            epochs=tuple(Epoch(**epoch) for epoch in row["epochs"]),
            evaluations={
                f"{on}.{name}": value
                for on, evaluation in row.get("evaluations", {}).items()
                for name, value in evaluation["numbers"].items()
                if value is not None
            },
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a row of the results of {row['recipe']} has other fields than this version writes: {error}") from error


def _lines(recipe: Recipe, scale: Scale, arm: str, k: int, group: _Group) -> Iterator[Line]:
    """One line per digest, that of most seeds first."""
    known = paper_error(recipe.name, arm, k)
    paper = None if known is None else known.mean
    if not group:
        yield Line(arm, k, paper)
        return
    own = _recipe_settings(recipe, scale, arm, k)
    newest = {digest: members[-1].row for digest, members in group.items()}
    settings = {digest: _with_defaults(row["settings"]) for digest, row in newest.items()}
    processes = {digest: row["processes"] for digest, row in newest.items()}
    changed = {digest: _differences(settings[digest], own) for digest in group}
    runs = {digest: {run.row["seed"]: run for run in members} for digest, members in group.items()}
    # As many seeds on both sides: what the recipe says is the rule, not the exception.
    order = sorted(group, key=lambda digest: (-len(runs[digest]), len(changed[digest]) > 0))
    for digest in order:
        differs = _differences(settings[digest], settings[order[0]])
        if digest != order[0] and not differs and processes[digest] == processes[order[0]]:
            differs = (f"digest = {digest}, not {order[0]}",)  # a number written in another way
        yield Line(arm, k, paper, digest, dict(sorted(runs[digest].items())), differs, changed[digest], processes[digest])


def differences(here: Settings, there: Settings) -> tuple[str, ...]:
    """Dotted names of settings that differ, with what they are here and there."""
    return _differences(_plain(describe(here)), _plain(describe(there)))


def _recipe_settings(recipe: Recipe, scale: Scale, arm: str, k: int) -> dict[str, Any]:
    """The recipe's settings of an arm; without those of the method where the arm cannot be made, since rows outlive code."""
    base = recipe.settings(scale)
    try:
        if arm in arm_names():
            return _plain(describe(arm_settings(recipe, base, arm, k)))
    except (ValueError, TypeError):
        pass
    return {name: value for name, value in _plain(describe(base)).items() if not _of_method(name)}


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings with the defaults of fields that are newer than the row; as stored where this version cannot read them."""
    with suppress(ValueError, TypeError):
        return _plain(describe(rebuild(Settings, settings)))
    return _plain(settings)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are after JSON, without those of the machine."""
    plain = {name: value for name, value in settings.items() if not name.startswith(MACHINE_FIELDS)}
    return json.loads(json.dumps(plain))  # type: ignore[no-any-return]  # a dictionary comes back as one


def _differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[str, ...]:
    """Dotted names with what they are here and there; those of the method only where both have one."""
    names = [name for name in {**here, **there} if here.get(name, "unset") != there.get(name, "unset")]
    if not any(map(_of_method, there)):
        names = [name for name in names if not _of_method(name)]
    return tuple(f"{name} = {_words(here.get(name, 'unset'))}, not {_words(there.get(name, 'unset'))}" for name in names)


def _of_method(name: str) -> bool:
    return name.partition(".")[0] == "method"


def _words(value: Any) -> str:
    """A value as short as it can be told from others that people write."""
    if isinstance(value, list):
        return f"[{', '.join(map(_words, value))}]"
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else str(value)


def _changes(lines: Sequence[Line]) -> Iterator[str]:
    """Where settings are not the recipe's, unless the line says so by itself."""
    labels: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.marked:
            labels.setdefault(line.changed, []).append(line.label)
    for changed, own in labels.items():
        yield f"{CHANGED} not with the recipe's settings: {', '.join(dict.fromkeys(own))} ({join_settings(changed)})"


def _circumstances(lines: Sequence[Line]) -> Iterator[str]:
    """What else may make runs differ."""
    pairs = [(line.label, run) for line in lines for run in line.runs.values()]
    skipped: dict[int, dict[str, None]] = {}
    versions: dict[str, None] = {}
    machines = {run.machine: None for _, run in pairs}
    for label, run in pairs:
        skipped.setdefault(run.row["skipped"], {})[label] = None
        environment = run.row["environment"]
        versions[f"{environment['commit']} with torch {environment['torch']}"] = None
    for count in sorted(skipped.keys() - {0}):
        yield f"bad samples left out of the data: {count} ({', '.join(skipped[count])})"
    if len(machines) > 1:
        yield f"seconds do not compare, they are from different machines: {'; '.join(machines)}"
    if len(versions) > 1:
        yield f"the runs are of different versions: {'; '.join(versions)}"
