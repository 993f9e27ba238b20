"""What the paper's tables and figures need: every training once, whoever asks for it; what it costs; which data are missing."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from rich.table import Table
from torch import nn

from ...data.cub import read_cub200
from ...recipes import recipe
from ...recipes.base import Follow, Scale
from ...recipes.runs import Run, planned
from ...recipes.settings import Settings
from ...report.paper import EXHIBITS, SPIRAL, Exhibit, exhibit
from ...sweep.plan import rows_per_sample
from ...terminal import counted, duration
from ...training.run import splits_of

SEEDS: Mapping[Scale, tuple[int, ...]] = {"paper": (0, 1, 2), "small": (0, 1, 2), "smoke": (0,)}
BIRDS = "cub200"
SAMPLES, REPEATS = 4, 3  # of the step that is measured
# As the paper shows them.
EXHIBIT_ORDER = ("fig2", "fig3", "fig4", "I", "II", "III", "IV", "V", "VI", "fig5", "VII", "VIII", "fig6", "fig7", "fig8")


@dataclass(frozen=True)
class Plan:
    """``runs`` are the trainings whose data are there, each once. ``missing`` has for every data set that is not why, and what
    would have been trained or measured with it.
    """

    exhibits: tuple[Exhibit, ...]
    scale: Scale
    follow: Follow
    seeds: tuple[int, ...]
    runs: tuple[Run, ...]
    missing: Mapping[str, str]

    @property
    def demo(self) -> bool:
        """Whether the study of the spiral belongs to it."""
        return any(SPIRAL in one.recipes for one in self.exhibits)

    def runs_of(self, one: Exhibit) -> list[Run]:
        """Those that fill a table or figure."""
        wanted = set(one.trainings)
        return [run for run in self.runs if (run.recipe.name, run.arm, run.k) in wanted]

    def measures(self) -> dict[str, list[Run]]:
        """Every evaluator with the runs that are measured by it, each once."""
        found: dict[str, dict[Path, Run]] = {}
        for one in self.exhibits:
            # A figure of birds shows what the transfer has found.
            for name in (*one.measures, *(("transfer",) if one.pictures_of else ())):
                if not (name == "transfer" and BIRDS in self.missing):
                    found.setdefault(name, {}).update({run.folder: run for run in self.runs_of(one)})
        return {name: list(runs.values()) for name, runs in found.items()}


def choose(only: Sequence[str]) -> tuple[Exhibit, ...]:
    """The tables and figures of these words, in the paper's order; without words all of them."""
    every = tuple(exhibit(name) for name in EXHIBIT_ORDER)
    assert len(every) == len(EXHIBITS)
    wanted = {exhibit(name) for name in only}
    return tuple(one for one in every if one in wanted) if only else every


def make_plan(
    exhibits: Sequence[Exhibit], *, scale: Scale, follow: Follow, seeds: Sequence[int], data: Path, cache: Path
) -> Plan:
    """The runs of the tables and figures, as far as there are data for them."""
    trainings = dict.fromkeys(training for one in exhibits for training in one.trainings)
    runs: dict[Path, Run] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(name for name, _, _ in trainings):
        chosen = recipe(name, follow)
        reason = _lack(chosen.settings(scale), data, cache)
        if reason is not None:
            missing[chosen.settings(scale).data.name] = reason
            continue
        for _, arm, k in (one for one in trainings if one[0] == name):
            own = planned(chosen, scale=scale, method=arm, k=k, seeds=seeds)
            runs |= {run.folder: run for run in own}
    if any("transfer" in one.measures or one.pictures_of for one in exhibits):
        try:
            read_cub200(data)
        except (ValueError, OSError) as error:
            missing[BIRDS] = str(error)
    # Seed by seed, so that a part of it is a fair comparison.
    ordered = sorted(runs.values(), key=lambda run: run.seed)
    return Plan(tuple(exhibits), scale, follow, tuple(seeds), tuple(ordered), missing)


def _lack(settings: Settings, data: Path, cache: Path) -> str | None:
    """Why the data of a recipe cannot be trained on; None if they can."""
    own = settings.data
    try:
        parts = splits_of(own, data, cache, settings.running.workers)
        for part in ("train", own.report, *([own.select] if own.select else [])):
            parts[part]
    except (ValueError, OSError) as error:
        return str(error)
    return None


def cost_table(plan: Plan, finished: Sequence[Run], note: Callable[[str], None]) -> Table:
    """What is left to do, recipe by recipe: runs, hours on this machine by a measured step, disk space."""
    table = Table(title=f"What is planned ({plan.scale} scale)", title_justify="left")
    for head in ("recipe", "runs", "finished", "about", "disk"):
        table.add_column(head, justify="left" if head == "recipe" else "right")
    done = {run.folder for run in finished}
    seconds_of_all = bytes_of_all = 0.0
    for name in dict.fromkeys(run.recipe.name for run in plan.runs):
        own = [run for run in plan.runs if run.recipe.name == name]
        left = [run for run in own if run.folder not in done]
        note(f"measuring a step of {name}")
        seconds, size = _cost(left)
        seconds_of_all, bytes_of_all = seconds_of_all + seconds, bytes_of_all + size
        table.add_row(name, str(len(own)), str(len(own) - len(left)), duration(seconds), f"{size / 1e9:.1f} GB")
    table.add_section()
    table.add_row("all", str(len(plan.runs)), str(len(done)), duration(seconds_of_all), f"{bytes_of_all / 1e9:.1f} GB")
    sharing = sum(len(plan.runs_of(one)) for one in plan.exhibits)
    table.caption = (
        f"{counted(len(plan.runs), 'run')} where the tables and figures ask for {sharing}: each is trained once. One process on "
        "this machine, from a measured step of each network; evaluations are not counted."
    )
    return table


def _cost(runs: Sequence[Run]) -> tuple[float, float]:
    """Seconds and bytes of runs that share data and network."""
    seconds = size = 0.0
    known: dict[tuple[int, ...], tuple[float, int]] = {}
    for run in runs:
        entry, per_class = run.settings.data.entry(), run.settings.data.per_class
        samples = entry.counts["train"] if per_class is None else per_class * entry.classes
        passes = rows_per_sample(run.settings) + ("saliency" in run.settings.method.traits.needs)
        for epoch in range(run.settings.epochs):
            now = run.settings.in_epoch(epoch)
            shape = (entry.size[0], *((now.augment.size,) * 2 if now.augment.size else entry.size[1:]))
            if shape not in known:
                known[shape] = _measure(now, entry.classes, shape)
            seconds += samples * passes * known[shape][0]
        # Weights and momentum in a checkpoint; the best epoch is kept beside the last where one is selected.
        size += 8 * next(iter(known.values()))[1] * (2 if run.settings.data.select else 1) if known else 0
    return seconds, size


def _measure(settings: Settings, classes: int, shape: tuple[int, ...]) -> tuple[float, int]:
    """Seconds of a sample forward and backward, and the number of weights."""
    network = settings.network.built(classes, shape[0])
    x, y = torch.randn(SAMPLES, *shape), torch.randint(classes, (SAMPLES,))
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
        times.append(time.process_time() - start)
    return median(times) / SAMPLES, sum(weight.numel() for weight in network.parameters())
