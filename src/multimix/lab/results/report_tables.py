"""The report's own tables: what compares with what, what evaluators found, what was confused, and how everything was trained."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..evaluation import COUNTS, measure_named
from .page import table
from .report_study import MEASURES, Study
from .rows import ECE, Line
from .table import NOTHING, Cell, Table, difference_cell, mean_cell

MOST = 3  # confusions of a line that are named


def comparisons(study: Study) -> Table:
    """Every paired comparison, of error and of calibration error, with p as it is and corrected for their number."""
    found = {measure: {(one.line, one.other): one for one in study.compared(measure)} for measure in MEASURES}
    pairs = list(dict.fromkeys(pair for own in found.values() for pair in own))
    shown = [measure for measure in MEASURES if found[measure]]
    heads = ["comparison", "n"]
    for measure in shown:
        heads += [f"{MEASURES[measure]} ± 95 %", "p (Holm)"]
    lines = []
    for line, other in pairs:
        own = [found[measure].get((line, other)) for measure in shown]
        cells: list[Cell] = [(f"{line} − {other}", ""), (str(max(one.paired.n for one in own if one is not None)), "")]
        for one in own:
            cells += [
                difference_cell(one and one.paired),
                (NOTHING if one is None else "< 0.001" if one.p_holm < 0.001 else f"{one.p_holm:.3f}", ""),
            ]
        lines.append(cells)
    words = [
        "first minus second over common seeds, in points: below 0 the first is better; p of the paired t-test",
        "p (Holm) is corrected for all comparisons of its column",
    ]
    return Table("comparisons", heads, lines, words)


def evaluation(study: Study, on: str) -> Table:
    """The numbers of one evaluator: a line of the study each, means over the seeds."""
    name = evaluator_of(on)
    entry = measure_named(name)
    lines = [line for line in study.lines if study.results(line, on)]
    every = dict.fromkeys(key for line in lines for found in study.results(line, on) for key in found["numbers"])
    names = [key for key in entry.columns or every if any(line.values(f"{on}.{key}") for line in lines)]
    heads = ["", "seeds", *(key.replace("_", " ") for key in names)]
    body = []
    for line in lines:
        cells: list[Cell] = [(study.label(line), ""), (str(len(study.results(line, on))), "")]
        for key in names:
            whole = line.summary(f"{on}.{key}")
            cells.append((f"{whole.mean:.0f}", "") if whole and key in COUNTS else mean_cell(whole))
        body.append(cells)
    words = [f"{entry.about}{_unusual(on)}; ±: 95 % t-interval over seeds"]
    if name == "calibration":
        words.append(
            "ece before, ece scaled: before and after temperature scaling, on samples that the temperature was not fitted on"
        )
    return Table(name, heads, body, words)


def evaluator_of(key: str) -> str:
    """The evaluator's name in the key of an evaluation.

    >>> evaluator_of("calibration[bins = 15]@best")
    'calibration'
    """
    return key.partition("@")[0].partition("[")[0]


def _unusual(key: str) -> str:
    """What is unusual about an evaluation, in words."""
    options = key.partition("[")[2].rpartition("]")[0]
    return (f"; {options}" if options else "") + ("; weights of the best epoch" if key.endswith("@best") else "")


def transfer(study: Study, on: str) -> Table:
    """What was found on birds after every epoch (or step): a line for every line and measure."""
    lines = [line for line in study.lines if study.results(line, on)]
    names: dict[str, None] = {}
    last = 0
    for line in lines:
        for key in study.results(line, on)[0]["numbers"]:
            name, _, number = key.rpartition("_")
            names[name] = None
            last = max(last, int(number))
    body = []
    for line in lines:
        for name in names:
            means = [mean_cell(line.summary(f"{on}.{name}_{i}"), 1) for i in range(1, last + 1)]
            body.append([(f"{study.label(line)}, {name.replace('transfer_', '').replace('_', ' ')}", ""), *means])
    unit = study.results(lines[0], on)[0]["result"]["unit"]
    words = [
        f"per cent after each {unit}{_unusual(on)}: error on the birds' classes; text, reference, complement: birds found by "
        "three readings of the paper's threshold of 0.75 (docs/evaluation.md)"
    ]
    return Table("transfer", ["", *map(str, range(1, last + 1))], body, words)


def confusions(study: Study) -> Table:
    """Of every line the hardest classes and the most frequent confusions, all its seeds together."""
    body = []
    for line in study.lines:
        results = [found["result"] for found in study.results(line, "error")]
        if results:
            body.append([(study.label(line), ""), (_hardest(results), ""), (_frequent(results), "")])
    words = ["all seeds together; a share is of the samples of the true class"]
    return Table("classes", ["", "highest error", "most frequent confusions"], body, words)


def settings_parts(study: Study) -> list[str]:
    """HTML: what all lines have in common, and what each has of its own."""
    given = {study.label(line): study.row(line)["settings"] for line in study.lines}
    first = next(iter(given.values()))
    same = {key: value for key, value in first.items() if all(one.get(key, "–") == value for one in given.values())}
    own = list(dict.fromkeys(key for one in given.values() for key in one if key not in same))
    parts = [table(["setting of all runs", "value"], [[key, _words(value)] for key, value in same.items()])]
    if own:
        rows = [[label, *(_words(one.get(key, NOTHING)) for key in own)] for label, one in given.items()]
        parts.append(table(["", *own], rows))
    return parts


def environment_parts(study: Study) -> list[str]:
    """HTML: what the runs were made with; values that differ are all named."""
    kinds: dict[str, dict[str, None]] = {}
    for row in study.rows:
        known = {**row.get("environment", {}), "device": row.get("device"), "processes": row.get("processes")}
        for key, value in known.items():
            kinds.setdefault(key, {})[str(value)] = None
    return [table(["made with", ""], [[key, ", ".join(values)] for key, values in kinds.items()])]


def runs_parts(study: Study) -> list[str]:
    """HTML: every run with what it reported."""
    heads = ["run", "seed", "error", "best", "ECE", "s/epoch", "finished", "weights"]
    rows = [_run_cells(study, line, seed) for line in study.lines for seed in line.seeds]
    return [table(heads, rows)]


def _run_cells(study: Study, line: Line, seed: int) -> list[str]:
    row, run = study.row(line, seed), line.runs[seed]
    ece = run.value(ECE)
    return [
        study.label(line),
        str(seed),
        f"{run.value(study.recipe.reported(study.scale)):.2f}",
        f"{run.outcome.best:.2f}",
        NOTHING if ece is None else f"{ece:.2f}",
        f"{run.outcome.seconds_per_epoch:.3g}",
        str(row.get("time", NOTHING)).replace("T", " ").partition("+")[0],
        str(row.get("weights", NOTHING))[:10],
    ]


def _hardest(results: Sequence[Mapping[str, Any]]) -> str:
    wrong: Counter[int] = Counter()
    number: Counter[int] = Counter()
    for result in results:
        for label, entry in enumerate(result["per_class"]):
            wrong[label] += entry["wrong"]
            number[label] += entry["n"]
    shares = sorted(((100 * wrong[label] / count, label) for label, count in number.items() if count), reverse=True)
    return ", ".join(f"{results[0]['classes'][label]} {share:.0f} %" for share, label in shares[:MOST])


def _frequent(results: Sequence[Mapping[str, Any]]) -> str:
    counts: Counter[tuple[int, int]] = Counter()
    of_class: Counter[int] = Counter()
    for result in results:
        for entry in result["confusions"]:
            counts[entry["true"], entry["predicted"]] += entry["count"]
        for label, own in enumerate(result["per_class"]):
            of_class[label] += own["n"]
    names = results[0]["classes"]
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST]
    return ", ".join(f"{names[a]} → {names[b]} {100 * count / of_class[a]:.0f} %" for (a, b), count in most)


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
