"""`multimix train`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from ...core.sampling import rank
from ..terminal import counted, note, say
from .options import (
    RUNS,
    Changes,
    DataFolder,
    FollowName,
    OutFolder,
    RecipeName,
    ScaleName,
    Seeds,
    data_folder,
    option,
    parse_changes,
)

if TYPE_CHECKING:
    from ..recipes.runs import Run


def train(
    recipe: RecipeName,
    /,
    *,
    method: Annotated[
        str | None, option("Method; multimix list methods shows all.", "NAME", default="all rows of the recipe")
    ] = None,
    k: Annotated[
        int | None, option("Number of interpolations, or factor of a batch strategy.", "K", default="5 with --method")
    ] = None,
    seeds: Seeds = (0,),
    scale: ScaleName = "paper",
    follow: FollowName = "text",
    data: DataFolder = None,
    out: OutFolder = RUNS,
    skip_bad: Annotated[bool, option("Skip and count unreadable files.")] = False,
    show: Annotated[bool, option("Print all settings; train nothing.")] = False,
    set_: Changes = (),
) -> None:
    """Train all rows of a recipe, or one method, optionally with changed settings.

    After an interruption, the same command resumes and ends with the same weights. Results are rows in OUT/results.jsonl, from
    which multimix report makes tables and figures. For several devices or machines: torchrun … -m multimix.lab.cli train …

    Try it:
      multimix list
      multimix train cifar100_preact_resnet18 --scale smoke --method cutmix --k 5
      multimix train cifar100_preact_resnet18 --scale small --method puzzlemix --k 5 --seeds 0 1 2
      multimix train cifar100_preact_resnet18 --method mixup --show
      multimix train cifar100_preact_resnet18 --method mixup --schedule.rate 0.1 --method.alpha 0.5 --epochs 200
    """
    import torch

    from .. import recipes
    from ..recipes.runs import planned
    from ..training.run import train as train_runs

    if rank() > 0 and show:
        return
    chosen = recipes.recipe(recipe, follow)
    changes = parse_changes(set_) | ({"data.skip_bad": "true"} if skip_bad else {})
    runs = planned(chosen, scale=scale, method=method, k=k, seeds=seeds, changes=changes)
    if show:
        return _show(runs)
    takes = f"; each takes {chosen.takes[scale]}" if scale in chosen.takes and not changes else ""
    _note(f"{chosen.title}, {scale} scale: {counted(len(runs), 'run')}{takes}")
    outcomes = train_runs(runs, data=data_folder(data), out=out, note=_note)
    diverged = [run for run, outcome in zip(runs, outcomes, strict=True) if outcome is None]
    for run, outcome in zip(runs, outcomes, strict=True):
        if rank() == 0 and outcome is not None:
            say(f"{run.title}: error {outcome.last:.2f} %")
    if len(diverged) < len(runs):
        _note(f"to draw tables and figures: multimix report {out}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # otherwise NCCL warns at exit
    if diverged:
        raise ValueError(f"{counted(len(diverged), 'run')} of {len(runs)} diverged: {'; '.join(run.title for run in diverged)}")


def _show(runs: Sequence[Run]) -> None:
    from ..recipes.serialise import describe

    for settings in dict.fromkeys(run.settings for run in runs):
        arms = ", ".join(dict.fromkeys(f"{run.arm} K = {run.k}" for run in runs if run.settings == settings))
        print(f"# {runs[0].recipe.name}, {runs[0].scale} scale, {arms}: {settings.digest()}")
        for field, value in describe(settings).items():
            print(f"{field} = {', '.join(map(str, value)) if isinstance(value, list) else value}")


def _note(sentence: str) -> None:
    if rank() == 0:
        note(sentence)
