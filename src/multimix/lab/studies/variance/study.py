"""The study of `multimix variance`: pieces of work that are stored one by one, and the rows that follow from them."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from ....core.sampling import Sampler
from ...report.pages.variance import variance_page
from ...storage import Store, environment, write_files
from ..threads import one_thread
from .cases import FULL, QUICK, Data, VarianceSettings, train_weights, trained_case
from .measure import Pairing, measure_variance
from .parts import enumerate_pairs, ratio, sampled_components
from .theory import Components, Enumeration, Estimate, crossover, multimix_variance

SAMPLERS: tuple[Sampler, ...] = ("iid", "stratified")
MIN_REPLICATES, MAX_REPLICATES = 40, 1000  # of a measurement around B_0
CURVE_POINTS = 25
SIDES = {"low": 0.25, "high": 4.0}  # multiples of B_0

Unit = tuple[Data, str]
Pieces = dict[str, dict[str, Any]]


class Setup(NamedTuple):
    """How batches are drawn."""

    pairing: Pairing
    per_pair: bool
    sampler: Sampler

    @property
    def name(self) -> str:
        """Name of the stored measurement."""
        return f"{self.pairing}-{'pair' if self.per_pair else 'batch'}-{self.sampler}"


SETUPS = [Setup(pairing, per_pair, sampler) for sampler, pairing, per_pair in product(SAMPLERS, get_args(Pairing), (False, True))]


def variance(
    *,
    on: Sequence[Data] = ("spiral", "digits"),
    quick: bool = False,
    out: str | Path = "multimix-variance",
    settings: dict[Data, VarianceSettings] | None = None,
    progress: Callable[[Sequence[Unit]], Iterable[Unit]] = iter,
    note: Callable[[str], None] = print,
) -> tuple[Path, Path]:
    """Measure what is not stored yet, and write all rows and the page.

    Args:
        on: Data sets.
        quick: Whether to use few samples and replicates, for a first look.
        out: Folder of the stored pieces, the rows and the page. A study that was stopped resumes from it.
        settings: Settings by data set, in place of those of the full or quick study.
        progress: Wraps the list of pieces, to show progress.
        note: Called with a sentence about each damaged file.

    Returns:
        The page ``variance.html`` and the rows ``variance.json`` (``variance-quick.*`` with ``quick``).
    """
    if not on:
        raise ValueError(f"on must name at least one data set of {', '.join(get_args(Data))}")
    settings = settings or (QUICK if quick else FULL)
    units = [(data, name) for data in dict.fromkeys(on) for name in unit_names(settings[data])]
    stores = {data: Store(out, f"variance-{data}", settings[data], note) for data in on}
    pieces: dict[Data, Pieces] = {data: {} for data in on}
    with one_thread():
        for data, name in progress(units):
            if stores[data].get(name) is None:
                stores[data].put(name, compute_piece(name, settings[data], pieces[data]))
            pieces[data][name] = stores[data].get(name) or {}
    rows = [row for data in pieces for row in variance_rows(settings[data], pieces[data])]
    content = json.dumps({"written_with": environment(), "rows": rows}, indent=1, ensure_ascii=False, allow_nan=False)
    stem = "variance-quick" if quick else "variance"
    (results,) = write_files(Path(out), {f"{stem}.json": content.encode()})
    (page,) = write_files(Path(out), {f"{stem}.html": variance_page(results).encode()})
    return page, results


def unit_names(settings: VarianceSettings) -> list[str]:
    """Return the pieces of work on one data set; each needs some of those before it."""
    parts = ["weights", "sampled", *(["enumerated"] if settings.every_pair else [])]
    return [*parts, *(setup.name for setup in SETUPS), *(f"{side}-{kind}" for side in SIDES for kind in ("multi", "large"))]


def compute_piece(name: str, settings: VarianceSettings, pieces: Pieces) -> dict[str, Any]:
    """Compute one piece from those before it."""
    if name == "weights":
        return train_weights(settings)
    model, method, x, y, *_ = trained_case(settings, pieces["weights"]["weights"])
    if name == "sampled":
        sizes = {"pairs": settings.pairs, "groups": settings.groups, "group": settings.group, "nodes": settings.nodes}
        return {"components": asdict(sampled_components(model, method, x, y, **sizes, seed=settings.seed))}
    if name == "enumerated":
        return asdict(enumerate_pairs(model, method, x, y, nodes=settings.nodes))
    for number, setup in enumerate(SETUPS, start=1):
        if name == setup.name:
            method = replace(method, per_pair=setup.per_pair, sampler=setup.sampler)
            ks = settings.ks if setup.sampler == "iid" else settings.stratified_ks
            sizes = {"batch": settings.batch, "replicates": settings.replicates, "seed": 100 * settings.seed + number}
            found = measure_variance(model, method, x, y, ks=ks, pairing=setup.pairing, **sizes)
            return {"measured": [entry._asdict() for entry in found]}
    # Multi-mix (B, K) or mixup of K·B pairs with one λ, at one side of B_0.
    side, kind = name.split("-")
    k, batch = settings.compared_k, SIDES[side] * crossover(best_components(pieces)[1]).value
    if not batch * k * MIN_REPLICATES <= settings.rows:
        return {"measured": None, "batch": None, "replicates": 0}
    batch = max(1, round(batch))
    replicates = int(min(max(settings.rows // (batch * k), MIN_REPLICATES), MAX_REPLICATES))
    seed = 100 * settings.seed + 50 + list(SIDES).index(side) * 2 + (kind == "large")
    ks, pairs = ((k,), batch) if kind == "multi" else ((1,), batch * k)
    found = measure_variance(model, method, x, y, ks=ks, batch=pairs, pairing="independent", replicates=replicates, seed=seed)
    return {"measured": found[0]._asdict(), "batch": batch, "replicates": replicates}


def best_components(pieces: Pieces) -> tuple[Enumeration | None, Components]:
    """Return the enumeration, if there is one, and V, V_pairs and V_λ from it or else from sampled pairs."""
    if "enumerated" not in pieces:
        return None, Components(**pieces["sampled"]["components"])
    enumeration = Enumeration.from_json(pieces["enumerated"])
    return enumeration, enumeration.components


def variance_rows(settings: VarianceSettings, pieces: Pieces) -> list[dict[str, Any]]:
    """Return all numbers on one data set as flat rows; :mod:`multimix.lab.report.pages.variance` has their schema."""
    rows = [*_setup_rows(settings, pieces), *_k_rows(settings, pieces), *_crossover_rows(settings, pieces)]
    return [{"data": settings.data, **row} for row in rows]


def _row(kind: str, source: str, estimate: Sequence[float], **columns: Any) -> dict[str, Any]:
    value, half = (*estimate, None)[:2]
    return {"kind": kind, "source": source, **columns, "value": value, "half": half}


def _setup_rows(settings: VarianceSettings, pieces: Pieces) -> Iterator[dict[str, Any]]:
    """Yield the settings, the trained model, and the parts of the variance."""
    for name in ("samples", "epochs", "alpha", "batch", "replicates", "compared_k", "seed"):
        yield _row(name, "setup", [getattr(settings, name)])
    weights, sampled = pieces["weights"], Components(**pieces["sampled"]["components"])
    yield _row("parameters", "setup", [len(weights["weights"])])
    yield _row("accuracy", "setup", [weights["accuracy"]])
    enumeration, exact = best_components(pieces)
    for source, parts in [("sampled pairs", sampled), ("all pairs", exact)][: 2 if enumeration else 1]:
        for kind, estimate in zip(("V", "V_pairs", "V_λ"), parts.estimates, strict=True):
            yield _row(kind, source, estimate)
        value, low, high = (end if math.isfinite(end) else None for end in crossover(parts))
        yield {"kind": "B_0", "source": source, "value": value, "low": low, "high": high}


def _k_rows(settings: VarianceSettings, pieces: Pieces) -> Iterator[dict[str, Any]]:
    """Yield the variance for every setup and K: measured, by the closed form, exact, and as ratios."""
    enumeration, parts = best_components(pieces)
    measured: dict[tuple[Setup, int], Estimate] = {}
    entries = [(setup, entry) for setup in SETUPS for entry in pieces[setup.name]["measured"]]
    for setup, entry in entries:
        k = entry["k"]
        size = {"k": k, "batch": settings.batch, "per_pair": setup.per_pair}
        columns = {"proposition": 1, **setup._asdict(), **size}
        found = measured[setup, k] = Estimate(*entry["variance"])
        yield _row("variance", "measured", found, **columns)
        yield _row("squared_norm", "measured", entry["squared_norm"], **columns)
        yield _row("printed", "measured", [entry["printed"]], **columns)
        if setup.sampler == "stratified":
            yield _row("ratio_to_iid", "measured", ratio(found, measured[setup._replace(sampler="iid"), k]), **columns)
            continue
        yield _row("ratio_to_first_k", "measured", entry["ratio"], **columns)
        if setup.per_pair:
            per_batch = measured[setup._replace(per_pair=False), k]
            yield _row("ratio_to_per_batch", "measured", ratio(found, per_batch), **columns)
        if setup.pairing == "independent":
            formula = multimix_variance(parts, **size)
            yield _row("variance", "closed form", formula, **columns)
            yield _row("ratio_to_closed_form", "measured", ratio(found, formula), **columns)
        elif enumeration:
            yield _row("variance", "exact", [enumeration.permutation_variance(**size)], **columns)


def _crossover_rows(settings: VarianceSettings, pieces: Pieces) -> Iterator[dict[str, Any]]:
    """Yield the variance of multi-mix and of mixup with as many mixed rows around B_0: measured, and by the closed form."""
    k, parts = settings.compared_k, best_components(pieces)[1]
    columns = {"proposition": 2, "pairing": "independent", "sampler": "iid"}
    batches, b_0 = {settings.batch}, crossover(parts).value
    if math.isfinite(b_0):
        batches |= set(np.geomspace(max(1.0, b_0 / 10), 10 * b_0, CURVE_POINTS).round().astype(int).tolist())
    for side in SIDES:
        multi, large = pieces[f"{side}-multi"], pieces[f"{side}-large"]
        if multi["measured"] is None:
            continue
        found = []
        for piece, pairs in ((multi, multi["batch"]), (large, k * multi["batch"])):
            entry, drawn = piece["measured"], {**columns, "per_pair": False, "batch": pairs, "replicates": piece["replicates"]}
            found.append(Estimate(*entry["variance"]))
            yield _row("variance", "measured", found[-1], k=entry["k"], **drawn)
        size = {"per_pair": False, "k": k, "batch": multi["batch"]}
        yield _row("ratio_to_large_batch", "measured", ratio(*found), **columns, **size)
        batches.add(multi["batch"])
    for batch in sorted(batches):
        for size in ({"k": k, "batch": batch}, {"k": 1, "batch": k * batch}, {"k": 1, "batch": k * batch, "per_pair": True}):
            size = {"per_pair": False, **size}
            yield _row("variance", "closed form", multimix_variance(parts, **size), **columns, **size)
