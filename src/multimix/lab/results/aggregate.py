"""The rows of one recipe at one scale, sorted: runs of the same arm, K and settings together, and what is odd about them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple, TypeVar, get_args

from ..recipes.arms import counts_k
from ..recipes.base import Recipe, Scale
from ..statistics import Paired, Summary, paired, summary
from ..training.log import Epoch, Outcome
from .differences import differences, plain_settings, recipe_settings

BASELINE = "none"
NAMED = 4  # settings that are named one by one; the CSV file names all
WORDS: Mapping[Scale, str] = {
    "paper": "paper scale",
    "small": "small scale: a reduced study, not the paper's setting",
    "smoke": "smoke scale: shows that everything runs, not the paper's setting",
}

Rows = Sequence[Mapping[str, Any]]
# Fields of an outcome that are shown, with their names.
HEADS: Mapping[str, str] = {
    "last": "last",
    "median": "median",
    "best": "best",
    "selected": "selected",
    "squared_grad_norm": "‖g‖²",
    "seconds_per_epoch": "s/epoch",
}
ERRORS = ("last", "median", "best", "selected")
CHANGED = "†"  # beside an arm that was not trained with the recipe's settings

Record = TypeVar("Record")


class Run(NamedTuple):
    """One finished training. ``machine`` is what its seconds depend on, ``version`` what else its numbers may depend on.

    ``evaluations`` are numbers by the evaluator's name and their own, joined by a dot, such as ``calibration.ece``.
    """

    seed: int
    outcome: Outcome
    epochs: tuple[Epoch, ...]
    machine: str
    version: str
    skipped: int
    evaluations: Mapping[str, float] = {}

    def value(self, field: str) -> float | None:
        """A field of the outcome, or a number of an evaluation by its dotted name; None where there is none."""
        found = self.evaluations.get(field) if "." in field else getattr(self.outcome, field)
        return None if found is None else float(found)


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
    runs: Mapping[int, Run] | None = None
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
        return list(self.runs or {})

    def values(self, field: str) -> dict[int, float]:
        """A number of the runs by seed, as :meth:`Run.value` names it, where there is one."""
        found = {seed: run.value(field) for seed, run in (self.runs or {}).items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def summary(self, field: str) -> Summary | None:
        """Mean of such a number over the seeds with its interval, if there is any value."""
        values = self.values(field)
        return summary(list(values.values())) if values else None

    @property
    def images(self) -> float | None:
        """Samples loaded in all epochs together, mean over the seeds."""
        counts = [sum(epoch.images for epoch in run.epochs) for run in (self.runs or {}).values()]
        return sum(counts) / len(counts) if counts else None


class Gathered(NamedTuple):
    """The lines in the order of the recipe, then those it does not have, and sentences on what the reader must know."""

    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def with_none(self, line: Line, field: str) -> Paired | None:
        """``line`` minus no mixing over at least two common seeds, if there is a line that differs by nothing but the arm."""
        if line.arm == BASELINE:
            return None
        others = [other for other in self.lines if other.arm == BASELINE and beside_method(other) == beside_method(line)]
        return _minus(line, others, field)

    def with_one(self, line: Line, field: str) -> Paired | None:
        """``line`` minus its own arm at K = 1 over at least two common seeds, if there is a line that differs by K alone."""
        if line.k == 1:
            return None
        same = (line.arm, 1, line.changed, line.processes)
        others = [other for other in self.lines if (other.arm, other.k, other.changed, other.processes) == same]
        return _minus(line, others, field)


def gathered(recipe: Recipe, scale: Scale, rows: Rows) -> Gathered:
    """All runs of ``recipe`` at ``scale``; rows of others are passed over, the last of several for one run counts."""
    if recipe.metric not in {field.name for field in fields(Outcome)}:
        raise ValueError(f"metric must be a field of an outcome, got {recipe.metric!r}")
    groups: dict[tuple[str, int], dict[str, list[Mapping[str, Any]]]] = {(row.arm, row.k): {} for row in recipe.rows}
    older: Counter[str] = Counter()
    for row in rows:
        if (row.get("recipe", recipe.name), row.get("scale", scale)) != (recipe.name, scale):
            continue
        missing = _missing(row)
        if missing:
            older[missing] += 1
        else:
            groups.setdefault((row["arm"], row["k"]), {}).setdefault(row["digest"], []).append(row)
    lines = [line for (arm, k), group in groups.items() for line in _lines(recipe, scale, arm, k, group)]
    repeated = [note for (arm, k), group in groups.items() for note in _repeated(Line(arm, k, None).label, group)]
    return Gathered(tuple(lines), (*_older(older), *repeated, *_changes(lines), *_circumstances(lines)))


def named(settings: Sequence[str], most: int = NAMED) -> str:
    """Settings in one sentence, the first ``most`` of them by name."""
    more = [f"and {len(settings) - most} more"] if len(settings) > most else []
    return "; ".join([*settings[:most], *more])


def _minus(line: Line, others: Sequence[Line], field: str) -> Paired | None:
    """``line`` minus the one of ``others`` with which it has most seeds in common, if those are at least two."""
    own = line.values(field)
    common = [sorted(set(own) & set(other.values(field))) for other in others]
    most = max(range(len(others)), key=lambda i: len(common[i]), default=None)
    if most is None or len(common[most]) < 2:
        return None
    base = others[most].values(field)
    return paired([own[seed] for seed in common[most]], [base[seed] for seed in common[most]])


def beside_method(line: Line) -> tuple[str, ...]:
    """What makes lines comparable: everything but the method that is not the recipe's, and the number of processes."""
    changed = tuple(words for words in line.changed if not words.startswith(("method ", "method.")))
    return (*changed, f"processes = {line.processes}")


def _missing(row: Mapping[str, Any]) -> str | None:
    """The first field without which a row cannot be shown, by its dotted name."""
    for name in ("recipe", "scale", "arm", "k", "seed", "digest", "settings", "outcome", "epochs"):
        if row.get(name) is None:
            return name
    lacking = _lacking(Outcome, row["outcome"])
    if lacking is not None:
        return f"outcome.{lacking}"
    lacks = (_lacking(Epoch, epoch) for epoch in row["epochs"])
    return next((f"epochs.{lack}" for lack in lacks if lack is not None), None)


def _lacking(kind: type[Any], content: Any) -> str | None:
    """The first field of a record that is not there, or is null though it must not be."""
    content = content if isinstance(content, Mapping) else {}
    for field in fields(kind):
        optional = type(None) in get_args(field.type)
        absent = field.name not in content and field.default is MISSING
        if absent or (not optional and content.get(field.name) is None):
            return field.name
    return None


def _made(kind: Callable[..., Record], content: Mapping[str, Any]) -> Record:
    """A record without what later layouts may have added."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # only dataclasses are made
    return kind(**{name: value for name, value in content.items() if name in names})


def _run(row: Mapping[str, Any]) -> Run:
    environment = row.get("environment", {})
    processes = row.get("processes", 1)
    machine = f"{row.get('device', 'unknown device')}, {processes} {'process' if processes == 1 else 'processes'}"
    return Run(
        seed=row["seed"],
        outcome=_made(Outcome, row["outcome"]),
        epochs=tuple(_made(Epoch, epoch) for epoch in row["epochs"]),
        machine=f"{machine}, threads: {environment.get('threads', 'unknown')}",
        version=f"{environment.get('commit', 'unknown')} with torch {environment.get('torch', 'unknown')}",
        skipped=row.get("skipped", 0),
        evaluations={
            f"{on}.{name}": value
            for on, evaluation in row.get("evaluations", {}).items()
            for name, value in evaluation["numbers"].items()
            if value is not None
        },
    )


def _lines(recipe: Recipe, scale: Scale, arm: str, k: int, group: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Line]:
    """One line per digest, that of most seeds first."""
    paper = recipe.paper(arm, k)
    if not group:
        yield Line(arm, k, paper)
        return
    own = recipe_settings(recipe, scale, arm, k)
    settings = {digest: plain_settings(rows[-1]["settings"]) for digest, rows in group.items()}
    changed = {digest: differences(found, own) for digest, found in settings.items()}
    runs = {digest: {row["seed"]: _run(row) for row in rows} for digest, rows in group.items()}
    # As many seeds on both sides: what the recipe says is the rule, not the exception.
    order = sorted(group, key=lambda digest: (-len(runs[digest]), len(changed[digest]) > 0))
    for digest in order:
        differs = differences(settings[digest], settings[order[0]])
        if (
            digest != order[0]
            and not differs
            and group[digest][-1].get("processes", 1) == group[order[0]][-1].get("processes", 1)
        ):
            differs = (f"digest = {digest}, not {order[0]}",)  # a number written in another way
        processes = group[digest][-1].get("processes", 1)
        yield Line(arm, k, paper, digest, dict(sorted(runs[digest].items())), differs, changed[digest], processes)


def _older(older: Mapping[str, int]) -> Iterator[str]:
    for name, count in older.items():
        rows = "1 row has" if count == 1 else f"{count} rows have"
        yield f"{rows} no {name}: an older layout, left out"


def _repeated(label: str, group: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    for rows in group.values():
        for seed, count in Counter(row["seed"] for row in rows).items():
            if count > 1:
                yield f"{label}, seed {seed}, has {count} rows: the last one counts"


def _changes(lines: Sequence[Line]) -> Iterator[str]:
    """Where settings are not the recipe's, unless the line says so by itself."""
    labels: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.marked:
            labels.setdefault(line.changed, []).append(line.label)
    for changed, found in labels.items():
        yield f"{CHANGED} not with the recipe's settings: {', '.join(dict.fromkeys(found))} ({named(changed)})"


def _circumstances(lines: Sequence[Line]) -> Iterator[str]:
    """What else may make runs differ."""
    pairs = [(line.label, run) for line in lines for run in (line.runs or {}).values()]
    for count in sorted({run.skipped for _, run in pairs} - {0}):
        labels = dict.fromkeys(label for label, run in pairs if run.skipped == count)
        yield f"bad samples left out of the data: {count} ({', '.join(labels)})"
    machines = list(dict.fromkeys(run.machine for _, run in pairs))
    versions = list(dict.fromkeys(run.version for _, run in pairs))
    if len(machines) > 1:
        yield f"seconds do not compare, they are from different machines: {'; '.join(machines)}"
    if len(versions) > 1:
        yield f"the runs are of different versions: {'; '.join(versions)}"
