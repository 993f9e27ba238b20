"""The paper's runs trained and measured, as far as possible; what fails is listed and the others go on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..evaluation.runner import evaluate_places
from ..report.pages.spiral import write_spiral_page
from ..results.evaluations import draw
from ..results.table import counted
from ..studies.spiral.demo import run_demo
from ..sweep.engines import Engine
from ..sweep.workers import train_runs, unfinished
from .plan import Plan

DEMO_FOLDER = "spiral"


def carry_out(plan: Plan, *, data: Path, out: Path, engine: Engine, note: Callable[[str], None]) -> tuple[str, ...]:
    """Train, measure and study what is not there yet; what could not be done, in sentences. Stopped, the same call resumes."""
    failed: list[str] = []
    if plan.demo:
        note("Fig. 4: the spiral")
        quick, place = plan.scale == "smoke", out / DEMO_FOLDER
        with _isolated("the spiral", failed):
            write_spiral_page(run_demo(quick=quick, out=place, note=note))
    failures = train_runs(plan.runs, data=data, out=out, engine=engine, note=note) if plan.runs else []
    failed += [f"{failure.run.title}: {failure.reason} ({failure.log})" for failure in failures]
    broken = {run.folder for run in unfinished(plan.runs, out, note)}
    for name, runs in plan.measures().items():
        places = [out / run.folder for run in runs if run.folder not in broken]
        note(f"measuring {name} of {counted(len(places), 'run')}")
        for place in places:
            with _isolated(f"{place.name}, {name}", failed):
                failed += evaluate_places([str(place)], [name], data=data, out=out, draw=draw)[1]
    return tuple(failed)


@contextmanager
def _isolated(what: str, failed: list[str]) -> Iterator[None]:
    """Whatever goes wrong inside is one sentence in ``failed``, and the rest goes on."""
    try:
        yield
    except Exception as error:  # out of memory in one measurement, say
        failed.append(f"{what}: {' '.join(str(error).split()) or type(error).__name__}")
