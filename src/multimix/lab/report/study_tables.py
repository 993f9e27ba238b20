"""The tables of a study: results, comparisons, evaluations, budgets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..evaluation.names import COUNTS, MEASURES, measure_of
from ..recipes.base import counts_k
from ..training.log import LAST
from .comparison import (
    MARGIN,
    KComparison,
    compare_at_equal_rows,
    compare_with_k1,
    comparisons,
    minus_baseline,
    minus_k1,
    overall_effect,
)
from .frame import CHANGED, ECE, ERROR_LABELS, SCALE_LABELS, Row, RunGroup, Study, join_settings
from .paper import paper_error
from .stats import Equivalence, paired_by_seed
from .tables import EMPTY, INTERVAL_NOTE, Cell, Column, Table, cell, p_value, short, signed

# Columns of the run frame that the table of results shows.
RESULT_HEADS: Mapping[str, str] = {
    **{name: name for name in ERROR_LABELS},
    "squared_grad_norm": "‖g‖²",
    "seconds_per_epoch": "s/epoch",
}
SHOWN_CONFUSIONS = 3
RECOMPUTED = "[batchnorm = recomputed]"  # in the key of an evaluation


def results_table(study: Study) -> Table:
    """Return one row per group: errors, the paper's number, paired differences, calibration.

    Args:
        study: The study.
    """
    groups, marks, metric = study.groups, study.marks(), study.metric
    names = [" ".join(filter(None, (group.arm, marks.get(group.differs), CHANGED if group.marked else ""))) for group in groups]
    columns = [
        *identity_columns(study, names),
        Column("n", [len(group.seeds) for group in groups], name="n"),
        Column("", [" ".join(map(str, group.seeds)) for group in groups], name="seeds"),
    ]
    for name in dict.fromkeys([*RESULT_HEADS, metric]):
        means, head = [group.summary(name) for group in groups], RESULT_HEADS.get(name, name)
        if name == metric:
            cells = [mean if len(group.runs) else "not run" for group, mean in zip(groups, means, strict=True)]
            columns += [Column(f"{head}*", cells, places=_places(name)), Column("", means, name=name)]
            columns += _beside_metric(study)
        else:
            columns.append(Column(head if any(means) else "", means, name=name, places=_places(name)))
    columns += [
        Column("images", [group.mean("images") for group in groups], name="images", show=short),
        Column("", [metric] * len(groups), name="metric"),
        Column("", ["; ".join(group.differs) for group in groups], name="differs"),
        Column("", ["; ".join(group.changed) for group in groups], name="not_of_recipe"),
    ]
    notes = [*_result_notes(study), *(f"{mark} {join_settings(differs)}" for differs, mark in marks.items()), *study.notes]
    return Table(f"{study.recipe.title} ({SCALE_LABELS[study.scale]})", columns, notes, keys=3)


def identity_columns(study: Study, names: Sequence[str]) -> list[Column]:
    """Return the columns that identify groups; recipe, scale, and digest are for CSV only.

    Args:
        study: The study.
        names: Names of the methods, one per group.
    """
    groups = study.groups
    shown_k = [str(group.k) if counts_k(group.arm) or group.k != 1 else EMPTY for group in groups]
    return [
        Column("method", names),
        Column("K", shown_k),
        Column("", [study.recipe.name] * len(groups), name="recipe"),
        Column("", [study.scale] * len(groups), name="scale"),
        *(Column("", [getattr(group, name) for group in groups], name=name) for name in ("arm", "k", "digest")),
    ]


def _beside_metric(study: Study) -> list[Column]:
    """Return the columns beside the reported number: the paper's, differences, ECE."""
    groups, scale, metric = study.groups, study.scale, study.metric
    papers = [paper_error(study.recipe.name, group.arm, group.k) for group in groups]
    # Brackets mark a row whose settings are not the recipe's.
    signs = ["({:.2f})" if scale == "paper" and group.changed else "{:.2f}" for group in groups]
    texts = [None if value is None else sign.format(value) for value, sign in zip(papers, signs, strict=True)]
    compares = ["yes" if scale == "paper" and not group.changed else "no" for group in groups]
    columns = [
        Column("paper" if scale == "paper" else "paper (other scale)", texts),
        Column("vs none", [minus_baseline(group, groups, metric) for group in groups], "minus_none", _places(metric)),
        Column("vs K = 1", [minus_k1(group, groups, metric) for group in groups], "minus_one", _places(metric)),
        Column("ECE", [group.summary(ECE) for group in groups], ECE),
        Column("ECE vs none", [minus_baseline(group, groups, ECE) for group in groups], f"{ECE}_minus_none"),
    ]
    hidden = [
        Column("", papers, "paper"),
        Column("", ["" if value is None else word for value, word in zip(papers, compares, strict=True)], "paper_compares"),
    ]
    return [*hidden, *(column for column in columns if any(value is not None for value in column.values))]


def _places(name: str) -> int | None:
    """Return two decimal places for per cent, otherwise None, since gradients and times have any size."""
    return 2 if name in ERROR_LABELS or name == ECE else None


def _result_notes(study: Study) -> list[str]:
    groups, scale, metric = study.groups, study.scale, study.metric
    notes = [
        f"* is what the recipe reports; n: seeds; {INTERVAL_NOTE}",
        f"errors in per cent; median: of the last {LAST} epochs; best: of all epochs, chosen on the test samples, so too low",
        "‖g‖²: mean over the updates of the last epoch; s/epoch: median over epochs; images: loaded in all epochs together",
    ]
    if any(group.values(ECE) for group in groups):
        notes.append("ECE: expected calibration error of the final weights in per cent, 10 bins")
    for text, minus, name in (
        (f"vs none: {metric} minus that without mixing", minus_baseline, metric),
        (f"vs K = 1: {metric} minus that of the same method with K = 1", minus_k1, metric),
        ("ECE vs none: the same of the ECE", minus_baseline, ECE),
    ):
        count = sum(minus(group, groups, name) is not None for group in groups)
        if count:
            notes.append(f"{text}, paired over common seeds, p of the t-test{uncorrected_note(count)}")
    papers = {group.key: paper_error(study.recipe.name, group.arm, group.k) for group in groups}
    if scale != "paper" and any(value is not None for value in papers.values()):
        notes.append(f"the paper's numbers are of its own scale and do not compare with those of this {scale} scale")
    elif any(papers[group.key] is not None and group.changed for group in groups):
        notes.append("(in brackets) the paper's number does not compare, since these settings are not the recipe's")
    return notes


def uncorrected_note(count: int) -> str:
    """Warn that p-values of several comparisons are not corrected.

    Args:
        count: Number of comparisons.
    """
    return f"; {count} comparisons, p is not corrected for their number" if count > 1 else ""


def comparison_table(study: Study) -> Table:
    """Return every paired comparison of error and ECE, with p corrected by Holm.

    Args:
        study: The study.
    """
    tests_by_column = {
        label: {(test.group, test.other): test for test in comparisons(study, name)} for name, label in measured(study).items()
    }
    tests_by_column = {label: column_tests for label, column_tests in tests_by_column.items() if column_tests}
    pairs = list(dict.fromkeys(pair for column_tests in tests_by_column.values() for pair in column_tests))
    counts = [
        max(column_tests[pair].paired.n for column_tests in tests_by_column.values() if pair in column_tests) for pair in pairs
    ]
    columns = [Column("comparison", [f"{group} − {other}" for group, other in pairs]), Column("n", counts)]
    for label, column_tests in tests_by_column.items():
        tests = [column_tests.get(pair) for pair in pairs]
        columns.append(Column(f"{label} ± 95 %", [test and test.paired for test in tests]))
        columns.append(Column("p (Holm)", [test and test.p_holm for test in tests], show=p_value))
    notes = [
        "first minus second over common seeds, in points: below 0 the first is better; p of the paired t-test",
        "p (Holm) is corrected for all comparisons of its column",
    ]
    return Table("comparisons", columns, notes)


def measured(study: Study) -> dict[str, str]:
    """Return the labels of the compared columns by column of the run frame.

    Args:
        study: The study.
    """
    return {study.metric: "error", ECE: "ECE"}


def k_table(study: Study) -> Table | None:
    """Return the comparisons of K > 1 with K = 1, or None if there are none.

    Args:
        study: The study.
    """
    column = study.error
    first, second, overall = compare_with_k1(study, column), compare_at_equal_rows(study, column), overall_effect(study, column)
    if not first:
        return None
    rows = [_k_row(comparison) for comparison in first]
    notes = [
        "paired over common seeds, in points of error: below 0 the first is better; p of the paired t-test, corrected by Holm in "
        f"the family; equal: within ±{MARGIN:g} points by two one-sided tests at 5 %, that is, the 90 % interval lies inside"
    ]
    if overall is not None:
        effect, label = overall.effect, f"all methods, K = {overall.k} − K = 1"
        mean: Cell = (signed(effect.mean), f"± {effect.half:.2f}")
        rows.append([label, effect.n, mean, p_value(effect.p), *_equivalence_cells(overall.same), overall.verdict])
        notes.append("all methods: a linear model of method and K with the seed as a random effect; n counts pairs")
    rows += [_k_row(comparison) for comparison in second]
    if second:
        notes.append("as many rows: trained until as many samples and mixtures had passed the network; a family of its own")
    heads = ["comparison", "n", "points ± 95 %", "p (Holm)", "90 % interval", "p (not equal)", "verdict"]
    return Table.of_rows("Does K > 1 help?", heads, rows, notes)


def _k_row(comparison: KComparison) -> list[Any]:
    mean = signed(comparison.paired.mean), f"± {comparison.paired.half:.2f}"
    return [
        f"{comparison.group} − {comparison.other}",
        comparison.paired.n,
        mean,
        p_value(comparison.p),
        *_equivalence_cells(comparison.same),
        comparison.verdict,
    ]


def _equivalence_cells(same: Equivalence) -> list[str]:
    return [f"{signed(same.low)} … {signed(same.high)}", p_value(same.p)]


def evaluation_table(study: Study, name: str) -> Table:
    """Return the numbers of one evaluation, means over seeds, one row per group.

    Args:
        study: The study.
        name: Key of the evaluation, such as ``calibration`` or ``error@best``.
    """
    measure = measure_of(name)
    groups = [group for group in study.trained if group.evaluated(name)]
    if measure == "transfer":
        return _transfer_table(study, groups, name)
    all_keys = dict.fromkeys(key for group in groups for row in group.evaluated(name) for key in row["numbers"])
    numbers = [key for key in MEASURES[measure].columns or all_keys if any(group.values(f"{name}.{key}") for group in groups)]
    columns = [
        Column("training", [study.label(group) for group in groups]),
        Column("seeds", [len(group.evaluated(name)) for group in groups]),
    ]
    for key in numbers:
        means = [group.summary(f"{name}.{key}") for group in groups]
        counts = [mean and f"{mean.mean:.0f}" for mean in means]
        columns.append(Column(key.replace("_", " "), counts if key in COUNTS else means))
    notes = [f"{MEASURES[measure].about}{_unusual_options(name)}; {INTERVAL_NOTE}"]
    if measure == "calibration":
        notes.append("ece before, ece scaled: before and after temperature scaling, on samples the temperature was not fitted on")
    return Table(measure, columns, notes)


def _transfer_table(study: Study, groups: Sequence[RunGroup], name: str) -> Table:
    """Return a row per group and number, with a column per epoch or step of the transfer."""
    keys = [key.rpartition("_") for group in groups for key in group.evaluated(name)[0]["numbers"]]
    rows = []
    last = max(int(step) for _, _, step in keys)
    for group in groups:
        for number_name in dict.fromkeys(prefix for prefix, _, _ in keys):
            label = f"{study.label(group)}, {number_name.replace('transfer_', '').replace('_', ' ')}"
            rows.append([label, *(cell(group.summary(f"{name}.{number_name}_{i}"), 1) for i in range(1, last + 1))])
    unit = groups[0].evaluated(name)[0]["result"]["unit"]
    note = (
        f"per cent after each {unit}{_unusual_options(name)}: error and accuracy of the birds' classes; text, reference: birds "
        "found by two readings of the paper's threshold of 0.75 (docs/evaluation.md)"
    )
    return Table.of_rows("transfer", ["training", *map(str, range(1, last + 1))], rows, [note])


def _unusual_options(name: str) -> str:
    options = name.partition("[")[2].rpartition("]")[0]
    return (f"; {options}" if options else "") + ("; weights of the best epoch" if name.endswith("@best") else "")


def statistics_table(study: Study) -> Table | None:
    """Return error and ECE with batch-norm statistics as trained and recomputed, and their paired change.

    Args:
        study: The study.

    Returns:
        None if no group was measured both ways.
    """
    names = {"error": ("error", "error"), "ECE": ("calibration", "ece")}
    columns: list[Column] = []
    groups = [group for group in study.trained if any(group.evaluated(f"{key}{RECOMPUTED}") for key, _ in names.values())]
    for label, (key, number_name) in names.items():
        before, after = f"{key}.{number_name}", f"{key}{RECOMPUTED}.{number_name}"
        changes = [paired_by_seed(group.values(after), group.values(before)) for group in groups]
        columns += [
            Column(f"{label}, as trained", [group.summary(before) for group in groups], before),
            Column("recomputed", [group.summary(after) for group in groups], after),
            Column("change", changes, f"{number_name}_change"),
        ]
    notes = [
        "recomputed: on unmixed training samples (mm.recompute_batchnorm); change: paired over seeds, below 0 is better",
        INTERVAL_NOTE,
    ]
    labels = Column("training", [study.label(group) for group in groups], "training")
    return Table("Batch-norm statistics", [labels, *columns], notes) if groups else None


def confusion_table(study: Study) -> Table:
    """Return the hardest classes and the most frequent confusions of every group, over all seeds.

    Args:
        study: The study.
    """
    results = {study.label(group): [row["result"] for row in group.evaluated("error")] for group in study.trained}
    rows = [
        [label, _hardest(group_results), _frequent(group_results)] for label, group_results in results.items() if group_results
    ]
    note = "all seeds together; a share is of the samples of the true class"
    return Table.of_rows("classes", ["training", "highest error", "most frequent confusions"], rows, [note])


def class_errors(results: Sequence[Row]) -> dict[str, tuple[float | None, int]]:
    """Return error in per cent (None without samples) and number of samples of every class.

    Args:
        results: Results of the measure ``error``, one per seed.
    """
    errors: dict[str, tuple[float | None, int]] = {}
    for label, name in enumerate(results[0]["classes"]):
        samples = sum(result["per_class"][label]["n"] for result in results)
        wrong = sum(result["per_class"][label]["wrong"] for result in results)
        errors[name] = (100 * wrong / samples if samples else None, results[0]["per_class"][label]["n"])
    return errors


def confusion_matrix(results: Sequence[Row]) -> NDArray[np.float64]:
    """Return the share of every predicted class (columns) among the samples of every true class.

    Args:
        results: Results of the measure ``error``, one per seed.
    """
    matrix = np.zeros((len(results[0]["classes"]),) * 2)
    for result in results:
        for label, entry in enumerate(result["per_class"]):
            matrix[label, label] += entry["n"] - entry["wrong"]
        for entry in result["confusions"]:
            matrix[entry["true"], entry["predicted"]] += entry["count"]
    shares: NDArray[np.float64] = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    return shares


def _hardest(results: Sequence[Row]) -> str:
    errors = [(error, name) for name, (error, _) in class_errors(results).items() if error is not None]
    ranked = sorted(enumerate(errors), key=lambda item: (item[1][0], item[0]), reverse=True)
    return ", ".join(f"{name}: {error:.0f} %" for _, (error, name) in ranked[:SHOWN_CONFUSIONS])


def _frequent(results: Sequence[Row]) -> str:
    counts: Counter[tuple[int, int]] = Counter()
    of_class: Counter[int] = Counter()
    for result in results:
        for entry in result["confusions"]:
            counts[entry["true"], entry["predicted"]] += entry["count"]
        for label, class_counts in enumerate(result["per_class"]):
            of_class[label] += class_counts["n"]
    names = results[0]["classes"]
    most_frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_CONFUSIONS]
    return ", ".join(f"{names[a]} → {names[b]}: {100 * count / of_class[a]:.0f} %" for (a, b), count in most_frequent)


def run_table(study: Study) -> Table:
    """Return one row per run: errors, ECE, time, and checksum of the weights.

    Args:
        study: The study.
    """
    rows = []
    for group in study.trained:
        for seed in group.seeds:
            run = group.runs.loc[seed]
            values = [group.values(name).get(seed) for name in (study.metric, "best", ECE)]
            row = run["row"]
            finished = str(row.get("time", EMPTY)).replace("T", " ").partition("+")[0]
            seconds = f"{run['seconds_per_epoch']:.3g}"
            rows.append([study.label(group), seed, *values, seconds, finished, str(row.get("weights", EMPTY))[:10]])
    return Table.of_rows("", ["run", "seed", "error", "best", "ECE", "s/epoch", "finished", "weights"], rows)
