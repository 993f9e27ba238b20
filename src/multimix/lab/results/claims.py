"""Whether the runs show what the paper claims, by one rule for all claims."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from ..statistics import Paired, paired
from .paper import Claim
from .table import Cell, Table, difference_cell

Verdict = Literal["seen", "not seen", "opposite", "too few runs", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
RULE = (
    "rule: the difference is taken seed by seed over the seeds that both have; its 95 % t-interval on the claimed side of 0 is "
    "seen, on the other side opposite, around 0 not seen; fewer than two common seeds, or no spread to judge by, are too few runs"
)


class Judged(NamedTuple):
    """A claim with its verdict, and the difference that decided it, in the unit of its column."""

    claim: Claim
    verdict: Verdict
    test: Paired | None = None


def judge(claim: Claim, first: Mapping[int, float], second: Mapping[int, float] | float, *, lower: bool) -> Judged:
    """The verdict on ``first`` being better than ``second``, values by seed; ``second`` may be one number for all seeds."""
    other = second if isinstance(second, Mapping) else dict.fromkeys(first, second)
    if not first or not other:
        return Judged(claim, "not run")
    common = sorted(set(first) & set(other))
    if len(common) < 2:
        return Judged(claim, "too few runs")
    test = paired([first[seed] for seed in common], [other[seed] for seed in common])
    if math.isnan(test.half):
        return Judged(claim, "too few runs", test)
    if abs(test.mean) <= test.half:
        return Judged(claim, "not seen", test)
    return Judged(claim, "seen" if (test.mean < 0) == lower else "opposite", test)


def verdict_table(judged: list[Judged], title: str, places: int | None = 2) -> Table:
    """Every claim with its verdict and the difference behind it."""
    columns: list[tuple[str, list[Cell]]] = [
        ("the paper's claim", [one.claim.words for one in judged]),
        ("verdict", [one.verdict for one in judged]),
        ("difference (95 %)", [difference_cell(one.test, places) for one in judged]),
        ("n", [str(one.test.n) if one.test else "–" for one in judged]),
    ]
    return Table.of_columns(title, columns)
