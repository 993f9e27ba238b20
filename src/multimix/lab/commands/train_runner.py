"""`multimix train`: the settings shown, the runs trained, tables and figures made of the rows."""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import torch
from rich.console import Console

from ...checks import nearest
from ...sampling import rank
from ..recipes import recipe as named_recipe
from ..recipes.base import Recipe, Scale
from ..recipes.settings import Settings, described
from ..results.recipe_table import recipe_table, write_recipe_results
from ..storage import read_rows
from ..training.run import RESULTS, Run, planned, train, unfinished
from .train import train as train_command

OPTIONS = tuple(name.rstrip("_") for name in inspect.signature(train_command).parameters)


def run(
    recipe: str,
    *,
    method: str | None,
    k: int | None,
    seeds: Sequence[int],
    scale: Scale,
    data: Path,
    out: Path,
    changes: Mapping[str, str],
    only_show: bool,
    rebuild: bool,
) -> None:
    """What the command does; everything but tables and settings goes to the error stream."""
    if rank() > 0 and (only_show or rebuild):
        return
    chosen = named_recipe(recipe)
    for path in changes:
        _check_field(path)
    runs = planned(chosen, scale=scale, method=method, k=k, seeds=seeds, changes=changes)
    if only_show:
        _show(runs)
        return
    if not rebuild:
        takes = chosen.takes.get(scale)
        _note(
            f"{chosen.title}, {scale} scale: {_count(len(runs), 'run')}"
            + (f"; one takes {takes}" if takes and not changes else "")
        )
        left = unfinished(runs, train(runs, data=data, out=out, note=_note))
        if rank() == 0 and len(left) < len(runs):
            _report(chosen, scale, out)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # else NCCL complains at exit
        if left:
            raise ValueError(f"{_count(len(left), 'run')} of {len(runs)} diverged: {'; '.join(run.title for run in left)}")
    else:
        _report(chosen, scale, out)


def _report(recipe: Recipe, scale: Scale, out: Path) -> None:
    rows = read_rows(out / RESULTS, _note)
    if not any(row.get("recipe") == recipe.name and row.get("scale") == scale for row in rows):
        raise ValueError(f"{out / RESULTS} has no results of {recipe.name} at {scale} scale")
    Console().print(recipe_table(recipe, scale, rows))
    for path in write_recipe_results(recipe, scale, rows, out):
        print(f"wrote {path}")


def _show(runs: Sequence[Run]) -> None:
    for settings in dict.fromkeys(run.settings for run in runs):
        arms = ", ".join(dict.fromkeys(f"{run.arm} K = {run.k}" for run in runs if run.settings == settings))
        print(f"# {runs[0].recipe.name}, {runs[0].scale} scale, {arms}: {settings.digest()}")
        for field, value in described(settings).items():
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            print(f"{field} = {shown}")


def _check_field(path: str) -> None:
    """A word that is neither an option of the command nor a field: the nearest of both is told."""
    name = path.split(".")[0].replace("-", "_")
    known = [field.name for field in fields(Settings)]
    if name not in known:
        raise ValueError(
            f"no option or field {name!r}{nearest(name, [*OPTIONS, *known])}; "
            "multimix train --help has the options, --show the fields"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _note(sentence: str) -> None:
    if rank() == 0:
        print(sentence, file=sys.stderr, flush=True)
