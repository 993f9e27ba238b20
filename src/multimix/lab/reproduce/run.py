"""The paper's runs trained and measured, as far as possible; what fails is listed and the others go on."""

from collections.abc import Callable
from pathlib import Path

from ..evaluation.runner import evaluate_places
from ..results.evaluations import draw
from ..studies.spiral.page import write_report
from ..studies.spiral.runs import run_demo
from ..sweep.engines import Engine
from ..sweep.workers import train_runs, unfinished
from .plan import Plan

DEMO_FOLDER = "spiral"


def carry_out(plan: Plan, *, data: Path, out: Path, engine: Engine, note: Callable[[str], None]) -> tuple[str, ...]:
    """Train, measure and study what is not there yet; what could not be done, in sentences. Stopped, the same call resumes."""
    failed = []
    if plan.demo:
        quick = plan.scale == "smoke"
        note("Fig. 4: the spiral")
        write_report(
            run_demo(quick=quick, out=out / DEMO_FOLDER, note=note), out / DEMO_FOLDER, "spiral-quick" if quick else "spiral"
        )
    failures = train_runs(plan.runs, data=data, out=out, engine=engine, note=note) if plan.runs else []
    failed += [f"{failure.run.title}: {failure.reason} ({failure.log})" for failure in failures]
    broken = {run.folder for run in unfinished(plan.runs, out, note)}
    for name, runs in plan.measures().items():
        places = [str(out / run.folder) for run in runs if run.folder not in broken]
        if places:
            note(f"measuring {name} of {len(places)} runs")
            _, sentences = evaluate_places(places, [name], data=data, out=out, draw=draw)
            failed += sentences
    return tuple(failed)
