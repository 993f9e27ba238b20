"""The rows of one recipe at one scale as lines: runs of the same arm, K and settings together, and what is odd about them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple, TypeVar, get_args

from ..recipes.arms import arm_names, arm_settings, counts_k
from ..recipes.base import Recipe, Scale
from ..recipes.serialise import describe
from ..recipes.settings import MACHINE_FIELDS
from ..statistics import Paired, Summary, paired_by_seed, summary
from ..training.log import Epoch, Outcome

BASELINE = "none"
ECE = "calibration.ece"
ERRORS = ("last", "median", "best", "selected")
CHANGED = "†"  # beside an arm that was not trained with the recipe's settings
SCALE_WORDS: Mapping[Scale, str] = {
    "paper": "paper scale",
    "small": "small scale: a reduced study, not the paper's setting",
    "smoke": "smoke scale: shows that everything runs, not the paper's setting",
}
NEEDED = ("recipe", "scale", "arm", "k", "seed", "digest", "settings", "outcome", "epochs")  # fields of every row

Row = Mapping[str, Any]
Rows = Sequence[Row]
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

    def value(self, name: str) -> float | None:
        """A field of the outcome, or a number of an evaluation by its dotted name; None where there is none."""
        value = self.evaluations.get(name) if "." in name else getattr(self.outcome, name)
        return None if value is None else float(value)


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

    @property
    def images(self) -> float | None:
        """Samples loaded in all epochs together, mean over the seeds."""
        counts = [sum(epoch.images for epoch in run.epochs) for run in self.runs.values()]
        return sum(counts) / len(counts) if counts else None

    @property
    def comparable(self) -> tuple[str, ...]:
        """Lines with the same value compare: everything but the method that is not the recipe's, and the number of processes."""
        changed = tuple(words for words in self.changed if not words.startswith(("method ", "method.")))
        return (*changed, f"processes = {self.processes}")


class Aggregate(NamedTuple):
    """The lines in the order of the recipe, then those it does not have, and sentences on what the reader must know."""

    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def minus_none(self, line: Line, name: str) -> Paired | None:
        """``line`` minus no mixing over at least two common seeds, if there is a line that differs by nothing but the arm."""
        others = [other for other in self.lines if other.arm == BASELINE and other.comparable == line.comparable]
        return None if line.arm == BASELINE else _minus(line, others, name)

    def minus_one(self, line: Line, name: str) -> Paired | None:
        """``line`` minus its own arm at K = 1 over at least two common seeds, if there is a line that differs by K alone."""
        same = (line.arm, 1, line.changed, line.processes)
        others = [other for other in self.lines if (other.arm, other.k, other.changed, other.processes) == same]
        return None if line.k == 1 else _minus(line, others, name)


def aggregate(recipe: Recipe, scale: Scale, rows: Rows) -> Aggregate:
    """All runs of ``recipe`` at ``scale``; rows of others are passed over, the last of several for one run counts."""
    if recipe.metric not in {field.name for field in fields(Outcome)}:
        raise ValueError(f"metric must be a field of an outcome, got {recipe.metric!r}")
    groups: dict[tuple[str, int], _Group] = {(row.arm, row.k): {} for row in recipe.rows}
    older: Counter[str] = Counter()
    for row in rows:
        if (row.get("recipe", recipe.name), row.get("scale", scale)) != (recipe.name, scale):
            continue
        try:
            run = _run(row)
        except _MissingFieldError as missing:
            older[str(missing)] += 1
        else:
            groups.setdefault((row["arm"], row["k"]), {}).setdefault(row["digest"], []).append((row, run))
    lines = [line for (arm, k), group in groups.items() for line in _lines(recipe, scale, arm, k, group)]
    notes = [
        f"{count} row{' has' if count == 1 else 's have'} no {name}: an older layout, left out" for name, count in older.items()
    ]
    for (arm, k), group in groups.items():
        for members in group.values():
            for seed, count in Counter(run.seed for _, run in members).items():
                if count > 1:
                    notes.append(f"{Line(arm, k, None).label}, seed {seed}, has {count} rows: the last one counts")
    return Aggregate(tuple(lines), (*notes, *_changes(lines), *_circumstances(lines)))


def join_settings(settings: Sequence[str], most: int = 4) -> str:
    """Settings in one sentence, the first ``most`` of them by name; CSV files name all."""
    more = [f"and {len(settings) - most} more"] if len(settings) > most else []
    return "; ".join([*settings[:most], *more])


def _minus(line: Line, others: Sequence[Line], name: str) -> Paired | None:
    """``line`` minus the one of ``others`` with which it has most seeds in common, if those are at least two."""
    tests = [paired_by_seed(line.values(name), other.values(name)) for other in others]
    return max((test for test in tests if test is not None), key=lambda test: test.n, default=None)


# Rows and their runs by digest.
_Group = dict[str, list[tuple[Row, Run]]]


class _MissingFieldError(Exception):
    """A row has no field of this dotted name."""


def _run(row: Row) -> Run:
    for name in NEEDED:
        if row.get(name) is None:
            raise _MissingFieldError(name)
    environment, processes = row.get("environment", {}), row.get("processes", 1)
    machine = f"{row.get('device', 'unknown device')}, {processes} {'process' if processes == 1 else 'processes'}"
    return Run(
        seed=row["seed"],
        outcome=_record(Outcome, row["outcome"], "outcome"),
        epochs=tuple(_record(Epoch, epoch, "epochs") for epoch in row["epochs"]),
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


def _record(kind: Callable[..., Record], content: Any, where: str) -> Record:
    """A dataclass from what a row holds of it; what later layouts may have added is passed over."""
    content = content if isinstance(content, Mapping) else {}
    known = fields(kind)  # type: ignore[arg-type]  # only dataclasses are made
    for one in known:
        absent = one.name not in content and one.default is MISSING
        if absent or (content.get(one.name) is None and type(None) not in get_args(one.type)):
            raise _MissingFieldError(f"{where}.{one.name}")
    return kind(**{one.name: content[one.name] for one in known if one.name in content})


def _lines(recipe: Recipe, scale: Scale, arm: str, k: int, group: _Group) -> Iterator[Line]:
    """One line per digest, that of most seeds first."""
    paper = recipe.paper(arm, k)
    if not group:
        yield Line(arm, k, paper)
        return
    own = _recipe_settings(recipe, scale, arm, k)
    newest = {digest: members[-1][0] for digest, members in group.items()}
    settings = {digest: _plain(row["settings"]) for digest, row in newest.items()}
    processes = {digest: row.get("processes", 1) for digest, row in newest.items()}
    changed = {digest: _differences(settings[digest], own) for digest in group}
    runs = {digest: {run.seed: run for _, run in members} for digest, members in group.items()}
    # As many seeds on both sides: what the recipe says is the rule, not the exception.
    order = sorted(group, key=lambda digest: (-len(runs[digest]), len(changed[digest]) > 0))
    for digest in order:
        differs = _differences(settings[digest], settings[order[0]])
        if digest != order[0] and not differs and processes[digest] == processes[order[0]]:
            differs = (f"digest = {digest}, not {order[0]}",)  # a number written in another way
        yield Line(arm, k, paper, digest, dict(sorted(runs[digest].items())), differs, changed[digest], processes[digest])


def _recipe_settings(recipe: Recipe, scale: Scale, arm: str, k: int) -> dict[str, Any]:
    """The recipe's settings of an arm; without those of the method where the arm cannot be made, since rows outlive code."""
    base = recipe.settings(scale)
    try:
        if arm in arm_names():
            return _plain(describe(arm_settings(recipe, base, arm, k)))
    except (ValueError, TypeError):
        pass
    return {name: value for name, value in _plain(describe(base)).items() if not _of_method(name)}


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are after JSON, without how a machine did it."""
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
    for count in sorted({run.skipped for _, run in pairs} - {0}):
        labels = dict.fromkeys(label for label, run in pairs if run.skipped == count)
        yield f"bad samples left out of the data: {count} ({', '.join(labels)})"
    machines = list(dict.fromkeys(run.machine for _, run in pairs))
    versions = list(dict.fromkeys(run.version for _, run in pairs))
    if len(machines) > 1:
        yield f"seconds do not compare, they are from different machines: {'; '.join(machines)}"
    if len(versions) > 1:
        yield f"the runs are of different versions: {'; '.join(versions)}"
