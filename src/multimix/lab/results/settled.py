"""Does K > 1 help? Every method at its largest K against K = 1, and all together: different, equal within a margin, or open."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..recipes.base import counts_k
from ..statistics import Effect, Equivalence, Paired, effect_over_groups, equivalence, holm, paired_by_seed, paired_equivalence
from .comparison import comparable_lines
from .rows import Aggregate, Line
from .table import Cell, Table, signed

MARGIN = 0.5  # points of error that nobody would pay for
FEWEST = 3  # seeds
LEVEL = 0.05
SAME_ROWS = 0.02  # how much the rows that passed the network may differ between lines of equal compute


class Settled(NamedTuple):
    """``line`` minus ``other`` over common seeds; ``p`` is corrected by Holm over its family, ``same`` the equivalence test."""

    line: str
    other: str
    paired: Paired
    p: float
    same: Equivalence

    @property
    def verdict(self) -> str:
        """In words."""
        return _verdict(self.paired.mean, self.p, self.same)


class Overall(NamedTuple):
    """The effect of K over all methods, and its equivalence test."""

    k: int
    effect: Effect
    same: Equivalence

    @property
    def verdict(self) -> str:
        """In words."""
        return _verdict(self.effect.mean, self.effect.p, self.same)


def against_one(whole: Aggregate, field: str) -> list[Settled]:
    """Each method's largest K minus its K = 1, both with the settings of most runs."""
    return _family(((whole.label(line), f"K = {one.k}", line, one) for line, one in _pairs(whole)), field)


def at_equal_rows(whole: Aggregate, field: str) -> list[Settled]:
    """Each method's largest K minus other trainings with the same method that passed as many rows through the network."""
    return _family(_equal_rows(whole), field)


def overall(whole: Aggregate, field: str) -> Overall | None:
    """K against K = 1 over all methods, if there are two or more with the same K and seeds in common."""
    pairs = _pairs(whole)
    if len(pairs) < 2 or len({line.k for line, _ in pairs}) > 1:
        return None
    values = {line.arm: (line.values(field), one.values(field)) for line, one in pairs}
    seeds = set.intersection(*(set(own) & set(other) for own, other in values.values()))
    if len(seeds) < FEWEST:
        return None
    effect = effect_over_groups({arm: {s: (own[s], other[s]) for s in seeds} for arm, (own, other) in values.items()})
    return Overall(pairs[0][0].k, effect, equivalence(effect.mean, effect.error, effect.freedom, MARGIN))


def settled_table(whole: Aggregate, field: str) -> Table | None:
    """Both families and the effect over all methods, with intervals, p-values and verdicts; None if nothing can be compared."""
    first, second, together = against_one(whole, field), at_equal_rows(whole, field), overall(whole, field)
    if not first:
        return None
    lines: list[list[Cell]] = [_cells(one) for one in first]
    if together is not None:
        effect = together.effect
        mean = signed(effect.mean), f"± {effect.half:.2f}"
        lines.append(
            [f"all methods, K = {together.k} − K = 1", str(effect.n), mean, _p(effect.p), *_same(together.same), together.verdict]
        )
    lines += [_cells(one) for one in second]
    notes = [
        "paired over common seeds, in points of error: below 0 the first is better; p of the paired t-test, corrected by Holm in "
        f"the family; equal: within ±{MARGIN:g} points by two one-sided tests at 5 %, that is, the 90 % interval lies inside",
    ]
    if together is not None:
        notes.append("all methods: a linear model of method and K with the seed as a random effect; n counts pairs")
    if second:
        notes.append("as many rows: trained until as many samples and mixtures had passed the network; a family of its own")
    heads = ["comparison", "n", "points ± 95 %", "p (Holm)", "90 % interval", "p (not equal)", "verdict"]
    return Table("Does K > 1 help?", heads, lines, notes)


def headline(whole: Aggregate, field: str) -> str | None:
    """The answer in one sentence, if all methods can be judged together."""
    together = overall(whole, field)
    if together is None:
        return None
    effect, methods = together.effect, len(_pairs(whole))
    return (
        f"K = {together.k} against K = 1 over {methods} methods: {signed(effect.mean)} ± {effect.half:.2f} points of error "
        f"(n = {effect.n} pairs): {together.verdict}."
    )


def _pairs(whole: Aggregate) -> list[tuple[Line, Line]]:
    """Every method's line with the largest K, and that with K = 1."""
    lines = comparable_lines(whole) if whole.trained else []
    found = []
    for arm in dict.fromkeys(line.arm for line in lines if counts_k(line.arm)):
        own = {line.k: line for line in lines if line.arm == arm}
        if 1 in own and len(own) > 1 and len(set(own[1].seeds) & set(own[max(own)].seeds)) >= FEWEST:
            found.append((own[max(own)], own[1]))
    return found


def _equal_rows(whole: Aggregate) -> Iterator[tuple[str, str, Line, Line]]:
    for line, _ in _pairs(whole):
        rows, method = line.spent("samples") or math.nan, _method(line)
        for other in whole.trained:
            close = abs((other.spent("samples") or math.nan) / rows - 1) < SAME_ROWS
            if other is not line and close and _method(other) == method:
                yield whole.label(line), f"{whole.label(other)}, as many rows", line, other


def _method(line: Line) -> str:
    run = next(iter(line.runs.values()))
    return str(run.row["settings"]["method"])


def _family(pairs: Iterable[tuple[str, str, Line, Line]], field: str) -> list[Settled]:
    found = []
    for name, other, line, one in pairs:
        values = line.values(field), one.values(field)
        test = paired_by_seed(*values)
        if test is not None and test.n >= FEWEST:
            found.append((name, other, test))
    corrected = holm([test.p_t for _, _, test in found])
    return [Settled(*one, p, paired_equivalence(one[-1], MARGIN)) for one, p in zip(found, corrected, strict=True)]


def _verdict(mean: float, p: float, same: Equivalence) -> str:
    differs, equal = p < LEVEL, same.p < LEVEL
    if differs:
        return f"{'better' if mean < 0 else 'worse'}{f', by less than {same.margin:g}' if equal else ''}"
    return f"equal within ±{same.margin:g}" if equal else "not settled"


def _cells(one: Settled) -> list[Cell]:
    found = one.paired
    mean = signed(found.mean), f"± {found.half:.2f}"
    return [f"{one.line} − {one.other}", str(found.n), mean, _p(one.p), *_same(one.same), one.verdict]


def _same(same: Equivalence) -> list[str]:
    return [f"{signed(same.low)} … {signed(same.high)}", _p(same.p)]


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
