"""From a folder to a page: looked at, measured, divided, trained, evaluated, answered; stopped, it resumes from there."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ...methods import NoMix
from ..data.own_folder import OwnSplits
from ..evaluation.cache import collect_runs
from ..evaluation.runner import evaluate_places
from ..recipes.base import Scale, counts_k
from ..recipes.folder import RECIPE
from ..recipes.serialise import apply_changes
from ..recipes.settings import Data
from ..results.comparison import at_equal_budgets
from ..results.table import counted
from ..storage import digest, make_folder, write_atomically, write_files
from ..sweep.costs import update_seconds
from ..sweep.engines import Engine, Here, Local
from ..sweep.plan import Arm, Planned, Stored, arm_runs, plan_sweep, store_plan
from ..sweep.workers import train_runs
from ..terminal import duration
from ..terminal import note as say
from ..training.run import splits_of
from .answer import answer
from .budget import OVERHEAD, STARTING, Work, divide, in_seconds
from .page import compare_page
from .plan import Asked, Comparison, Plan, plan_words
from .setup import Setup

METHODS = ("mixup", "cutmix")
OUT = Path("multimix-compare")
FILE, PAGE = "compare.json", "compare.html"
SCALE: Scale = "small"
LONG_RUN = 60.0  # seconds; a shorter one is not worth a process of its own
LATE = 1.1  # times the budget, after which no further seed is begun
BASE: Arm = (NoMix.name, 1)
Note = Callable[[str], None]


def compare_folder(
    folder: str | Path,
    *,
    model: str | None = None,
    methods: Sequence[str] = METHODS,
    ks: Sequence[int] = (1, 5),
    seeds: int = 3,
    budget: str = "30m",
    out: str | Path | None = None,
    jobs: int = 1,
    changes: Mapping[str, str] | None = None,
    note: Note = say,
) -> tuple[Path, Comparison]:
    """Train no mixing and ``methods`` on the pictures (or sounds) of a folder within ``budget``, and write a page of the answer.

    No mixing is always trained. ``out`` is where everything goes, multimix-compare/NAME if not given.
    """
    start = time.monotonic()
    asked = Asked(model, tuple(methods), tuple(sorted(set(ks))), seeds, in_seconds(budget), jobs, dict(changes or {}))
    folder = Path(folder)
    setup = Setup(folder, model, asked.changes)
    out = OUT / (folder.resolve().name or "folder") if out is None else Path(out)
    _claim(out, setup)
    note(_folder_words(setup))
    plan = _plan(setup, asked, out, start, note)
    planned = _planned(setup, asked, plan)
    splits = _splits(setup, plan, out)
    for sentence in (*splits.notes, *_bad(splits)):
        note(sentence)
    notes = _train(planned, setup, asked, plan, out, start, note)
    places = [str(out / one.run.folder) for one in planned if (out / one.run.folder).exists()]
    _, failed = evaluate_places(places, ["error", "calibration"], data=folder, out=out, trust=[setup.network])
    rows = collect_runs([out], note)
    whole = at_equal_budgets(replace(RECIPE, rows=()), SCALE, rows, [one.entry for one in planned])["steps"]
    if not whole.trained:
        raise ValueError(f"every run failed: {notes[0] if notes else 'there is no result'}")
    took = time.monotonic() - start
    found = Comparison(setup, asked, plan, splits, whole, answer(whole), planned, (*notes, *failed), took, out)
    html, figures = compare_page(found)
    (page,) = write_files(out, {PAGE: html.encode()})
    write_files(out / "figures", figures)
    return page, found


def _claim(out: Path, setup: Setup) -> None:
    """Make ``out`` the place of this folder's comparison, unless it is that of other files."""
    known = _read(out)
    if known and known.get("files") != setup.fingerprint:
        raise ValueError(
            f"{out} holds a comparison of other files, of {known.get('folder')}: the folder is another one or has changed since; "
            "give another --out"
        )
    if not known:
        make_folder(out)
        _write(out, {"folder": str(setup.folder), "files": setup.fingerprint, "plans": {}})


def _read(out: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((out / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{out / FILE} is damaged ({error}); remove it, or give another --out") from None
    return content


def _write(out: Path, content: Mapping[str, Any]) -> None:
    write_atomically(out / FILE, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def _folder_words(setup: Setup) -> str:
    train, test = setup.sizes(None)
    listed = setup.listed
    seen = f"squares of {setup.side} pixels" if setup.kind == "pictures" else "spectrograms of one second"
    return (
        f"{listed.root}: {train:,} {setup.kind} of {len(listed.classes)} classes to learn from, {test:,} to be tested on; "
        f"{seen}, batches of {setup.batch}, network {setup.network}"
    )


def _plan(setup: Setup, asked: Asked, out: Path, start: float, note: Note) -> Plan:
    """The stored plan of the same comparison, or a new one from measured times."""
    known = _read(out)
    key = digest([asdict(asked), setup.changes])[:10]
    if key in known["plans"]:
        plan = Plan.unpacked(known["plans"][key])
        note("goes on with the plan that was made before")
    else:
        plan = _measured_plan(setup, asked, out, start, note)
        _write(out, {**known, "plans": {**known["plans"], key: plan.packed()}})
    for (arm, k), why in plan.broken.items():
        note(f"{arm} K = {k} cannot be trained and is left out: {why}")
    note(plan_words(setup, asked, plan))
    return plan


def _measured_plan(setup: Setup, asked: Asked, out: Path, start: float, note: Note) -> Plan:
    probe = next((most for most in range(2, setup.largest) if setup.sizes(most)[0] >= 4 * setup.batch), None)
    changes = setup.lasting(2, probe)
    runs = arm_runs(RECIPE, scale=SCALE, methods=(BASE[0], *asked.methods), ks=asked.ks, seeds=(0,), changes=changes)
    note(
        f"measuring what an update costs: {', '.join(f'{run.arm} K = {run.k}' if counts_k(run.arm) else run.arm for run in runs)}"
    )
    before = time.monotonic()
    splits_of(runs[0].settings.data, setup.folder, out / "cache", runs[0].settings.running.workers)
    reading = (time.monotonic() - before) / max(1, sum(setup.sizes(probe)))
    clock = None if torch.accelerator.is_available() else time.perf_counter
    found = update_seconds({(run.arm, run.k): run for run in runs}, setup.folder, out / "cache", clock)
    if BASE in found.broken:
        raise ValueError(f"the network {setup.network} cannot be trained on these data: {found.broken[BASE]}")
    if len(found.numbers) == 1:
        raise ValueError(f"none of the methods can be trained: {next(iter(found.broken.values()))}")
    overhead = STARTING if asked.jobs > 1 else OVERHEAD
    work = Work(found.numbers, BASE, asked.seeds, setup.batch, reading, setup.sizes, setup.largest, asked.jobs, overhead)
    return Plan(divide(asked.budget, time.monotonic() - start, work), found.numbers, found.broken)


def _planned(setup: Setup, asked: Asked, plan: Plan) -> list[Planned]:
    every = plan_sweep(
        RECIPE,
        scale=SCALE,
        methods=(BASE[0], *asked.methods),
        ks=asked.ks,
        seeds=tuple(range(asked.seeds)),
        changes=setup.lasting(plan.division.epochs, plan.division.most),
    )
    return [one for one in every if (one.run.arm, one.run.k) in plan.updates]


def _splits(setup: Setup, plan: Plan, out: Path) -> OwnSplits:
    """The data as the runs will read them; decoded once."""
    changes = setup.lasting(plan.division.epochs, plan.division.most)
    data: Data = apply_changes(RECIPE.settings(SCALE), changes).data
    read = splits_of(data, setup.folder, out / "cache")
    assert isinstance(read, OwnSplits)
    return read


def _bad(splits: OwnSplits) -> list[str]:
    """The files that could not be read, in sentences; a divided folder has them in both parts."""
    return list(dict.fromkeys(sentence for part in splits.parts.values() for sentence in part.skipped))


def _train(planned: Sequence[Planned], setup: Setup, asked: Asked, plan: Plan, out: Path, start: float, note: Note) -> list[str]:
    """Seed by seed, so that what fits into the budget is a fair comparison; sentences on what failed or was not begun."""
    entries = tuple(one.entry for one in planned)
    methods, seeds = (BASE[0], *asked.methods), tuple(range(asked.seeds))
    store_plan(out, Stored(RECIPE.name, SCALE, methods, asked.ks, seeds, ("steps",), setup.changes, entries))
    each = plan.division.seconds / max(1, len(planned))
    engine: Engine = Local(asked.jobs) if asked.jobs > 1 or each > LONG_RUN else Here()
    notes: list[str] = []
    slowest = 0.0
    for seed in range(asked.seeds):
        begun = time.monotonic()
        if seed > 0 and begun - start + slowest > LATE * asked.budget:
            notes.append(
                f"the budget was spent after {counted(seed, 'seed')} of {asked.seeds}, since runs took longer than planned"
            )
            note(notes[-1])
            break
        runs = [one.run for one in planned if one.run.seed == seed]
        failures = train_runs(runs, data=setup.folder, out=out, engine=engine, note=note)
        notes += [f"{failure.run.arm} K = {failure.run.k}, seed {seed}, failed: {failure.reason}" for failure in failures]
        slowest = max(slowest, time.monotonic() - begun)
        left = (asked.seeds - seed - 1) * slowest
        if left >= 1:
            note(f"seed {seed + 1} of {asked.seeds} is done, about {duration(left)} left")
    return notes
