"""Plan the runs of the paper's tables and figures: each run once, its cost, and missing data."""

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
from ...report.paper import SPIRAL, Exhibit, exhibit
from ...sweep.plan import rows_per_sample
from ...terminal import counted, duration
from ...training.run import splits_of

SEEDS: Mapping[Scale, tuple[int, ...]] = {"paper": (0, 1, 2), "small": (0, 1, 2), "smoke": (0,)}
BIRDS = "cub200"
TIMED_SAMPLES, TIMED_STEPS = 4, 3
# The order in the paper.
EXHIBIT_ORDER = ("fig2", "fig3", "fig4", "I", "II", "III", "IV", "V", "VI", "fig5", "VII", "VIII", "fig6", "fig7", "fig8")


@dataclass(frozen=True)
class Plan:
    """Runs of tables and figures of the paper.

    Args:
        exhibits: The tables and figures.
        scale: The scale.
        follow: Whether the recipes follow the paper's text or its authors' code.
        seeds: One training for each.
        runs: Distinct runs whose data sets are available.
        missing: Reasons by name for data sets that are not available.
    """

    exhibits: tuple[Exhibit, ...]
    scale: Scale
    follow: Follow
    seeds: tuple[int, ...]
    runs: tuple[Run, ...]
    missing: Mapping[str, str]

    @property
    def demo(self) -> bool:
        """Whether an exhibit shows the spiral study."""
        return any(SPIRAL in shown.recipes for shown in self.exhibits)

    def runs_of(self, shown: Exhibit) -> list[Run]:
        """Return the runs that a table or figure shows.

        Args:
            shown: The table or figure.
        """
        trainings = set(shown.trainings)
        return [run for run in self.runs if (run.recipe.name, run.arm, run.k) in trainings]

    def measures(self) -> dict[str, list[Run]]:
        """Return the distinct runs to evaluate by name of the measure."""
        runs_by_measure: dict[str, dict[Path, Run]] = {}
        for shown in self.exhibits:
            # The transfer stores the pictures of birds.
            for name in (*shown.measures, *(("transfer",) if shown.pictures_of else ())):
                if not (name == "transfer" and BIRDS in self.missing):
                    runs_by_measure.setdefault(name, {}).update({run.folder: run for run in self.runs_of(shown)})
        return {name: list(runs.values()) for name, runs in runs_by_measure.items()}


def choose(only: Sequence[str]) -> tuple[Exhibit, ...]:
    """Return tables and figures in the paper's order.

    Args:
        only: Their names; empty for all.
    """
    chosen = {exhibit(name) for name in only or EXHIBIT_ORDER}
    return tuple(shown for shown in map(exhibit, EXHIBIT_ORDER) if shown in chosen)


def make_plan(
    exhibits: Sequence[Exhibit], *, scale: Scale, follow: Follow, seeds: Sequence[int], data: Path, cache: Path
) -> Plan:
    """Plan the runs of tables and figures whose data sets are available.

    Args:
        exhibits: The tables and figures.
        scale: The scale.
        follow: Whether the recipes follow the paper's text or its authors' code.
        seeds: One training for each.
        data: Folder of the data sets.
        cache: Folder of decoded data.
    """
    trainings = dict.fromkeys(training for shown in exhibits for training in shown.trainings)
    runs: dict[Path, Run] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(name for name, _, _ in trainings):
        chosen = recipe(name, follow)
        reason = _missing_data(chosen.settings(scale), data, cache)
        if reason is not None:
            missing[chosen.settings(scale).data.name] = reason
            continue
        for _, arm, k in (training for training in trainings if training[0] == name):
            runs |= {run.folder: run for run in planned(chosen, scale=scale, method=arm, k=k, seeds=seeds)}
    if any("transfer" in shown.measures or shown.pictures_of for shown in exhibits):
        try:
            read_cub200(data)
        except (ValueError, OSError) as error:
            missing[BIRDS] = str(error)
    # Seed by seed, so that the finished runs of an interrupted plan are a fair comparison.
    ordered = sorted(runs.values(), key=lambda run: run.seed)
    return Plan(tuple(exhibits), scale, follow, tuple(seeds), tuple(ordered), missing)


def _missing_data(settings: Settings, data: Path, cache: Path) -> str | None:
    """Return why the data of a recipe cannot be read, or None if they can."""
    try:
        splits = splits_of(settings.data, data, cache, settings.running.workers)
        for name in filter(None, ("train", settings.data.report, settings.data.select)):
            splits[name]
    except (ValueError, OSError) as error:
        return str(error)
    return None


def cost_table(plan: Plan, finished: Sequence[Run], note: Callable[[str], None]) -> Table:
    """Return the remaining work by recipe: runs, estimated hours on this machine, and disk space.

    Args:
        plan: The plan.
        finished: Finished runs of the plan.
        note: Receives messages.
    """
    table = Table(title=f"What is planned ({plan.scale} scale)", title_justify="left")
    for head in ("recipe", "runs", "finished", "about", "disk"):
        table.add_column(head, justify="left" if head == "recipe" else "right")
    finished_folders = {run.folder for run in finished}
    seconds_of_all = bytes_of_all = 0.0
    for name in dict.fromkeys(run.recipe.name for run in plan.runs):
        recipe_runs = [run for run in plan.runs if run.recipe.name == name]
        remaining = [run for run in recipe_runs if run.folder not in finished_folders]
        note(f"measuring a step of {name}")
        seconds, size = _cost(remaining)
        seconds_of_all, bytes_of_all = seconds_of_all + seconds, bytes_of_all + size
        table.add_row(
            name, str(len(recipe_runs)), str(len(recipe_runs) - len(remaining)), duration(seconds), f"{size / 1e9:.1f} GB"
        )
    table.add_section()
    table.add_row(
        "all", str(len(plan.runs)), str(len(finished_folders)), duration(seconds_of_all), f"{bytes_of_all / 1e9:.1f} GB"
    )
    sharing = sum(len(plan.runs_of(shown)) for shown in plan.exhibits)
    table.caption = (
        f"{counted(len(plan.runs), 'run')} for {sharing} entries of tables and figures: each run is trained once. Times are for "
        "one process on this machine, from a measured step of each network, without evaluations."
    )
    return table


def _cost(runs: Sequence[Run]) -> tuple[float, float]:
    """Return seconds and bytes of runs that share data and network."""
    seconds = size = 0.0
    measured: dict[tuple[int, ...], tuple[float, int]] = {}
    for run in runs:
        entry, per_class = run.settings.data.entry(), run.settings.data.per_class
        samples = entry.counts["train"] if per_class is None else per_class * entry.classes
        passes = rows_per_sample(run.settings) + ("saliency" in run.settings.method.traits.needs)
        for epoch in range(run.settings.epochs):
            epoch_settings = run.settings.in_epoch(epoch)
            shape = (entry.size[0], *((epoch_settings.augment.size,) * 2 if epoch_settings.augment.size else entry.size[1:]))
            if shape not in measured:
                measured[shape] = _measure(epoch_settings, entry.classes, shape)
            seconds += samples * passes * measured[shape][0]
        # A checkpoint has weights and momentum; a recipe that selects an epoch stores a second checkpoint.
        size += 8 * next(iter(measured.values()))[1] * (2 if run.settings.data.select else 1) if measured else 0
    return seconds, size


def _measure(settings: Settings, classes: int, shape: tuple[int, ...]) -> tuple[float, int]:
    """Return the seconds of a forward and backward pass per sample, and the number of weights."""
    network = settings.network.built(classes, shape[0])
    x, y = torch.randn(TIMED_SAMPLES, *shape), torch.randint(classes, (TIMED_SAMPLES,))
    times = []
    for _ in range(TIMED_STEPS):
        start = time.process_time()
        nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
        times.append(time.process_time() - start)
    return median(times) / TIMED_SAMPLES, sum(weight.numel() for weight in network.parameters())
