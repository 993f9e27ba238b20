"""The page of a comparison: the answer first, then what it rests on."""

import shlex
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from ..recipes.base import counts_k
from ..results import report_tables as tables
from ..results.comparison import compare
from ..results.figures.style import BLUE, GREY, VERMILION, panels, save
from ..results.page import beside, document, drawing, notes, paragraph, preformatted, section
from ..results.report import calibration_parts, reliability, sample_pictures
from ..results.rows import BASELINE, ECE, Aggregate, Line
from ..results.table import NOTHING, SPREAD, Cell, Table, counted, difference_cell, mean_cell, short, signed
from ..terminal import duration
from .answer import FIELD, code, words
from .plan import Comparison, plan_words

MOST_CLASSES = 5  # that are named on either side


def compare_page(found: Comparison) -> tuple[str, dict[str, bytes]]:
    """The page, and its figures as files by name."""
    whole, said = found.whole, found.answer
    samples = sample_pictures(whole, found.setup.folder, [found.setup.network])
    diagrams, forest = reliability(whole), _forest(whole)
    use = code(_method(found, said.advice), said.advice.arm, said.advice.k)
    parts = [
        *(paragraph(sentence, finding=True) for sentence in said.sentences),
        *(paragraph(sentence) for sentence in found.notes),
        section("Use it", paragraph(_use(found)), preformatted(use), unfolded=True),
        section("How they compare", *results_table(whole).html(), unfolded=True),
        section(
            "Your samples, mixed", beside(*(drawing(content, caption, caption) for caption, content in samples)), unfolded=True
        ),
        section("Classes that gain and lose", *_classes(whole, said.mixing)),
        *calibration_parts(whole, diagrams),
        section("Cost, and how the budget was divided", *_budget(found)),
        section("Your folder", *_folder(found), unfolded=bool(found.splits.notes)),
        section("Settings", *tables.settings(whole)),
        section(
            "How it was made",
            tables.environments(whole),
            paragraph("The same command goes on where it was stopped, and makes this page again:"),
            preformatted(_command(found)),
        ),
    ]
    title = f"Which mixing is best for {found.setup.folder.resolve().name}?"
    alt = "Error of every method minus that of no mixing, with 95 % intervals over seeds; below 0 is better."
    figure = drawing(forest["differences.svg"], alt, alt) if forest else ""
    pictures = {f"samples-{i}.svg": content for i, (_, content) in enumerate(samples, start=1)}
    page = document(title, _lead(found), parts, headline=said.headline, figure=figure)
    return page, {**forest, **diagrams, **pictures}


def _lead(found: Comparison) -> str:
    train, test = (len(found.splits[part]) for part in ("train", "test"))
    runs = counted(sum(len(line.seeds) for line in found.whole.trained), "run")
    return (
        f"{train:,} {found.setup.kind} of {len(found.splits['train'].classes)} classes to learn from, {test:,} to be tested on; "
        f"{runs} of {found.plan.division.epochs} epochs."
    )


def results_table(whole: Aggregate) -> Table:
    """A line for every method and K, the least error first: error, difference from no mixing, calibration, cost."""
    tests = {one.line: one for one in compare(whole, FIELD) if one.other == BASELINE}
    lines = sorted(whole.trained, key=lambda line: fmean(line.values(FIELD).values()))
    none = next((line for line in lines if line.arm == BASELINE), None)
    body: list[list[Cell]] = []
    for line in lines:
        test = tests.get(whole.label(line))
        p = NOTHING if test is None else "< 0.001" if test.p_holm < 0.001 else f"{test.p_holm:.3f}"
        spent, base = line.spent("compute"), None if none is None else none.spent("compute")
        times = f"{spent / base:.1f}" if spent and base else NOTHING
        cells = [mean_cell(line.summary(FIELD)), difference_cell(test and test.paired), p, mean_cell(line.summary(ECE)), times]
        body.append([words(line), str(len(line.seeds)), *cells])
    heads = ["training", "seeds", "error %", "minus no mixing", "p (Holm)", "ECE %", f"cost ({whole.timed}, no mixing = 1)"]
    said = [
        f"error of the last epoch on what is tested on; {SPREAD}; seeds start alike for all",
        "minus no mixing: paired over seeds, in points, below 0 is better; p (Holm) is corrected for all comparisons made",
    ]
    return Table("comparison", heads, body, said)


def class_changes(whole: Aggregate, mixing: Line) -> list[tuple[str, float, float, int]]:
    """Class, error without mixing, error with ``mixing``, tested samples; all seeds together, the most improved first."""
    none = next((line for line in whole.trained if line.arm == BASELINE), None)
    if none is None or mixing is none:
        return []
    sides = [[row["result"] for row in line.evaluated("error")] for line in (none, mixing)]
    if not all(sides):
        return []
    changes = []
    for label, name in enumerate(sides[0][0]["classes"]):
        shares = [_share(results, label) for results in sides]
        if shares[0] is not None and shares[1] is not None:
            changes.append((name, shares[0], shares[1], int(sides[0][0]["per_class"][label]["n"])))
    return sorted(changes, key=lambda change: change[2] - change[1])


def _share(results: Sequence[Mapping[str, Any]], label: int) -> float | None:
    number = sum(result["per_class"][label]["n"] for result in results)
    return 100 * sum(result["per_class"][label]["wrong"] for result in results) / number if number else None


def _classes(whole: Aggregate, mixing: Line) -> list[str]:
    changes = class_changes(whole, mixing)
    if not changes:
        return []
    heads = ["class", "samples", "no mixing %", f"{words(mixing)} %", "change"]
    body = [[name, str(n), f"{before:.1f}", f"{after:.1f}", signed(after - before)] for name, before, after, n in changes]
    better, worse = ([one for one in changes if sign * (one[2] - one[1]) > 0] for sign in (-1, 1))
    every = counted(len(changes), "class", "es")
    sentence = f"With {words(mixing)} the error of {len(better)} of {every} is lower, of {len(worse)} higher."
    note = "error in per cent, all seeds together; with few samples of a class most changes are chance"
    parts = [paragraph(sentence)]
    if len(body) <= 2 * MOST_CLASSES + 2:
        return [*parts, *Table("classes", heads, body, [note]).html()]
    ends = [*body[:MOST_CLASSES], *body[-MOST_CLASSES:]]
    parts += Table("classes", heads, ends, [note, f"the {MOST_CLASSES} that gain and lose most"]).html()
    return [*parts, section(f"All {len(body)} classes", *Table("classes", heads, body).html())]


def _forest(whole: Aggregate) -> dict[str, bytes]:
    """Differences from no mixing with their intervals, one below the other; nothing where there are none."""
    tests = [one for one in compare(whole, FIELD) if one.other == BASELINE]
    if not tests:
        return {}
    tests.sort(key=lambda one: -one.paired.mean)
    figure, [[axes]] = panels((5.4, 1.1 + 0.36 * len(tests)))
    axes.axvline(0, color=GREY, lw=1)
    for place, one in enumerate(tests):
        mean, half = one.paired.mean, one.paired.half if one.paired.half == one.paired.half else 0.0
        colour = GREY if abs(mean) <= half or half == 0 else BLUE if mean < 0 else VERMILION
        axes.errorbar(mean, place, xerr=half, fmt="o", color=colour, capsize=3, ms=5)
    axes.set_yticks(range(len(tests)), [one.line for one in tests])
    axes.set_ylim(-0.6, len(tests) - 0.4)
    axes.set_xlabel("error minus that of no mixing, in points")
    return save("differences", figure)


def _use(found: Comparison) -> str:
    said = found.answer
    if said.advice.arm == BASELINE:
        return "No method was better than no mixing, so there is nothing to add to your loop:"
    if not said.better:
        return f"Nothing is sure yet; a larger budget or more seeds would tell more. To go on with {words(said.advice)}:"
    if said.advice is not said.best:
        return f"{words(said.advice)} is not told apart from {words(said.best)} and costs less. In your own loop:"
    return f"{words(said.advice)} in your own loop:"


def _method(found: Comparison, line: Line) -> Any:
    return next((one.run.settings.method for one in found.planned if (one.run.arm, one.run.k) == (line.arm, line.k)), None)


def _budget(found: Comparison) -> list[str]:
    plan, asked, whole = found.plan, found.asked, found.whole
    body: list[list[Cell]] = []
    for (arm, k), seconds in plan.updates.items():
        line = next((one for one in whole.trained if (one.arm, one.k) == (arm, k)), None)
        updates = None if line is None else line.spent("steps")
        took = None if line is None else line.mean(lambda run: sum(epoch.seconds for epoch in run.epochs))
        name = "no mixing" if arm == BASELINE else f"{arm} K = {k}" if counts_k(arm) else arm
        runs = 0 if line is None else len(line.seeds)
        body.append([name, f"{1000 * seconds:.1f}", short(updates), str(runs), NOTHING if took is None else duration(took)])
    sentence = (
        f"{plan_words(found.setup, asked, plan)}. This time the command took {duration(found.took)}. Every run gets as many "
        "updates as every other: K > 1 therefore gets K times the mixtures, and the time that they take."
    )
    heads = ["training", "ms an update (measured before)", "updates of a run", "runs", "training of a run"]
    left = [f"{arm} K = {k} was left out: {why}" for (arm, k), why in plan.broken.items()]
    return [paragraph(sentence), *Table("budget", heads, body, left).html()]


def _folder(found: Comparison) -> list[str]:
    setup, splits = found.setup, found.splits
    seen = (
        f"Every picture is seen as the middle square of it, {setup.side} × {setup.side} pixels; "
        + (
            "the side was given"
            if setup.given_side
            else "the side follows from the pictures' short sides and what is computed on"
        )
        + ". While learning they are mirrored and shifted at random."
        if setup.kind == "pictures"
        else "Every sound is seen as the spectrogram of one second at 16 kHz, the middle one of a longer clip."
    )
    divided = (
        "It has no part for testing, so one in five samples of every class is tested on, the same ones for all runs."
        if splits.divided
        else "Its own part for testing was used."
    )
    counts = {part: torch.bincount(split.labels, minlength=len(split.classes)).tolist() for part, split in splits.parts.items()}
    classes = splits["train"].classes
    body = [[name, *(f"{counts[part][label]:,}" for part in counts)] for label, name in enumerate(classes)]
    body.append(["all", *(f"{sum(counts[part]):,}" for part in counts)])
    skipped = list(dict.fromkeys(sentence for part in splits.parts.values() for sentence in part.skipped))
    bad = section(
        f"{counted(len(skipped), 'file')} could not be read and {'was' if len(skipped) == 1 else 'were'} left out", notes(skipped)
    )
    table = Table("classes", ["class", *counts], body)
    return [
        paragraph(
            f"{setup.listed.root}: {counted(len(classes), 'class', 'es')}. {divided} {seen} The network is {setup.network}."
        ),
        notes(splits.notes),
        *([bad] if skipped else []),
        *([section(f"Samples of all {len(classes)} classes", *table.html())] if len(classes) > 12 else table.html()),
    ]


def _command(found: Comparison) -> str:
    asked, setup = found.asked, found.setup
    given = [f"--model {asked.model}"] if asked.model else []
    given += [f"--methods {' '.join(asked.methods)}", f"--ks {' '.join(map(str, asked.ks))}", f"--seeds {asked.seeds}"]
    given += [f"--budget {asked.budget:g}s", *([f"--jobs {asked.jobs}"] if asked.jobs > 1 else [])]
    given += [f"--out {shlex.quote(str(found.out))}"]
    given += [f"--set {shlex.join(f'{field}={value}' for field, value in asked.changes.items())}"] if asked.changes else []
    return f"multimix compare {shlex.quote(str(setup.folder))} {' '.join(given)}"
