"""`multimix digits` and `multimix points`: a recipe swept in this process, its runs evaluated, and one page of everything."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...methods import NoMix
from ..evaluation.cache import collect_runs
from ..evaluation.runner import evaluate_places
from ..recipes import RECIPES
from ..recipes import recipe as named_recipe
from ..recipes.base import STRATEGIES, Recipe, Scale, arm_names
from ..results.comparison import studies
from ..results.findings import findings
from ..results.recipe_table import recipe_table
from ..results.report import write_reports
from ..storage import keep_page
from ..studies.files import StudyFiles, show_study
from ..sweep.engines import Here
from ..sweep.plan import Stored, arm_runs, plan_sweep, store_plan
from ..sweep.workers import train_runs
from ..terminal import note
from ..training.run import RESULTS

DATA = Path("data")  # the data sets of these recipes need no files


def run(
    name: str, recipe: str, *, quick: bool, methods: Sequence[str], ks: Sequence[int], seeds: int | None, rebuild: bool, out: Path
) -> None:
    """Train what is missing of methods × K × seeds, measure calibration, and write a page called ``name``.

    No mixing is always there, to compare with; no ``methods`` means all that can be trained. ``rebuild`` trains nothing.
    """
    scale: Scale = "smoke" if quick else "small"
    seeds = (2 if quick else 5) if seeds is None else seeds
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if not ks or min(ks) < 1:
        raise ValueError(f"ks must be one or more whole numbers, at least 1, got {ks}")
    chosen = named_recipe(recipe)
    if rebuild and not (out / RESULTS).exists():
        raise ValueError(f"there are no finished runs in {str(out)!r}")
    if not rebuild:
        _train(chosen, scale, methods or _trainable(chosen, scale, ks), ks, seeds, out)
    # No pictures: one for every run would take longer than the run; the page has those of all seeds together.
    _, failed = evaluate_places([str(out)], ["calibration"], data=DATA, out=out)
    for sentence in failed:
        note(sentence)
    known = {**RECIPES, chosen.name: replace(chosen, rows=())}  # no lines for what this study does not train
    whole = next(one for one in studies(collect_runs([out], note), known) if (one.recipe.name, one.scale) == (chosen.name, scale))
    page = out / f"{name}{'-quick' if quick else ''}.html"
    for written in write_reports([out], out=out, data=DATA, recipes=known):
        if written.page.stem == f"{chosen.name}-{scale}":
            keep_page(page, written.page.read_bytes())
            os.replace(written.page, page)
    words = ["A quick look: it shows that everything runs, its numbers are no results."] if quick else []
    show_study(StudyFiles(page, out / RESULTS, (), recipe_table(whole), (*words, *findings(whole))))


def _train(recipe: Recipe, scale: Scale, methods: Sequence[str], ks: Sequence[int], seeds: int, out: Path) -> None:
    asked: dict[str, Any] = {"methods": (NoMix.name, *methods), "ks": tuple(sorted(set(ks))), "seeds": tuple(range(seeds))}
    planned = plan_sweep(recipe, scale=scale, **asked)
    store_plan(out, Stored(recipe.name, scale, equal=("steps",), changes={}, runs=tuple(one.entry for one in planned), **asked))
    failures = train_runs([one.run for one in planned], data=DATA, out=out, engine=Here(), note=note)
    if len(failures) == len(planned):
        raise ValueError(f"every run failed; see {failures[0].log}")


def _trainable(recipe: Recipe, scale: Scale, ks: Sequence[int]) -> list[str]:
    """Smoothed labels and every method that the recipe can train; the others are named with the reason."""

    def works(name: str) -> bool:
        try:
            return bool(arm_runs(recipe, scale=scale, methods=(name,), ks=ks, seeds=(0,)))
        except (ValueError, TypeError) as error:
            note(f"{name} is left out: {error}")
            return False

    layout = recipe.settings(scale).data.entry().layout
    return [name for name in ("smoothing", *arm_names(layout)) if name not in STRATEGIES or name == "smoothing" if works(name)]
