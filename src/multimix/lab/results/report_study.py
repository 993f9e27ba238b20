"""Finished runs sorted into studies: one recipe at one scale, its lines, and what compares with what."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from ..recipes import RECIPES, Recipe
from ..recipes.arms import counts_k
from ..recipes.base import SCALES, Scale
from ..statistics import Paired, holm
from .recipe_table import settings_marks
from .rows import BASELINE, ECE, Aggregate, Line, Rows, aggregate
from .table import counted

LEVEL = 0.05
MEASURES: Mapping[str, str] = {"error": "error", ECE: "ECE"}


class Compared(NamedTuple):
    """``line`` minus ``other`` in one measure over common seeds; ``p_holm`` is corrected for all comparisons of that measure."""

    line: str
    other: str
    measure: str
    paired: Paired
    p_holm: float = 1.0


class Study(NamedTuple):
    """The rows of one recipe at one scale, sorted; ``lines`` are those that have runs."""

    recipe: Recipe
    scale: Scale
    rows: Rows
    found: Aggregate

    @property
    def lines(self) -> list[Line]:
        """Those with finished runs."""
        return [line for line in self.found.lines if line.runs]

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{self.recipe.name}-{self.scale}"

    @property
    def seeds(self) -> list[int]:
        """All seeds that were run."""
        return sorted({seed for line in self.lines for seed in line.seeds})

    def label(self, line: Line) -> str:
        """The line's name, with the mark it has in the table of results where settings differ."""
        marks = settings_marks(self.found.lines)
        return f"{line.label} {marks[line.differs]}" if line.differs else line.label

    def alike(self) -> tuple[list[Line], list[Line]]:
        """Lines that differ by nothing but method and K, of several such groups that of most runs; and the others."""
        groups: dict[tuple[str, ...], list[Line]] = {}
        for line in self.lines:
            own = groups.setdefault(line.comparable, [])
            if all((line.arm, line.k) != (other.arm, other.k) for other in own):
                own.append(line)
        most = max(groups.values(), key=lambda lines: sum(len(line.seeds) for line in lines))
        return most, [line for line in self.lines if line not in most]

    def row(self, line: Line, seed: int | None = None) -> Mapping[str, Any]:
        """The row of one run of a line, of its first seed if none is named."""
        seed = line.seeds[0] if seed is None else seed
        own = [row for row in self.rows if (row.get("digest"), row.get("arm"), row.get("k")) == (line.digest, line.arm, line.k)]
        return [row for row in own if row.get("seed") == seed][-1]

    def results(self, line: Line, on: str) -> list[Mapping[str, Any]]:
        """What an evaluator found about the runs of a line, where it was asked."""
        rows = [self.row(line, seed) for seed in line.seeds]
        return [row["evaluations"][on] for row in rows if on in row.get("evaluations", {})]

    def evaluated(self) -> list[str]:
        """Every evaluation that some run has, by its key."""
        return list(dict.fromkeys(on for row in self.rows for on in row.get("evaluations", {})))

    def compared(self, measure: str) -> list[Compared]:
        """Every line against no mixing, and every K > 1 against K = 1 of the same method; p corrected over all of them."""
        field = self.recipe.reported(self.scale) if measure == "error" else measure
        found = []
        for line in self.lines:
            against = [("none", self.found.minus_none(line, field)), (f"{line.arm} K = 1", self.found.minus_one(line, field))]
            found += [Compared(self.label(line), other, measure, paired) for other, paired in against if paired is not None]
        corrected = holm([one.paired.p_t for one in found])
        return [one._replace(p_holm=p) for one, p in zip(found, corrected, strict=True)]


def studies(rows: Rows, recipes: Mapping[str, Recipe] = RECIPES) -> list[Study]:
    """One for every recipe and scale that has rows, in the order of the recipes; rows of unknown recipes are refused."""
    names = dict.fromkeys(row.get("recipe") for row in rows)
    for name in names:
        if name not in recipes:
            raise ValueError(f"the runs are of recipe {name!r}, which this version does not have; it has {', '.join(recipes)}")
    found = []
    for name in (name for name in recipes if name in names):
        for scale in SCALES:
            own = [row for row in rows if (row.get("recipe"), row.get("scale")) == (name, scale)]
            if own:
                found.append(Study(recipes[name], scale, own, aggregate(recipes[name], scale, own)))
    return found


def findings(study: Study) -> list[str]:
    """What the comparisons show and what not, in sentences that count before they name."""
    sentences = []
    for measure, word in MEASURES.items():
        compared = study.compared(measure)
        kinds = (("no mixing", [one for one in compared if one.other == "none"]),
                 ("K = 1 of the same method", [one for one in compared if one.other != "none"]))  # fmt: skip
        sentences += [_sentence(word, other, own) for other, own in kinds if own]
    if not sentences:
        sentences.append("Nothing can be compared: no two lines were trained with the same two seeds.")
    return [*sentences, *_of_confidence(study), *_of_cost(study), *_of_power(study)]


def _of_confidence(study: Study) -> list[str]:
    """Whether networks are too sure or not sure enough, which the calibration error does not say."""
    surplus = {}
    for line in study.lines:
        confidence, accuracy = (line.summary(f"calibration.{name}") for name in ("confidence", "accuracy"))
        if confidence is not None and accuracy is not None:
            surplus[study.label(line)] = confidence.mean - accuracy.mean
    if not surplus:
        return []
    below = sum(value < 0 for value in surplus.values())
    words = [f"Mean confidence minus accuracy is below 0 (not sure enough) in {below} of {counted(len(surplus), 'line')}"]
    lowest, highest = (choose(surplus, key=surplus.__getitem__) for choose in (min, max))
    ends = {BASELINE: "no mixing has"} | ({lowest: "the lowest is", highest: "the highest is"} if len(surplus) > 1 else {})
    words += [f"{end} {_signed(surplus[label])} ({label})" for label, end in ends.items() if label in surplus]
    return ["; ".join(words) + ", in points."]


def _of_cost(study: Study) -> list[str]:
    """How many times the CPU time of the smallest K the largest takes, where both made the same updates on one CPU."""
    alike = study.alike()[0]
    ratios: dict[tuple[int, int], list[float]] = {}
    for arm in dict.fromkeys(line.arm for line in alike if counts_k(line.arm)):
        own = sorted((line for line in alike if line.arm == arm), key=lambda line: line.k)
        few, many = own[0], own[-1]
        runs = [*few.runs.values(), *many.runs.values()]
        same = len({(run.machine, run.epochs[-1].updates) for run in runs}) == 1
        if few.k < many.k and same and runs[0].machine.startswith("cpu") and _cpu_seconds(few) > 0:
            ratios.setdefault((few.k, many.k), []).append(_cpu_seconds(many) / _cpu_seconds(few))
    return [
        f"Cost: for the same number of updates K = {many_k} took {_span(values)} times the CPU time of K = {few_k}."
        for (few_k, many_k), values in ratios.items()
    ]


def _of_power(study: Study) -> list[str]:
    """What these tests would show by chance, and what so few seeds cannot show whatever the data."""
    tests = [one.paired for measure in MEASURES for one in study.compared(measure)]
    if not tests:
        return []
    chance = f"about {len(tests) * LEVEL:.1f} would show at 5 % without correction even if nothing differed"
    sentence = f"{counted(len(tests), 'comparison')} in all: {chance}."
    seeds = max(test.n for test in tests)
    if 2 / 2**seeds > LEVEL:
        sentence += (
            f" With {seeds} seeds a test by ranks (Wilcoxon's) cannot give a p below {2 / 2**seeds:g}: what shows here rests on "
            "the t-test, which takes differences to be normally distributed."
        )
    return [sentence]


def _cpu_seconds(line: Line) -> float:
    return fmean(sum(epoch.cpu_seconds for epoch in run.epochs) for run in line.runs.values())


def _span(values: Sequence[float]) -> str:
    return f"{values[0]:.1f}" if len(values) == 1 else f"{min(values):.1f} to {max(values):.1f}"


def _signed(number: float) -> str:
    """Two places with a sign, and no minus before 0."""
    return f"{round(number, 2) + 0.0:+.2f}".replace("-", "−")


def _sentence(word: str, other: str, compared: Sequence[Compared]) -> str:
    lower = [one for one in compared if one.paired.mean + one.paired.half < 0]
    higher = [one for one in compared if one.paired.mean - one.paired.half > 0]
    open_ = len(compared) - len(lower) - len(higher)
    parts = [
        f"{counted(len(compared), 'comparison')} of {word} with {other}: lower in {len(lower)}{_named(lower)}, higher in "
        f"{len(higher)}{_named(higher)}, not told apart in {open_} (95 % intervals of the paired difference, in points)."
    ]
    if len(compared) > 1 and (lower or higher):
        sure = [one for one in [*lower, *higher] if one.p_holm < 0.05]
        verb = "has" if len(sure) < 2 else "have"
        parts.append(f"After Holm's correction for their number {len(sure) or 'none'} of them {verb} p < 0.05{_named(sure)}.")
    return " ".join(parts)


def _named(compared: Sequence[Compared]) -> str:
    words = [f"{one.line} {one.paired.mean:+.2f} ± {one.paired.half:.2f}, n = {one.paired.n}" for one in compared]
    return f" ({'; '.join(words)})".replace("-", "−") if words else ""
