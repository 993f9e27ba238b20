"""`multimix variance`: the gradient's variance on the spiral and on the digits, kept on disk piece by piece and written up."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ....checks import check_choice
from ...storage import Store, environment, write_atomically
from ...study import Written, one_thread
from .cases import FULL, QUICK, Case, Data, Settings, case_of, trained_weights
from .closed_form import crossover
from .enumeration import enumerated, enumeration_from
from .figure import figure
from .findings import findings
from .measure import measured
from .outcome import Outcome, outcome_of, setups
from .page import page, terminal_table
from .sampling import sampled_components, sampled_from

# How many replicates a large-batch measurement takes at least and at most, whatever the bound on its rows.
FEWEST, MOST = 40, 1000


class Unit(NamedTuple):
    """One piece of the work on one data set."""

    data: Data
    name: str


def variance(
    *,
    on: tuple[Data, ...] = ("spiral", "digits"),
    quick: bool = False,
    out: str | Path = "multimix-variance",
    rebuild: bool = False,
    settings: dict[Data, Settings] | None = None,
    progress: Callable[[Sequence[Unit]], Iterable[Unit]] = iter,
    note: Callable[[str], None] = print,
) -> Written:
    """``variance.html``, ``variance.json`` and a figure for each data set, in ``out``.

    Finished pieces are kept in ``out`` and not computed again, so a study that was stopped goes on. ``quick`` takes few samples
    and replicates, for a first look, and writes ``variance-quick.*``. ``rebuild`` computes nothing and writes up what is there.
    """
    chosen = settings or (QUICK if quick else FULL)
    on = _checked(on)
    stores = {data: Store(out, f"variance-{data}", chosen[data], note) for data in on}
    units = [Unit(data, name) for data in on for name in unit_names(chosen[data])]
    with one_thread():
        for data, name in progress(units):
            if stores[data].get(name) is None and not rebuild:
                stores[data].put(name, computed(name, chosen[data], stores[data]))
    outcomes = []
    for data in on:
        kept = {name: stores[data].get(name) for name in unit_names(chosen[data])}
        missing = [name for name, result in kept.items() if result is None]
        if missing:
            note(f"{data} is left out: {len(missing)} of {len(kept)} pieces are missing, the first is {missing[0]}")
        else:
            outcomes.append(outcome_of(chosen[data], {name: result for name, result in kept.items() if result is not None}))
    if not outcomes:
        raise ValueError(f"{str(out)!r} holds no finished data set; leave out rebuild to compute it")
    return written(outcomes, Path(out), "variance-quick" if quick else "variance")


def unit_names(settings: Settings) -> list[str]:
    """The pieces of the work on one data set, in an order in which each finds what it needs."""
    parts = ["weights", "sampled", *(["enumerated"] if settings.every_pair else [])]
    return [
        *parts,
        *(setup.name for setup in setups()),
        *("-".join(both) for both in product(("low", "high"), ("multi", "large"))),
    ]


def computed(name: str, settings: Settings, store: Store) -> dict[str, Any]:
    """The result of one piece."""
    if name == "weights":
        return trained_weights(settings)
    case = case_of(settings, _needed(store, "weights")["weights"])
    model, method, x, y = case
    if name == "sampled":
        sizes = {"pairs": settings.pairs, "groups": settings.groups, "group": settings.group, "nodes": settings.nodes}
        return asdict(sampled_components(model, method, x, y, **sizes, seed=settings.seed))
    if name == "enumerated":
        return asdict(enumerated(model, method, x, y, nodes=settings.nodes))
    for number, setup in enumerate(setups(), start=1):
        if name == setup.name:
            method = replace(method, per_pair=setup.per_pair, sampler=setup.sampler)
            ks = settings.ks if setup.sampler == "iid" else settings.stratified_ks
            sizes = {"batch": settings.batch, "replicates": settings.replicates, "seed": 100 * settings.seed + number}
            found = measured(model, method, x, y, ks=ks, pairing=setup.pairing, **sizes)
            return {"measured": [row._asdict() for row in found]}
    side, kind = name.split("-")
    return _compared(settings, case, side, kind, store)


def _compared(settings: Settings, case: Case, side: str, kind: str, store: Store) -> dict[str, Any]:
    """Multi-mix (B, K) or mixup of K·B pairs with one λ, at a quarter of B_0 or at four times B_0."""
    parts = sampled_from(_needed(store, "sampled")).components
    if settings.every_pair:
        parts = enumeration_from(_needed(store, "enumerated")).components
    k, factor = settings.compared_k, 0.25 if side == "low" else 4.0
    batch = crossover(parts).value * factor
    if not batch * k * FEWEST <= settings.rows:
        return {"measured": None, "batch": None, "replicates": 0}
    batch = max(1, round(batch))
    replicates = int(min(max(settings.rows // (batch * k), FEWEST), MOST))
    kept, rows = ((k,), batch) if kind == "multi" else ((1,), batch * k)
    seed = 100 * settings.seed + 50 + ("low", "high").index(side) * 2 + ("multi", "large").index(kind)
    model, method, x, y = case
    found = measured(model, method, x, y, ks=kept, batch=rows, pairing="independent", replicates=replicates, seed=seed)
    return {"measured": found[0]._asdict(), "batch": batch, "replicates": replicates}


def written(outcomes: Sequence[Outcome], out: Path, stem: str) -> Written:
    """The page, the JSON file and the figures."""
    sentences = {outcome.settings.data: findings(outcome) for outcome in outcomes}
    figures = {outcome.settings.data: figure(outcome) for outcome in outcomes}
    content = {
        "written_with": environment(),
        "findings": sentences,
        "data": {outcome.settings.data: outcome.plain() for outcome in outcomes},
    }
    html_path, json_path = out / f"{stem}.html", out / f"{stem}.json"
    pictures = {out / f"{stem}-{data}.png": content for data, content in figures.items()}
    write_atomically(html_path, page(outcomes, sentences, figures).encode())
    write_atomically(json_path, (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    for path, picture in pictures.items():
        write_atomically(path, picture)
    words = tuple(f"{data}: {sentence}" for data, each in sentences.items() for sentence in each)
    return Written(html_path, json_path, tuple(pictures), terminal_table(outcomes), words)


def _needed(store: Store, name: str) -> dict[str, Any]:
    kept = store.get(name)
    if kept is None:
        raise ValueError(f"{name} is missing in {str(store.folder)!r}; run the study again to compute it")
    return kept


def _checked(on: tuple[Data, ...]) -> tuple[Data, ...]:
    if not on:
        raise ValueError(f"on must name at least one data set; there are {', '.join(get_args(Data))}")
    for name in on:
        check_choice("data set", name, get_args(Data))
    return tuple(dict.fromkeys(on))
