"""The page of a comparison: the answer, then the evidence."""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from ....methods import Method
from ...evaluation.cache import unequal_evaluations
from ...terminal import counted
from ..answer import COLUMN, Answer, group_name, usage_code
from ..comparison import comparisons
from ..figures import Dot, dots
from ..frame import BASELINE, ECE, RunGroup, Study
from ..page import Beside, Block, Code, Finding, Picture, Section, render_page
from ..study_figures import reliability
from ..study_tables import class_errors, evaluation_table
from ..style import save, svg
from ..tables import INTERVAL_NOTE, Column, Table, p_value, signed
from .recipe import environment_facts, sample_grids, setting_blocks

SHOWN_CLASSES = 5  # at either end


def compare_page(
    study: Study,
    answer: Answer,
    *,
    name: str,
    lead: str,
    notes: Sequence[str],
    method: Method | None,
    budget: Sequence[Block],
    data: Sequence[Block],
    command: str,
) -> tuple[str, dict[str, bytes]]:
    """Return the HTML page and its figures by file name.

    Args:
        study: The finished runs.
        answer: The answer.
        name: Name of the folder.
        lead: A sentence on data and runs.
        notes: Sentences on runs and evaluations that failed.
        method: The recommended method; None for no mixing or a batch strategy.
        budget: Blocks on the division of the budget.
        data: Blocks on the content of the folder.
        command: The command that recreates the page.
    """
    samples, advice = list(sample_grids(study)), answer.advice
    forest, diagram = difference_dots(study), reliability(study)
    figures = {"differences": forest, "reliability": diagram}
    files = {key: content for stem, chart in figures.items() if chart for key, content in save(stem, chart).items()}
    alt = "Error minus that of no mixing, with 95 % intervals over seeds (two seeds: their range); below 0 is better."
    figure = Picture(files["differences.svg"], alt, alt) if forest else None
    calibration = Picture(svg(diagram), "Accuracy against confidence, a panel per training") if diagram else None
    blocks: list[Block | None] = [
        *map(Finding, answer.sentences),
        *notes,
        *unequal_evaluations(study.rows),
        Section("Use it", [_usage(answer), Code(usage_code(method, advice.arm, advice.k))], unfolded=True),
        Section("Results", [answer_table(study)], unfolded=True),
        Section("Your samples, mixed", [Beside(samples)], unfolded=True),
        Section("Classes", _classes(study, answer.mixing)),
        Section("Calibration", [evaluation_table(study, "calibration"), calibration] if calibration else []),
        Section("Budget", budget),
        Section("Your folder", data),
        Section("Settings", setting_blocks(study)),
        Section(
            "How it was made", [environment_facts(study), "The same command resumes and recreates this page:", Code(command)]
        ),
    ]
    page = render_page(f"Which mixing is best for {name}?", lead, blocks, headline=answer.headline, figure=figure)
    return page, files | {f"samples-{i}.svg": picture.content for i, picture in enumerate(samples, start=1)}


def answer_table(study: Study) -> Table:
    """Return one row per training, the lowest error first: error, difference, calibration, cost.

    Args:
        study: The finished runs.
    """
    tests_by_label = {test.group: test for test in comparisons(study, COLUMN) if test.other == BASELINE}
    groups = sorted(study.trained, key=lambda group: group.mean(COLUMN) or 0.0)
    tests = [tests_by_label.get(study.label(group)) for group in groups]
    baseline = study.baseline()
    base = baseline and baseline.mean("compute")
    costs = [spent / base if base and (spent := group.mean("compute")) else None for group in groups]
    columns = [
        Column("training", [group_name(group) for group in groups], "training"),
        Column("seeds", [len(group.seeds) for group in groups], "seeds"),
        Column("error %", [group.summary(COLUMN) for group in groups], "error"),
        Column("minus no mixing", [test and test.paired for test in tests], "minus_none"),
        Column("p (Holm)", [test and test.p_holm for test in tests], "p_holm", show=p_value),
        Column("ECE %", [group.summary(ECE) for group in groups], "ece"),
        Column(f"cost ({study.timed}, no mixing = 1)", costs, "cost", places=1),
    ]
    notes = [
        f"error of the last epoch on the test set; {INTERVAL_NOTE}; seeds start alike for all",
        "minus no mixing: paired over seeds, in points, below 0 is better; p (Holm) is corrected for all comparisons",
    ]
    return Table("comparison", columns, notes)


def difference_dots(study: Study) -> Figure | None:
    """Draw differences from no mixing with their intervals, or return None without any.

    Args:
        study: The finished runs.
    """
    tests = sorted((test for test in comparisons(study, COLUMN) if test.other == BASELINE), key=lambda test: test.paired.mean)
    if not tests:
        return None
    rows = {}
    for test in tests:
        significant = test.paired.significant and test.paired.half > 0
        series = ("better" if test.paired.mean < 0 else "worse") if significant else ""
        rows[test.group] = [Dot(test.paired, series)]
    return dots(rows, "error minus that of no mixing, in points", zero=True)


def class_changes(study: Study, mixing: RunGroup) -> list[tuple[str, float, float, int]]:
    """Return class, error without mixing, error with it, and test samples, largest gain first.

    Args:
        study: The finished runs.
        mixing: The group to compare with no mixing.
    """
    baseline = study.baseline()
    if baseline is None or mixing is baseline:
        return []
    results = [[row["result"] for row in group.evaluated("error")] for group in (baseline, mixing)]
    if not all(results):
        return []
    before, after = map(class_errors, results)
    changes = [
        (name, error, mixed, count)
        for name, (error, count) in before.items()
        if error is not None and (mixed := after[name][0]) is not None
    ]
    return sorted(changes, key=lambda change: change[2] - change[1])


def _usage(answer: Answer) -> str:
    name, advice = group_name(answer.advice), answer.advice
    if advice.arm == BASELINE:
        return "No method was better than no mixing, so there is nothing to add to your loop:"
    if not answer.better:
        return f"No difference is significant; use a larger budget or more seeds. To use {name}:"
    if advice is not answer.best:
        return f"{name} does not differ significantly from {group_name(answer.best)} and costs less. In your own loop:"
    return f"{name} in your own loop:"


def _classes(study: Study, mixing: RunGroup) -> Iterator[Block]:
    changes = class_changes(study, mixing)
    if not changes:
        return
    heads = ["class", "samples", "no mixing %", f"{group_name(mixing)} %", "change"]
    rows = [[name, count, f"{before:.1f}", f"{after:.1f}", signed(after - before)] for name, before, after, count in changes]
    lower, higher = (sum(sign * (after - before) > 0 for _, before, after, _ in changes) for sign in (-1, 1))
    class_count = counted(len(changes), "class", "es")
    yield f"With {group_name(mixing)} the error of {lower} of {class_count} is lower, of {higher} higher."
    note = "error in per cent, all seeds together; with few samples per class most changes are chance"
    if len(rows) <= 2 * SHOWN_CLASSES + 2:
        yield Table.of_rows("classes", heads, rows, [note])
        return
    extremes = [*rows[:SHOWN_CLASSES], *rows[-SHOWN_CLASSES:]]
    yield Table.of_rows("classes", heads, extremes, [note, f"the {SHOWN_CLASSES} that gain and lose most"])
    yield Section(f"All {len(rows)} classes", [Table.of_rows("classes", heads, rows)])
