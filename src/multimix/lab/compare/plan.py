"""What is compared and how the budget was divided: what a comparison keeps, so that it goes on as it began, and what it found."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...methods import NoMix
from ..data.own_folder import OwnSplits
from ..results.rows import Aggregate
from ..results.table import counted
from ..sweep.plan import Arm, Planned
from ..terminal import duration
from .answer import Answer
from .budget import Division
from .setup import Setup

RESERVED = ("epochs", "evaluate_every", "data.most", "data.name")  # fields that nobody may set


@dataclass(frozen=True)
class Asked:
    """What is to be compared, and in how many seconds."""

    model: str | None
    methods: tuple[str, ...]
    ks: tuple[int, ...]
    seeds: int
    budget: float
    jobs: int
    changes: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.jobs < 1:
            raise ValueError(f"seeds and jobs must be at least 1, got {self.seeds} and {self.jobs}")
        if not self.ks or min(self.ks) < 1:
            raise ValueError(f"ks must be one or more whole numbers, at least 1, got {', '.join(map(str, self.ks)) or 'none'}")
        if not set(self.methods) - {NoMix.name}:
            raise ValueError(f"methods must name at least one beside no mixing, got {', '.join(self.methods) or 'none at all'}")
        for field in self.changes:
            if field in RESERVED or field.startswith("schedule"):
                raise ValueError(f"{field} follows from the folder and the budget here; multimix sweep folder takes it")


class Plan(NamedTuple):
    """How the budget was divided, kept so that a comparison that was stopped goes on with the same runs.

    ``updates`` are the measured seconds of an update, ``broken`` the arms that cannot be trained, with the reason.
    """

    division: Division
    updates: dict[Arm, float]
    broken: dict[Arm, str]

    def packed(self) -> dict[str, Any]:
        """As JSON."""
        arms = [{"arm": arm, "k": k, "seconds": seconds} for (arm, k), seconds in self.updates.items()]
        return {**asdict(self.division), "arms": arms, "broken": [[*arm, why] for arm, why in self.broken.items()]}

    @classmethod
    def unpacked(cls, content: Mapping[str, Any]) -> "Plan":
        """From JSON."""
        division = Division(content["epochs"], content["most"], content["seconds"])
        updates = {(one["arm"], one["k"]): one["seconds"] for one in content["arms"]}
        return cls(division, updates, {(arm, k): why for arm, k, why in content["broken"]})


class Comparison(NamedTuple):
    """Everything that the page tells."""

    setup: Setup
    asked: Asked
    plan: Plan
    splits: OwnSplits
    whole: Aggregate
    answer: Answer
    planned: Sequence[Planned]
    notes: Sequence[str]
    took: float
    out: Path


def plan_words(setup: Setup, asked: Asked, plan: Plan) -> str:
    """How the budget was divided, in a sentence."""
    division = plan.division
    train, test = setup.sizes(division.most)
    fewer = f" with at most {division.most} samples of a class to learn from" if division.most is not None else ""
    arms = counted(len(plan.updates), "way")
    runs = counted(len(plan.updates) * asked.seeds, "run")
    return (
        f"{arms} of training × {counted(asked.seeds, 'seed')} = {runs} of {division.epochs} epochs{fewer} "
        f"({train:,} to learn from, {test:,} to be tested on), as many updates for each: about {duration(division.seconds)} "
        f"of the budget of {duration(asked.budget)}"
    )
