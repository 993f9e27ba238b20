"""The report's own tables: what compares with what, what evaluators found, what was confused, and how everything was trained."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..evaluation.names import COUNTS, MEASURES
from .comparison import compare
from .findings import measures
from .page import pairs, subheading, table
from .rows import ECE, Aggregate
from .table import NOTHING, SPREAD, Cell, Table, difference_cell, mean_cell

MOST = 3  # confusions of a line that are named


def comparisons(whole: Aggregate) -> Table:
    """Every paired comparison, of error and of calibration error, with p as it is and corrected for their number."""
    found = {word: {(one.line, one.other): one for one in compare(whole, field)} for field, word in measures(whole).items()}
    found = {word: own for word, own in found.items() if own}
    heads = ["comparison", "n", *(head for word in found for head in (f"{word} ± 95 %", "p (Holm)"))]
    lines = []
    for line, other in dict.fromkeys(pair for own in found.values() for pair in own):
        tests = [own.get((line, other)) for own in found.values()]
        cells: list[Cell] = [f"{line} − {other}", str(max(test.paired.n for test in tests if test is not None))]
        for test in tests:
            p = NOTHING if test is None else "< 0.001" if test.p_holm < 0.001 else f"{test.p_holm:.3f}"
            cells += [difference_cell(test and test.paired), p]
        lines.append(cells)
    words = [
        "first minus second over common seeds, in points: below 0 the first is better; p of the paired t-test",
        "p (Holm) is corrected for all comparisons of its column",
    ]
    return Table("comparisons", heads, lines, words)


def evaluation(whole: Aggregate, on: str) -> Table:
    """The numbers of one evaluator: a line of the study each, means over the seeds."""
    name = evaluator_of(on)
    entry = MEASURES[name]
    lines = [line for line in whole.trained if line.evaluated(on)]
    every = dict.fromkeys(key for line in lines for row in line.evaluated(on) for key in row["numbers"])
    names = [key for key in entry.columns or every if any(line.values(f"{on}.{key}") for line in lines)]
    body = []
    for line in lines:
        cells: list[Cell] = [whole.label(line), str(len(line.evaluated(on)))]
        for key in names:
            mean = line.summary(f"{on}.{key}")
            cells.append(f"{mean.mean:.0f}" if mean and key in COUNTS else mean_cell(mean))
        body.append(cells)
    words = [f"{entry.about}{_unusual(on)}; {SPREAD}"]
    if name == "calibration":
        words.append(
            "ece before, ece scaled: before and after temperature scaling, on samples that the temperature was not fitted on"
        )
    return Table(name, ["training", "seeds", *(key.replace("_", " ") for key in names)], body, words)


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


def transfer(whole: Aggregate, on: str) -> Table:
    """What was found on birds after every epoch (or step): a line for every line and measure."""
    lines = [line for line in whole.trained if line.evaluated(on)]
    keys = [key.rpartition("_") for line in lines for key in line.evaluated(on)[0]["numbers"]]
    last = max(int(number) for _, _, number in keys)
    body: list[list[Cell]] = []
    for line in lines:
        for name in dict.fromkeys(name for name, _, _ in keys):
            label = f"{whole.label(line)}, {name.replace('transfer_', '').replace('_', ' ')}"
            body.append([label, *(mean_cell(line.summary(f"{on}.{name}_{i}"), 1) for i in range(1, last + 1))])
    unit = lines[0].evaluated(on)[0]["result"]["unit"]
    words = [
        f"per cent after each {unit}{_unusual(on)}: error and accuracy of the birds' classes; text, reference: birds found by "
        "two readings of the paper's threshold of 0.75 (docs/evaluation.md)"
    ]
    return Table("transfer", ["training", *map(str, range(1, last + 1))], body, words)


def confusions(whole: Aggregate) -> Table:
    """Of every line the hardest classes and the most frequent confusions, all its seeds together."""
    every = {whole.label(line): [row["result"] for row in line.evaluated("error")] for line in whole.trained}
    body = [[label, _hardest(results), _frequent(results)] for label, results in every.items() if results]
    words = ["all seeds together; a share is of the samples of the true class"]
    return Table("classes", ["training", "highest error", "most frequent confusions"], body, words)


def settings(whole: Aggregate) -> list[str]:
    """HTML: what all lines have in common, and what each has of its own."""
    given = {whole.label(line): line.runs[line.seeds[0]].row["settings"] for line in whole.trained}
    first = next(iter(given.values()))
    same = {key: value for key, value in first.items() if all(one.get(key, NOTHING) == value for one in given.values())}
    own = list(dict.fromkeys(key for one in given.values() for key in one if key not in same))
    parts = [pairs({key: _words(value) for key, value in same.items()})]
    if own:
        lists = {
            label: "; ".join(f"{key} = {_words(one[key])}" for key in own if one.get(key) is not None)
            for label, one in given.items()
        }
        parts += [subheading("what differs"), pairs(lists)]
    return parts


def environments(whole: Aggregate) -> str:
    """HTML: what the runs were made with; values that differ are all named."""
    kinds: dict[str, dict[str, None]] = {}
    for row in (run.row for line in whole.trained for run in line.runs.values()):
        known = {**row["environment"], "device": row["device"], "processes": row["processes"]}
        for key, value in known.items():
            kinds.setdefault(key, {})[str(value)] = None
    return pairs({key: ", ".join(values) for key, values in kinds.items()})


def runs(whole: Aggregate) -> str:
    """HTML: every run with what it reported."""
    rows = []
    for line in whole.trained:
        for seed, run in line.runs.items():
            error, ece = run.value(whole.recipe.reported(whole.scale)), run.value(ECE)
            numbers = [NOTHING if value is None else f"{value:.2f}" for value in (error, run.outcome.best, ece)]
            finished = str(run.row.get("time", NOTHING)).replace("T", " ").partition("+")[0]
            weights = str(run.row.get("weights", NOTHING))[:10]
            rows.append([whole.label(line), seed, *numbers, f"{run.outcome.seconds_per_epoch:.3g}", finished, weights])
    return table(["run", "seed", "error", "best", "ECE", "s/epoch", "finished", "weights"], rows)


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
