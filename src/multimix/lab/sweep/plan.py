"""The runs of a sweep: every method with every K and seed, with budgets that are equal in updates, in rows or in compute.

Plans are stored beside the results, so that their comparisons can be made again from rows alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from ...methods import NoMix
from ..recipes.base import STRATEGIES, Recipe, Scale, arm_name, arm_names, counts_k
from ..recipes.runs import Run, planned
from ..recipes.settings import Settings
from ..storage import append_row, digest, read_rows
from ..terminal import note as say

FILE = "sweep.jsonl"
Equal = Literal["steps", "samples", "compute"]
EQUALS: tuple[Equal, ...] = get_args(Equal)
Arm = tuple[str, int]
# What an arm costs for every sample, as a multiple of no mixing.
Costs = Mapping[Arm, float]


class Entry(NamedTuple):
    """What tells the row of a run within a recipe and scale, and what it is compared at."""

    equal: Equal
    arm: str
    k: int
    seed: int
    digest: str


class Planned(NamedTuple):
    """A run, and the comparison it is for."""

    run: Run
    equal: Equal

    @property
    def entry(self) -> Entry:
        """The same without the settings, as it is kept."""
        return Entry(self.equal, self.run.arm, self.run.k, self.run.seed, self.run.digest)


def plan_sweep(
    recipe: Recipe,
    *,
    scale: Scale,
    methods: Sequence[str],
    ks: Sequence[int],
    seeds: Sequence[int],
    equal: Sequence[Equal] = ("steps",),
    changes: Mapping[str, str] | None = None,
    costs: Costs | None = None,
) -> list[Planned]:
    """Every method with every K, once where K means nothing; seed by seed, so that a part is a fair comparison.

    At equal ``steps`` the schedule is the recipe's own. At equal ``samples`` the epochs are divided by the rows that a sample
    becomes in the network, so that all of them pass as many rows as K = 1; at equal ``compute`` by the ``costs``, and an arm
    without one is left out. Both are rounded to whole epochs, and the schedule is squeezed into those.
    """
    for name in equal:
        if name not in EQUALS:
            raise ValueError(f"equal must be of {', '.join(EQUALS)}, got {name!r}")
    if not equal:
        raise ValueError(f"equal must name at least one of {', '.join(EQUALS)}, got none")
    if "compute" in equal and costs is None:
        raise ValueError("equal compute needs the costs of the arms, got none")
    found: list[Planned] = []
    for run in arm_runs(recipe, scale=scale, methods=methods, ks=ks, seeds=seeds, changes=changes):
        for name in dict.fromkeys(equal):
            times = times_shorter(run, name, costs or {})
            if times is not None:
                found.append(Planned(run._replace(settings=shortened(recipe, run.settings, times, name)), name))
    return found


def arm_runs(
    recipe: Recipe,
    *,
    scale: Scale,
    methods: Sequence[str],
    ks: Sequence[int],
    seeds: Sequence[int],
    changes: Mapping[str, str] | None = None,
) -> list[Run]:
    """The runs with the recipe's own schedule, seed by seed; names and numbers given twice count once."""
    arms: list[Arm] = []
    for name in dict.fromkeys(arm_name(method) for method in methods):
        if counts_k(name) and not ks:
            raise ValueError(f"ks must hold at least one K for {name}, got none")
        arms += [(name, k) for k in dict.fromkeys(ks)] if counts_k(name) else [(name, 1)]
    if not arms:
        raise ValueError("methods must name at least one, got none")
    unique = list(dict.fromkeys(seeds))
    options = {"scale": scale, "seeds": unique}
    own = [planned(recipe, method=arm, k=k, changes=_suited(arm, arms, changes or {}), **options) for arm, k in arms]  # type: ignore[arg-type]
    return [runs[i] for i in range(len(unique)) for runs in own]


def trainable_arms(recipe: Recipe, scale: Scale, ks: Sequence[int], note: Callable[[str], None] = say) -> tuple[str, ...]:
    """Return no mixing, label smoothing, and every method that the recipe can train.

    Args:
        recipe: The recipe.
        scale: The scale.
        ks: Numbers of interpolations.
        note: Receives the reason for every method that is left out.
    """
    layout = recipe.settings(scale).data.entry().layout
    names = [name for name in arm_names(layout) if name not in STRATEGIES or name == "smoothing"]
    trainable = []
    for name in (NoMix.name, *(name for name in names if name != NoMix.name)):
        try:
            arm_runs(recipe, scale=scale, methods=(name,), ks=ks, seeds=(0,))
            trainable.append(name)
        except (ValueError, TypeError) as error:  # noqa: PERF203  the others go on
            note(f"{name} is left out: {error}")
    return tuple(trainable)


def rows_per_sample(settings: Settings) -> float:
    """Rows that go through the network for every sample of an epoch: K mixtures of each of its repetitions.

    Batches that a method leaves unmixed, by its probability ``p``, have one row for each. A larger batch has no more rows in an
    epoch, and neither the pass for saliency nor that of a clean loss is counted.
    """
    method: Any = settings.method
    if isinstance(method, NoMix) or getattr(method, "alpha", 1.0) == 0:
        return float(settings.repeats)
    return float(settings.repeats * (1 + getattr(method, "p", 1.0) * (getattr(method, "k", 1) - 1)))


def times_shorter(run: Run, equal: Equal, costs: Costs) -> float | None:
    """What the epochs of a run are divided by; None where its cost is not known."""
    if equal == "steps":
        return 1.0
    return rows_per_sample(run.settings) if equal == "samples" else costs.get((run.arm, run.k))


def shortened(recipe: Recipe, settings: Settings, times: float, equal: Equal) -> Settings:
    """``settings`` with the epochs divided by ``times``, to the nearest whole number but at least 1, and the same schedule."""
    if equal != "steps" and settings.phases:
        phases = f"{recipe.name} has {len(settings.phases)} phases"
        raise ValueError(f"{phases}, which do not shrink with the epochs; it can be swept at equal steps")
    epochs = max(1, int(settings.epochs / times + 0.5))
    if epochs == settings.epochs:
        return settings
    # By what is really done, so that the schedule ends with the training.
    return replace(settings, epochs=epochs, schedule=settings.schedule.squeezed(epochs / settings.epochs))


def _suited(arm: str, arms: Sequence[Arm], changes: Mapping[str, str]) -> dict[str, str]:
    """Changes without those of the method where there is none, unless there is no other arm they could be meant for."""
    mixing = [name for name, _ in arms if not _without_method(name)]
    if not mixing or not _without_method(arm):
        return dict(changes)
    return {path: words for path, words in changes.items() if path.partition(".")[0] != "method"}


def _without_method(arm: str) -> bool:
    return arm in (NoMix.name, "smoothing", "large_batch", "batch_augmentation")


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
