"""The tables of a sweep: a sheet for every budget that was made equal, and two for budgets after the fact; CSV of all."""

from collections.abc import Sequence

from ..recipes.arms import counts_k
from ..statistics import Paired, paired_by_seed, summary
from ..sweep.plan import Equal
from .rows import BASELINE, SCALE_WORDS
from .sweep_comparison import Compared, Comparison, Cut, Spent, beside, cut, rows_of, seconds_of
from .table import NOTHING, Cell, Table, csv_difference, csv_mean, difference_cell, mean_cell, number, short

MEANING: dict[Equal, str] = {
    "steps": "equal steps: the recipe's own schedule, as many epochs for all; budget is in updates",
    "samples": "equal samples: as many rows through the network as K = 1 has, in whole epochs; budget is in rows",
    "compute": "equal compute: epochs divided by the measured cost of an update; budget is in seconds",
}
HEADS = ["method", "K", "n", "epochs", "updates", "rows"]


def sheets(found: Comparison, changed: str = "") -> list[Table]:
    """The tables; ``changed`` says in words which fields were changed for all of them."""
    made = [_equal(found, equal, lines, changed) for equal, lines in found.tables.items()]
    lines = found.lines
    if len(lines) > 1:
        for spent, what in ((rows_of, "rows"), (seconds_of, found.timed)):
            reached = cut(lines, spent)
            if reached is not None and reached.budget > 0:
                made.append(_after(found, reached, what, spent, changed))
    return made


def records(found: Comparison) -> list[dict[str, object]]:
    """Lines of a CSV file: every number in full, None where there is none."""
    return [_record(found, equal, one) for equal, lines in found.tables.items() for one in lines]


def _equal(found: Comparison, equal: Equal, lines: Sequence[Compared], changed: str) -> Table:
    heads = [*HEADS, found.timed, "budget", f"{found.field} error", "vs K = 1", "vs none"]
    notes = [
        MEANING[equal],
        f"budget: what was spent, as a multiple of {_reference(lines)}{_rounding(lines, equal)}; rows: samples and mixtures that "
        "passed the network, without the pass for saliency; n: seeds",
        "errors in per cent; ±: 95 % t-interval over seeds, one has none; differences paired over common seeds, p of the t-test"
        + _many([one.with_one for one in lines] + [one.with_none for one in lines]),
        *found.notes,
    ]
    return Table(_title(found, f"equal {equal}", changed), heads, [_cells(one) for one in lines], notes)


def _cells(one: Compared) -> list[Cell]:
    line = one.line
    plain = [
        line.arm,
        str(line.k) if counts_k(line.arm) else NOTHING,
        str(len(line.seeds)) if line.seeds else "not run",
        _number(one.epochs),
        short(one.updates),
        short(one.rows),
        _number(one.seconds),
        NOTHING if one.budget is None else f"{one.budget:.2f}",
    ]
    tests = [difference_cell(one.with_one), difference_cell(one.with_none)]
    return [*((cell, "") for cell in plain), mean_cell(one.error), *tests]


def _after(found: Comparison, reached: Cut, what: str, spent: Spent, changed: str) -> Table:
    """Where all lines were when the first had no more to spend."""
    errors = {(one.line.arm, one.line.k, one.line.digest): one.errors for one in reached.lines}
    others = [one.line for one in reached.lines]
    body: list[list[Cell]] = []
    tests: list[Paired | None] = []
    for one in reached.lines:
        line = one.line
        pair = [
            None if base is None else paired_by_seed(one.errors, errors[base.arm, base.k, base.digest])
            for base in beside(line, others)
        ]
        tests += pair
        k = str(line.k) if counts_k(line.arm) else NOTHING
        plain = [
            line.arm,
            k,
            str(len(one.errors)),
            _number(one.epoch),
            short(one.spent) if spent is rows_of else _number(one.spent),
        ]
        body.append(
            [*((cell, "") for cell in plain), mean_cell(summary(list(one.errors.values()))), *(difference_cell(p) for p in pair)]
        )
    budget = short(reached.budget) if spent is rows_of else _number(reached.budget)
    notes = [
        f"after the fact: the error at the last evaluated epoch within {budget} {what}, the most that all runs have spent",
        "most schedules are cut short here: their learning rate had not fallen yet, so this is not what a whole training with "
        "this budget would reach",
        "errors in per cent, ±: 95 % t-interval over seeds; differences paired over common seeds" + _many(tests),
        *_not_reached(found, reached),
    ]
    heads = ["method", "K", "n", "epoch", what, "error", "vs K = 1", "vs none"]
    return Table(_title(found, f"at {budget} {what}", changed), heads, body, notes)


def _not_reached(found: Comparison, reached: Cut) -> list[str]:
    there = {(one.line.arm, one.line.k, one.line.digest) for one in reached.lines}
    missing = [line.label for line in found.lines if (line.arm, line.k, line.digest) not in there]
    return [f"left out, since its first evaluated epoch costs more: {', '.join(missing)}"] if missing else []


def _title(found: Comparison, words: str, changed: str) -> str:
    return f"{found.recipe.title}, {words} ({SCALE_WORDS[found.scale]}{'; ' + changed if changed else ''})"


def _reference(lines: Sequence[Compared]) -> str:
    return "no mixing" if any(one.line.arm == BASELINE for one in lines) else "the method's own K = 1"


def _rounding(lines: Sequence[Compared], equal: Equal) -> str:
    budgets = [one.budget for one in lines if one.budget is not None]
    if not budgets or (max(budgets) < 1.005 and min(budgets) > 0.995):
        return ""
    why = {
        "steps": "",
        "samples": ", since epochs are whole",
        "compute": ", since epochs are whole and costs were measured ahead",
    }
    return f" (here {min(budgets):.2f} to {max(budgets):.2f}{why[equal]})"


def _many(tests: Sequence[Paired | None]) -> str:
    count = sum(test is not None for test in tests)
    return f"; {count} comparisons, p is not corrected for their number" if count > 1 else ""


def _number(value: float | None) -> str:
    return NOTHING if value is None else number(value, None)


def _record(found: Comparison, equal: Equal, one: Compared) -> dict[str, object]:
    line = one.line
    record: dict[str, object] = {"recipe": found.recipe.name, "scale": found.scale, "equal": equal, "arm": line.arm, "k": line.k}
    record |= {"digest": line.digest, "n": len(line.seeds), "seeds": " ".join(map(str, line.seeds))}
    record |= {name: getattr(one, name) for name in ("epochs", "updates", "rows", "seconds", "budget")}
    record |= {"timed": found.timed, "metric": found.field, **csv_mean("error", one.error)}
    return record | csv_difference("minus_one", one.with_one) | csv_difference("minus_none", one.with_none)
