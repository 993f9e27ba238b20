"""What the study found on one data set, read back from its finished pieces; and every number that follows by formula."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, get_args

from ....sampling import Sampler
from .cases import Settings
from .closed_form import Components, Estimate, Range, crossover, large_batch_variance, multimix_variance
from .enumeration import enumeration_from
from .measure import Measured, Pairing
from .permutation import Enumeration
from .sampling import Sampled, sampled_from


class Setup(NamedTuple):
    """How batches are drawn."""

    pairing: Pairing
    per_pair: bool
    sampler: Sampler

    @property
    def name(self) -> str:
        """The name of the measurement on disk."""
        return f"{self.pairing}-{'pair' if self.per_pair else 'batch'}-{self.sampler}"


class Side(NamedTuple):
    """Proposition 2 at one batch size: multi-mix (B, K) and mixup of K·B pairs with one λ, measured and by formula."""

    batch: int
    replicates: int
    multi: Measured
    large: Measured
    multi_formula: Estimate
    large_formula: Estimate


def setups() -> list[Setup]:
    """Every combination of sampler, pairing and λ per batch or pair."""
    samplers: tuple[Sampler, ...] = ("iid", "stratified")
    return [
        Setup(pairing, per_pair, sampler) for sampler in samplers for pairing in get_args(Pairing) for per_pair in (False, True)
    ]


@dataclass(frozen=True)
class Outcome:
    """All results on one data set; a side of B_0 with batches too large to be measured is not in ``sides``."""

    settings: Settings
    accuracy: float
    parameters: int
    sampled: Sampled
    enumeration: Enumeration | None
    measured: dict[Setup, dict[int, Measured]]
    sides: dict[str, Side]

    @property
    def components(self) -> Components:
        """V, V_pairs and V_λ: from every pair if there is an enumeration, else from the sampled ones."""
        return self.sampled.components if self.enumeration is None else self.enumeration.components

    @property
    def crossover(self) -> Range:
        """B_0."""
        return crossover(self.components)

    def formula(self, k: int, *, per_pair: bool = False) -> Estimate:
        """The closed form for independent pairs at the study's batch size."""
        return multimix_variance(self.components, k=k, batch=self.settings.batch, per_pair=per_pair)

    def exact(self, k: int, *, per_pair: bool = False) -> float | None:
        """The exact value for permutations, where every pair was enumerated."""
        if self.enumeration is None:
            return None
        return self.enumeration.permutation_variance(k=k, batch=self.settings.batch, per_pair=per_pair)

    def at(self, pairing: Pairing, k: int, *, per_pair: bool = False, sampler: Sampler = "iid") -> Measured:
        """One measurement."""
        return self.measured[Setup(pairing, per_pair, sampler)][k]

    def plain(self) -> dict[str, Any]:
        """Everything as JSON can hold it; a bound that does not exist is null."""
        b_0 = self.crossover
        return {
            "settings": asdict(self.settings),
            "accuracy": self.accuracy,
            "components": asdict(self.components),
            "crossover": {name: value if value < float("inf") else None for name, value in b_0._asdict().items()},
            "sampled": asdict(self.sampled),
            "enumeration": None if self.enumeration is None else asdict(self.enumeration),
            "measured": {setup.name: [_plain(row) for row in rows.values()] for setup, rows in self.measured.items()},
            "closed_form": [
                {"k": k, "per_pair": per_pair}
                | self.formula(k, per_pair=per_pair)._asdict()
                | {"permutation": self.exact(k, per_pair=per_pair)}
                for per_pair in (False, True)
                for k in self.settings.ks
            ],
            "sides": {name: _plain(side) for name, side in self.sides.items()},
        }


def outcome_of(settings: Settings, kept: dict[str, dict[str, Any]]) -> Outcome:
    """The outcome from the finished pieces."""
    sampled = sampled_from(kept["sampled"])
    enumeration = enumeration_from(kept["enumerated"]) if settings.every_pair else None
    measured = {}
    for setup in setups():
        rows = [_measured(row) for row in kept[setup.name]["measured"]]
        measured[setup] = {row.k: row for row in rows}
    parts = sampled.components if enumeration is None else enumeration.components
    sides = {side: found for side in ("low", "high") if (found := _side(settings, parts, kept, side)) is not None}
    weights = kept["weights"]
    return Outcome(settings, weights["accuracy"], len(weights["weights"]), sampled, enumeration, measured, sides)


def _side(settings: Settings, parts: Components, kept: dict[str, dict[str, Any]], side: str) -> Side | None:
    multi, large = (kept[f"{side}-{kind}"] for kind in ("multi", "large"))
    if multi["measured"] is None or large["measured"] is None:
        return None
    batch, k = multi["batch"], settings.compared_k
    return Side(
        batch,
        multi["replicates"],
        _measured(multi["measured"]),
        _measured(large["measured"]),
        multimix_variance(parts, k=k, batch=batch),
        large_batch_variance(parts, rows=k * batch),
    )


def _measured(row: dict[str, Any]) -> Measured:
    ratio = row["ratio"]
    return Measured(
        row["k"], Estimate(*row["variance"]), Estimate(*row["squared_norm"]), row["printed"], ratio and Estimate(*ratio)
    )


def _plain(row: Any) -> Any:
    return {name: _plain(value) for name, value in row._asdict().items()} if hasattr(row, "_asdict") else row
