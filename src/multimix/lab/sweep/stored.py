"""The plans of sweeps as they are kept beside the results, so that their comparisons can be made again from rows alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..recipes.base import Scale
from ..storage import append_row, digest, read_rows
from ..terminal import note as say
from .plan import Entry, Equal, Planned

FILE = "sweep.jsonl"


@dataclass(frozen=True)
class Stored:
    """The arguments of a sweep and the runs it is made of."""

    recipe: str
    scale: Scale
    methods: tuple[str, ...]
    ks: tuple[int, ...]
    seeds: tuple[int, ...]
    equal: tuple[Equal, ...]
    changes: Mapping[str, str]
    runs: tuple[Entry, ...]

    @property
    def arguments(self) -> str:
        """A word for what was asked, whatever came of it."""
        asked = asdict(self)
        del asked["runs"]
        return digest(asked)


class Group(NamedTuple):
    """Everything that was swept of a recipe at a scale with the same changes."""

    recipe: str
    scale: Scale
    changes: Mapping[str, str]
    runs: tuple[Entry, ...]

    @property
    def stem(self) -> str:
        """How its files are called."""
        return f"sweep-{digest(dict(self.changes))[:6]}" if self.changes else "sweep"


def read_plan(out: str | Path, note: Callable[[str], None] = say) -> list[Stored]:
    """All sweeps in a folder of results, each once, the newest last; ``note`` is told about what cannot be read."""
    found: dict[str, Stored] = {}
    for record in read_rows(Path(out) / FILE, note):
        try:
            plan = _stored(record)
        except (KeyError, TypeError):
            note(f"{Path(out) / FILE} has a sweep of another version, which is left out")
            continue
        found.pop(plan.arguments, None)  # the same sweep again goes to the end
        found[plan.arguments] = plan
    return list(found.values())


def store_plan(out: str | Path, plan: Stored) -> None:
    """Add a sweep: a row of its own, so that sweeps in one folder at the same time do not lose each other."""
    append_row(Path(out) / FILE, {**asdict(plan), "runs": [run._asdict() for run in plan.runs]})


def entries(planned: Sequence[Planned]) -> tuple[Entry, ...]:
    """The runs as they are kept."""
    return tuple(one.entry for one in planned)


def groups(plans: Sequence[Stored]) -> list[Group]:
    """Sweeps together that differ by nothing but methods, K, seeds and what is equal.

    Where two of them have other settings for one arm at one budget (costs that were measured on two machines), the newest count.
    """
    found: dict[tuple[str, str, str], Group] = {}
    for plan in plans:
        key = (plan.recipe, plan.scale, digest(dict(plan.changes)))
        before = found[key].runs if key in found else ()
        newest = {(run.equal, run.arm, run.k): run.digest for run in plan.runs}
        kept = [run for run in before if newest.get((run.equal, run.arm, run.k), run.digest) == run.digest]
        found[key] = Group(plan.recipe, plan.scale, plan.changes, tuple(dict.fromkeys([*kept, *plan.runs])))
    return list(found.values())


def _stored(record: Mapping[str, Any]) -> Stored:
    tuples = {name: tuple(record[name]) for name in ("methods", "ks", "seeds", "equal")}
    runs = tuple(Entry(**run) for run in record["runs"])
    return Stored(recipe=record["recipe"], scale=record["scale"], changes=dict(record["changes"]), runs=runs, **tuples)
