"""What the runs show and what they do not: numbers, comparisons and plain sentences, all computed from the result."""

import math
from typing import NamedTuple

from ...recipes.spiral import ARMS, COLLAPSED, K1, K5, NONE, SpiralArm, SpiralSettings
from ...results.table import signed
from ...statistics import Paired, Summary, paired, summary
from .runs import SpiralResult

# Fixed before these runs were made, from an earlier study with another trainer; for 20 seeds or more at the full settings.
MIN_SEEDS, MIN_GAIN, MIN_WINS, MAX_LOSS, MAX_COLLAPSED = 20, 3.0, 0.75, 1.5, 0.05


class SpiralComparison(NamedTuple):
    """``first − second`` over the same seeds, in points of accuracy; ``paper`` is the difference of the paper's single runs."""

    first: SpiralArm
    second: SpiralArm
    paired: Paired
    differences: tuple[float, ...]

    @property
    def paper(self) -> float:
        return round(self.first.paper - self.second.paper, 2)

    @property
    def clear(self) -> bool:
        """Whether the 95 % interval leaves out 0."""
        return self.paired.n > 1 and abs(self.paired.mean) > self.paired.half


def summaries(result: SpiralResult) -> dict[str, Summary]:
    """Mean with interval, median and spread of every arm's accuracies."""
    return {arm.name: summary(result.accuracies(arm)) for arm in ARMS}


def collapsed(result: SpiralResult, arm: SpiralArm) -> int:
    """How many runs of an arm ended below the threshold."""
    return sum(accuracy < COLLAPSED for accuracy in result.accuracies(arm))


def comparisons(result: SpiralResult) -> tuple[SpiralComparison, ...]:
    """K = 1 against none, K = 5 against none, K = 5 against K = 1."""
    return tuple(_compare(result, first, second) for first, second in ((K1, NONE), (K5, NONE), (K5, K1)))


def headline(result: SpiralResult) -> str:
    """How many labels the three get right, and which of the differences show."""
    means = ", ".join(
        f"{arm.words.replace(', ', ' (')}{')' if ',' in arm.words else ''} {mean.mean:.1f} %"
        for arm, mean in zip(ARMS, summaries(result).values(), strict=True)
    )
    first, second, last = comparisons(result)
    seeds = len(result.seeds)
    if seeds == 1:
        return f"Right on clean test labels: {means}; one seed compares nothing."
    gains = [one.clear and one.paired.mean > 0 for one in (first, second)]
    gain = ("No gain of mixing shows", "A gain shows for one K", "Mixing shows a gain for both K")[sum(gains)]
    more = (
        "K = 5 is above K = 1"
        if last.clear and last.paired.mean > 0
        else "K = 5 is below K = 1"
        if last.clear
        else ("between K = 1 and K = 5 no difference shows")
    )
    return f"Right on clean test labels: {means} (means of {seeds} seeds). {gain}; {more}."


def findings(result: SpiralResult) -> list[str]:
    """What the data do and do not show, in words."""
    compared = comparisons(result)
    sentences = [*(_sentence(comparison) for comparison in compared), _paper_sentence(compared[-1])]
    failed = {arm.words: collapsed(result, arm) for arm in ARMS if collapsed(result, arm)}
    if failed:
        counts = "; ".join(f"{words}: {count} of {len(result.seeds)}" for words, count in failed.items())
        sentences.append(
            f"Some runs collapsed, that is, ended below {COLLAPSED:.0f} % ({counts}). One such run moves a mean by a point or "
            "more, so read the medians beside the means."
        )
    if result.settings.epochs < SpiralSettings().epochs:
        sentences.insert(
            0,
            f"This was a short run ({result.settings.epochs:,} of {SpiralSettings().epochs:,} epochs, {len(result.seeds)} "
            f"seed{'s' if len(result.seeds) > 1 else ''}): it shows that everything works, not how the methods compare.",
        )
    return sentences


def expectations(result: SpiralResult) -> list[tuple[str, str, bool]]:
    """What was expected beforehand, what was measured, and whether it was met; empty unless this is a full study."""
    if result.settings != SpiralSettings() or len(result.seeds) < MIN_SEEDS:
        return []
    rows = []
    for one in comparisons(result)[:2]:
        met = one.paired.mean > MIN_GAIN and one.paired.mean > one.paired.half and one.paired.wins >= MIN_WINS * one.paired.n
        words = f"{one.first.short} − {one.second.short} above {MIN_GAIN:.0f} points, interval above 0, 3 of 4 seeds"
        rows.append((words, f"{points(one.paired)}, {one.paired.wins} of {one.paired.n}", met))
    last = comparisons(result)[-1].paired
    rows.append((f"{K5.short} at most {MAX_LOSS} points below {K1.short}", points(last), last.mean >= -MAX_LOSS))
    for arm in ARMS:
        allowed = int(MAX_COLLAPSED * len(result.seeds)) if arm is NONE else 0
        count = collapsed(result, arm)
        words = f"{arm.short}: at most {allowed} collapsed" if allowed else f"{arm.short}: none collapsed"
        rows.append((words, str(count), count <= allowed))
    return rows


def points(difference: Paired) -> str:
    """``+7.95 ± 2.38``; without an interval if there is one seed only."""
    return signed(difference.mean) + ("" if math.isnan(difference.half) else f" ± {difference.half:.2f}")


def p_value(p: float) -> str:
    """Two digits; powers of ten once it gets small."""
    return f"{p:.2f}" if p >= 0.095 else f"{p:.2g}" if p >= 1e-3 else f"{p:.0e}".replace("e-0", "e-").replace("-", "−")


def _compare(result: SpiralResult, first: SpiralArm, second: SpiralArm) -> SpiralComparison:
    # Compared as whole numbers of right answers: percentages that should tie differ in their last bits.
    ours, theirs = ([run.right for run in result.runs[arm.name]] for arm in (first, second))
    per_answer = 100 / result.runs[first.name][0].tested
    found = paired(ours, theirs)
    differences = tuple((a - b) * per_answer for a, b in zip(ours, theirs, strict=True))
    return SpiralComparison(
        first, second, found._replace(mean=found.mean * per_answer, half=found.half * per_answer), differences
    )


def _sentence(comparison: SpiralComparison) -> str:
    first, second, found, differences = comparison
    if found.n == 1:
        return f"One seed cannot compare {first.words} with {second.words}; they differ by {signed(found.mean)} points here."
    ties = sum(difference == 0 for difference in differences)
    counted = f"higher in {found.wins} of {found.n} seeds" + (f", equal in {ties}" if ties else "")
    tests = f"{counted}; paired t-test p = {p_value(found.p_t)}, Wilcoxon p = {p_value(found.p_wilcoxon)}"
    if not comparison.clear:
        low, high = signed(found.mean - found.half), signed(found.mean + found.half)
        text = (
            f"Between {first.words} and {second.words} these data show no difference: {points(found)} points, and the 95 % "
            f"interval contains 0 ({tests}). That is no proof of equality: anything from {low} to {high} points fits the data."
        )
    else:
        better = "better" if found.mean > 0 else "worse"
        text = (
            f"{first.words[0].upper()}{first.words[1:]} is {better} than {second.words}: {points(found)} points, and the 95 % "
            f"interval leaves out 0 ({tests})."
        )
    # With fewer than six pairs Wilcoxon's p cannot fall below 0.05, whatever the data.
    if found.n > 5 and comparison.clear != (found.p_wilcoxon < 0.05):
        text += " The two tests do not agree at the 5 % level, so this rests on a few seeds: read it with care."
    return text


def _paper_sentence(comparison: SpiralComparison) -> str:
    found, paper = comparison.paired, comparison.paper
    reach = sum(difference >= paper - 1e-9 for difference in comparison.differences)
    if found.n == 1:
        place = "one seed of ours cannot be set against it"
    else:
        inside = abs(found.mean - paper) <= found.half
        place = f"that lies {'inside' if inside else 'outside'} our interval for the mean difference, and {reach} of {found.n} "
        place += "seeds differ by as much or more"
    return (
        f"The paper's single runs have K = 5 ahead of K = 1 by {signed(paper)} points; {place}. Its generator and several of its "
        "settings are not published, so its run is neither confirmed nor refuted here."
    )
