"""The runs of a sweep: every method with every K and seed, with budgets that are equal in updates, in rows or in compute."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

from ...methods import NoMix
from ..recipes.arms import arm_name, counts_k
from ..recipes.base import Recipe, Scale
from ..recipes.settings import Settings
from ..training.run import Run, planned

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
