"""`multimix variance`: the gradient's variance on the spiral and on the digits, in pieces that are stored on disk one by one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ....core.checks import check_choice
from ....core.sampling import Sampler
from ...storage import Store
from ..files import one_thread
from .cases import Data, VarianceSettings, train_weights, trained_case
from .measure import MeasuredVariance, Pairing, measure_variance
from .parts import SampledParts, enumerate_pairs, enumeration_from, sampled_components, sampled_from
from .theory import Components, Enumeration, Estimate, Range, crossover, large_batch_variance, multimix_variance

SAMPLERS: tuple[Sampler, ...] = ("iid", "stratified")

# How many replicates a large-batch measurement takes at least and at most, whatever the bound on its rows.
FEWEST, MOST = 40, 1000


class Setup(NamedTuple):
    """How batches are drawn."""

    pairing: Pairing
    per_pair: bool
    sampler: Sampler

    @property
    def name(self) -> str:
        """The name of the measurement on disk."""
        return f"{self.pairing}-{'pair' if self.per_pair else 'batch'}-{self.sampler}"


SETUPS = [Setup(pairing, own, sampler) for sampler, pairing, own in product(SAMPLERS, get_args(Pairing), (False, True))]


class Side(NamedTuple):
    """Proposition 2 at one batch size: multi-mix (B, K) and mixup of K·B pairs with one λ, measured and by formula."""

    batch: int
    replicates: int
    multi: MeasuredVariance
    large: MeasuredVariance
    multi_formula: Estimate
    large_formula: Estimate


@dataclass(frozen=True)
class VarianceResult:
    """All results on one data set; a side of B_0 with batches too large to be measured is not in ``sides``."""

    settings: VarianceSettings
    accuracy: float
    parameters: int
    sampled: SampledParts
    enumeration: Enumeration | None
    measured: dict[Setup, dict[int, MeasuredVariance]]
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

    def at(self, pairing: Pairing, k: int, *, per_pair: bool = False) -> MeasuredVariance:
        """The measurement with iid λ."""
        return self.measured[Setup(pairing, per_pair, "iid")][k]

    def plain(self) -> dict[str, Any]:
        """Everything as JSON can hold it; a bound that does not exist is null."""
        return {
            "settings": asdict(self.settings),
            "accuracy": self.accuracy,
            "components": asdict(self.components),
            "crossover": {name: value if value < float("inf") else None for name, value in self.crossover._asdict().items()},
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


def result_from_pieces(settings: VarianceSettings, pieces: dict[str, dict[str, Any]]) -> VarianceResult:
    """The result from the finished pieces."""
    enumeration = enumeration_from(pieces["enumerated"]) if settings.every_pair else None
    measured = {setup: {row["k"]: _measured(row) for row in pieces[setup.name]["measured"]} for setup in SETUPS}
    parts, sides, k = _components(settings, pieces), {}, settings.compared_k
    for side in ("low", "high"):
        multi, large = (pieces[f"{side}-{kind}"] for kind in ("multi", "large"))
        if multi["measured"] is not None:
            batch = multi["batch"]
            formulas = multimix_variance(parts, k=k, batch=batch), large_batch_variance(parts, rows=k * batch)
            sides[side] = Side(batch, multi["replicates"], _measured(multi["measured"]), _measured(large["measured"]), *formulas)
    weights, sampled = pieces["weights"], sampled_from(pieces["sampled"])
    return VarianceResult(settings, weights["accuracy"], len(weights["weights"]), sampled, enumeration, measured, sides)


def _components(settings: VarianceSettings, pieces: dict[str, dict[str, Any]]) -> Components:
    if settings.every_pair:
        return enumeration_from(pieces["enumerated"]).components
    return sampled_from(pieces["sampled"]).components


def _measured(row: dict[str, Any]) -> MeasuredVariance:
    ratio = row["ratio"]
    return MeasuredVariance(
        row["k"], Estimate(*row["variance"]), Estimate(*row["squared_norm"]), row["printed"], ratio and Estimate(*ratio)
    )


def _plain(row: Any) -> Any:
    return {name: _plain(value) for name, value in row._asdict().items()} if hasattr(row, "_asdict") else row


# A data set and the name of one piece of the work on it.
Unit = tuple[Data, str]


def run_study(
    *,
    on: tuple[Data, ...],
    settings: dict[Data, VarianceSettings],
    out: str | Path,
    rebuild: bool = False,
    progress: Callable[[Sequence[Unit]], Iterable[Unit]] = iter,
    note: Callable[[str], None] = print,
) -> list[VarianceResult]:
    """The results on every data set that is complete. Pieces not stored in ``out`` yet are computed, unless ``rebuild``."""
    if not on:
        raise ValueError(f"on must name at least one data set; there are {', '.join(get_args(Data))}")
    for data in on:
        check_choice("data set", data, get_args(Data))
    on = tuple(dict.fromkeys(on))
    stores = {data: Store(out, f"variance-{data}", settings[data], note) for data in on}
    pieces: dict[Data, dict[str, Any]] = {data: {} for data in on}
    units = [(data, name) for data in on for name in unit_names(settings[data])]
    with one_thread():
        for data, name in progress(units):
            if stores[data].get(name) is None and not rebuild:
                stores[data].put(name, compute_piece(name, settings[data], pieces[data]))
            pieces[data][name] = stores[data].get(name)
    results = []
    for data in on:
        names = unit_names(settings[data])
        missing = [name for name in names if pieces[data].get(name) is None]
        if missing:
            note(f"{data} is left out: {len(missing)} of {len(names)} pieces are missing, the first is {missing[0]}")
        else:
            results.append(result_from_pieces(settings[data], pieces[data]))
    if not results:
        raise ValueError(f"{str(out)!r} holds no finished data set; leave out rebuild to compute it")
    return results


def unit_names(settings: VarianceSettings) -> list[str]:
    """The pieces of the work on one data set, in an order in which each finds what it needs."""
    parts = ["weights", "sampled", *(["enumerated"] if settings.every_pair else [])]
    return [*parts, *(setup.name for setup in SETUPS), "low-multi", "low-large", "high-multi", "high-large"]


def compute_piece(name: str, settings: VarianceSettings, pieces: dict[str, Any]) -> dict[str, Any]:
    """The result of one piece, from those before it."""
    if name == "weights":
        return train_weights(settings)
    model, method, x, y = trained_case(settings, pieces["weights"]["weights"])
    if name == "sampled":
        sizes = {"pairs": settings.pairs, "groups": settings.groups, "group": settings.group, "nodes": settings.nodes}
        return asdict(sampled_components(model, method, x, y, **sizes, seed=settings.seed))
    if name == "enumerated":
        return asdict(enumerate_pairs(model, method, x, y, nodes=settings.nodes))
    for number, setup in enumerate(SETUPS, start=1):
        if name == setup.name:
            method = replace(method, per_pair=setup.per_pair, sampler=setup.sampler)
            ks = settings.ks if setup.sampler == "iid" else settings.stratified_ks
            sizes = {"batch": settings.batch, "replicates": settings.replicates, "seed": 100 * settings.seed + number}
            found = measure_variance(model, method, x, y, ks=ks, pairing=setup.pairing, **sizes)
            return {"measured": [row._asdict() for row in found]}
    # Multi-mix (B, K) or mixup of K·B pairs with one λ, at a quarter of B_0 or at four times B_0.
    side, kind = name.split("-")
    k, batch = settings.compared_k, crossover(_components(settings, pieces)).value * (0.25 if side == "low" else 4.0)
    if not batch * k * FEWEST <= settings.rows:
        return {"measured": None, "batch": None, "replicates": 0}
    batch = max(1, round(batch))
    replicates = int(min(max(settings.rows // (batch * k), FEWEST), MOST))
    ks, rows = ((k,), batch) if kind == "multi" else ((1,), batch * k)
    seed = 100 * settings.seed + 50 + ("low", "high").index(side) * 2 + ("multi", "large").index(kind)
    found = measure_variance(model, method, x, y, ks=ks, batch=rows, pairing="independent", replicates=replicates, seed=seed)
    return {"measured": found[0]._asdict(), "batch": batch, "replicates": replicates}
