"""`multimix demo --multiverse`: the spiral under 48 settings that the paper, which does not publish its own, may have had.

Every factor has each of its levels equally often, in an order drawn once (a balanced random design). All settings are trained on
the same seeds without mixup, with K = 1 and with K = 5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from ....core.sampling import seeded
from ...recipes.spiral import ARMS, K1, K5, SpiralSettings
from ...results.table import signed
from ...statistics import Equivalence, Paired, equivalence, holm
from .findings import collapsed, comparisons, summaries
from .runs import QUICK_EPOCHS, ReportProgress, SpiralResult, progress_bar, read_runs, run_study

FACTORS: Mapping[str, tuple[Any, ...]] = {
    "turns": (1.0, 1.5, 2.0),
    "noise": (0.0, 0.03, 0.1),
    "slope": (0.0, 0.1, None),
    "decay": (1e-5, 1e-4, 1e-3),
    "alpha": (0.5, 1.0, 2.0),
    "per_pair": (False, True),
    "uniform_in": ("angle", "arc"),
}
SETTINGS, SEEDS, QUICK_SEEDS = 48, 20, 3
MARGIN = 1.0  # points of accuracy within which K = 5 and K = 1 count as equal; written down before the runs, in docs/study.md

Verdict = Literal["better", "worse", "equal", "not settled"]


def multiverse(count: int = SETTINGS, epochs: int = SpiralSettings.epochs) -> list[SpiralSettings]:
    """``count`` different settings; each level of a factor occurs equally often, or once more where that cannot be."""
    generator = seeded(48)
    columns = {}
    for name, levels in FACTORS.items():
        order = torch.randperm(count, generator=generator).tolist()
        columns[name] = [levels[place % len(levels)] for place in order]
    found = [SpiralSettings(epochs=epochs, **{name: column[i] for name, column in columns.items()}) for i in range(count)]
    assert len(set(found)) == count, "the stream was chosen so that no setting occurs twice"
    return found


def run_multiverse(
    *,
    seeds: int | None = None,
    quick: bool = False,
    out: str | Path = "multimix-demo",
    rebuild: bool = False,
    progress: ReportProgress | None = None,
    note: Callable[[str], None] = print,
) -> list["Universe"]:
    """All settings, trained or read from disk: 20 seeds, or with ``quick`` six settings, three seeds and few epochs."""
    count = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    if count < 2:
        raise ValueError(f"seeds must be at least 2, got {count}")
    every = multiverse(6, QUICK_EPOCHS) if quick else multiverse()
    folder, results = Path(out) / "multiverse", []
    with progress_bar() if progress is None else nullcontext(progress) as report:
        for number, settings in enumerate(every):
            if rebuild:
                results.append(read_runs(settings, seeds=range(count), out=folder, note=note))
                continue
            each = settings.epochs * count * len(ARMS)

            def within(words: str, done: int, total: int, number: int = number, each: int = each) -> None:
                report(f"setting {number + 1} of {len(every)}: {words}", number * each + done, len(every) * each)

            results.append(run_study(settings, seeds=range(count), out=folder, at_once=count, note=note, progress=within))
    return judged(results)


@dataclass(frozen=True)
class Universe:
    """One setting: its runs, K = 5 minus K = 1, and how far its three means are from the paper's three numbers."""

    result: SpiralResult
    gain: Paired
    differences: tuple[float, ...]
    same: Equivalence
    verdict: Verdict
    p_holm: float
    distance: float

    @property
    def means(self) -> tuple[float, ...]:
        """Accuracy without mixup, with K = 1 and with K = 5, in per cent."""
        return tuple(summaries(self.result)[arm.name].mean for arm in ARMS)

    @property
    def collapsed(self) -> tuple[int, ...]:
        """How many runs of every arm did not learn."""
        return tuple(collapsed(self.result, arm) for arm in ARMS)


def judged(results: Sequence[SpiralResult]) -> list[Universe]:
    """Every setting with its verdict: a difference where the 95 % interval leaves out 0, equal within ±``MARGIN``, or neither."""
    gains = [comparisons(result)[-1] for result in results]
    corrected = holm([gain.paired.p_t for gain in gains])
    found = []
    for result, gain, p in zip(results, gains, corrected, strict=True):
        mean, half, n = gain.paired.mean, gain.paired.half, gain.paired.n
        spread = float(torch.tensor(gain.differences, dtype=torch.float64).std())
        same = equivalence(mean, spread / n**0.5, n - 1, MARGIN)
        verdict: Verdict = "not settled"
        if same.p < 0.05:
            verdict = "equal"
        elif abs(mean) > half:
            verdict = "better" if mean > 0 else "worse"
        means = [summaries(result)[arm.name].mean for arm in ARMS]
        off = sum((mean - arm.paper) ** 2 for mean, arm in zip(means, ARMS, strict=True))
        found.append(Universe(result, gain.paired, gain.differences, same, verdict, p, (off / len(ARMS)) ** 0.5))
    return found


class Level(NamedTuple):
    """One level of a factor: mean of K = 5 minus K = 1 over the settings that have it, and how they were judged."""

    factor: str
    level: str
    settings: int
    mean: float
    verdicts: Mapping[Verdict, int]


def by_level(universes: Sequence[Universe]) -> list[Level]:
    """Every level of every factor."""
    found = []
    for factor, levels in FACTORS.items():
        for level in levels:
            own = [one for one in universes if getattr(one.result.settings, factor) == level]
            if own:
                mean = sum(one.gain.mean for one in own) / len(own)
                found.append(Level(factor, level_words(factor, level), len(own), mean, counted(own)))
    return found


def counted(universes: Iterable[Universe]) -> dict[Verdict, int]:
    """How many settings have each verdict."""
    found: dict[Verdict, int] = {"better": 0, "worse": 0, "equal": 0, "not settled": 0}
    for one in universes:
        found[one.verdict] += 1
    return found


def level_words(factor: str, level: Any) -> str:
    """``ReLU`` rather than a slope of 0."""
    if factor == "slope":
        return "tanh" if level is None else f"LeakyReLU({level:g})" if level else "ReLU"
    if factor == "per_pair":
        return "a λ for every pair" if level else "one λ per batch"
    return f"{level:g}" if isinstance(level, float) else str(level)


def multiverse_findings(universes: Sequence[Universe]) -> list[str]:
    """What the settings show together, in words."""
    count, verdicts = len(universes), counted(universes)
    surviving = sum(one.p_holm < 0.05 for one in universes)
    mean = sum(one.gain.mean for one in universes) / count
    ahead = sum(one.gain.mean > 0 for one in universes)
    paper = K5.paper - K1.paper
    seeds = [difference for one in universes for difference in one.differences]
    reach = sum(difference >= paper - 1e-9 for difference in seeds)
    inside = sum(abs(one.gain.mean - paper) <= one.gain.half for one in universes)
    nearest = min(universes, key=lambda one: one.distance)
    near = sum(one.distance <= 1 for one in universes)
    triple = ", ".join(f"{value:.2f}" for value in nearest.means)
    return [
        f"Of {count} settings K = 5 is better than K = 1 in {verdicts['better']}, worse in {verdicts['worse']}, equal within "
        f"±{MARGIN:g} point in {verdicts['equal']}; {verdicts['not settled']} are not settled. {surviving} differ after Holm's "
        "correction.",
        f"The mean of K = 5 minus K = 1 over all settings is {signed(mean)} points; it is above 0 in {ahead} of {count}.",
        f"The paper's gain of {signed(paper)} points lies in the 95 % interval of {inside} settings; {reach} of {len(seeds)} "
        "single seeds gain as much or more.",
        f"The three means come within 1 point (root mean square) of the paper's 90.67, 94.17 and 97.50 in {near} settings; "
        f"nearest, at {nearest.distance:.2f} points, is {setting_words(nearest.result.settings)}: {triple}.",
    ]


def setting_words(settings: SpiralSettings) -> str:
    """One setting in a few words."""
    levels = {name: level_words(name, getattr(settings, name)) for name in FACTORS}
    turns = f"{levels['turns']} turn{'' if settings.turns == 1 else 's'}"
    return (
        f"{turns}, noise {levels['noise']}, {levels['slope']}, decay {levels['decay']}, α {levels['alpha']}, "
        f"{levels['per_pair']}, uniform in {levels['uniform_in']}"
    )
