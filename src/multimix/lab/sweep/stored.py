"""The plans of sweeps as they are kept beside the results, so that their comparisons can be made again from rows alone."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..recipes.base import Scale
from ..results import digest, make_folder, write_atomically
from ..terminal import note as say
from .plan import Entry, Equal, Planned

FILE = "sweep.json"


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
    """All sweeps in a folder of results, the newest last; none if there is no file, or it is damaged, which ``note`` is told."""
    path = Path(out) / FILE
    try:
        return [_stored(record) for record in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        note(f"{path} is damaged and left out; the same multimix sweep writes it again")
        return []


def keep_plan(out: str | Path, plan: Stored, note: Callable[[str], None] = say) -> None:
    """Add a sweep, in place of one with the same arguments."""
    others = [stored for stored in read_plan(out, note) if stored.arguments != plan.arguments]
    make_folder(Path(out))
    records = [{**asdict(stored), "runs": [run._asdict() for run in stored.runs]} for stored in [*others, plan]]
    write_atomically(Path(out) / FILE, (json.dumps(records, indent=1, ensure_ascii=False) + "\n").encode())


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
