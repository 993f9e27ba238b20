"""Print the tables of the study on batch-norm statistics and a clean loss term, and of fine-tuning.

    python tools/batchnorm_study.py

The plan is in docs/study.md. Rows are read from docs/study/batchnorm.tar.xz and docs/study/finetune.jsonl.
"""

import json
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from multimix.lab.evaluation.cache import collect_runs
from multimix.lab.report.comparison import family
from multimix.lab.report.stats import Paired, paired_by_seed, summary
from multimix.lab.report.tables import Column, Table, p_value, signed

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE, FINETUNING = ROOT / "docs/study/batchnorm.tar.xz", ROOT / "docs/study/finetune.jsonl"
NAMES = {"none": "no mixing", "mixup": "input mixup", "manifoldmix": "manifold mixup", "puzzlemix": "puzzle-mix"}
MARGINS = {"error": 0.5, "ece": 1.0}
HEADS = {"error": "error", "ece": "ECE"}
AS_TRAINED, RECOMPUTED, UNAUGMENTED = "as trained", "recomputed", "unaugmented"
LAGGING, USUAL = "as trained, momentum 0.01", "as trained, momentum 0.1"

Values = Mapping[int, float]  # by seed


class Arm(NamedTuple):
    """A way of training, with its measurements by reading, number, and seed."""

    method: str
    k: int
    clean: bool
    numbers: dict[tuple[str, str], dict[int, float]]

    @property
    def label(self) -> str:
        """The method with K."""
        k = "" if self.method == "none" else f", K = {self.k}"
        return f"{NAMES.get(self.method, self.method)}{k}{', clean term' if self.clean else ''}"

    def change(self, name: str, first: str, second: str) -> Paired:
        """Return reading ``second`` minus ``first`` of a number."""
        test = paired_by_seed(self.numbers[second, name], self.numbers[first, name])
        assert test is not None
        return test


def study_arms(rows: Sequence[Mapping[str, Any]]) -> list[Arm]:
    """Return the arms of the study from stored rows of runs."""
    arms: dict[tuple[str, int, bool], Arm] = {}
    for row in rows:
        key = row["arm"], row["k"], row["settings"].get("method.clean_weight", 0.0) == 1.0
        arm = arms.setdefault(key, Arm(*key, {}))
        for reading in (AS_TRAINED, RECOMPUTED, UNAUGMENTED):
            suffix = "" if reading == AS_TRAINED else f"[batchnorm = {reading}]"
            numbers = row["evaluations"][f"calibration{suffix}"]["numbers"]
            values = {name: numbers[name] for name in ("ece", "nll", "confidence", "accuracy")}
            values |= {"error": 100 - numbers["accuracy"], "surplus": numbers["confidence"] - numbers["accuracy"]}
            for name, value in values.items():
                arm.numbers.setdefault((reading, name), {})[row["seed"]] = value
    return list(arms.values())


def finetuning_arms(rows: Sequence[Mapping[str, Any]]) -> list[Arm]:
    """Return the arms of fine-tuning from its rows."""
    arms: dict[tuple[str, int], Arm] = {}
    for row in rows:
        arm = arms.setdefault((row["method"], row["k"]), Arm(row["method"], row["k"], False, {}))
        values = {name: row[name] for name in ("error", "ece", "nll", "confidence")}
        values["surplus"] = row["confidence"] + row["error"] - 100
        for name, value in values.items():
            arm.numbers.setdefault((row["statistics"], name), {})[row["seed"]] = value
    return list(arms.values())


def readings_table(title: str, arms: Sequence[Arm], first: str) -> Table:
    """Return error, ECE, NLL, and confidence minus accuracy of every arm as trained and recomputed."""

    def mean(arm: Arm, reading: str, name: str) -> str:
        return f"{summary(list(arm.numbers[reading, name].values())).mean:.2f}".replace("-", "−")

    def change(arm: Arm, name: str) -> str:
        test = arm.change(name, first, RECOMPUTED)
        return f"{signed(test.mean)} ± {test.half:.2f}"

    def both(arm: Arm, name: str) -> str:
        return f"{mean(arm, first, name)} → {mean(arm, RECOMPUTED, name)}"

    columns = [Column("training", [arm.label for arm in arms])]
    columns.append(Column("n", [len(arm.numbers[first, "error"]) for arm in arms]))
    for name, head in (("error", "error, %"), ("ece", "ECE, %")):
        columns.append(Column(head, [both(arm, name) for arm in arms]))
        columns.append(Column("change", [change(arm, name) for arm in arms]))
    columns.append(Column("NLL", [both(arm, "nll") for arm in arms]))
    columns.append(Column("confidence − accuracy", [both(arm, "surplus") for arm in arms]))
    return Table(title, columns)


def family_table(title: str, tests: Mapping[str, Paired], margin: float) -> Table:
    """Return a family of paired tests with Holm's correction and the equivalence test."""
    compared = family({(label, ""): test for label, test in tests.items()}, margin)
    columns = [
        Column("comparison", list(tests)),
        Column("n", [one.paired.n for one in compared]),
        Column("points ± 95 %", [f"{signed(one.paired.mean)} ± {one.paired.half:.2f}" for one in compared]),
        Column("p (Holm)", [one.p for one in compared], show=p_value),
        Column("90 % interval", [f"{signed(one.same.low)} … {signed(one.same.high)}" for one in compared]),
        Column("verdict", [one.verdict for one in compared]),
    ]
    return Table(title, columns)


def pairs_of(
    arms: Sequence[Arm], name: str, reading: str, chosen: Callable[[Arm], bool], other: Callable[[Arm, Arm], bool]
) -> dict[str, Paired]:
    """Return ``arm − other`` of a number by label, for every chosen arm that has such another arm."""
    tests = {}
    for arm in filter(chosen, arms):
        for base in (base for base in arms if other(arm, base)):
            test = paired_by_seed(arm.numbers[reading, name], base.numbers[reading, name])
            if test is not None:
                tests[f"{arm.label} − {'no clean term' if arm.clean else f'K = {base.k}'}"] = test
    return tests


def study_tables(arms: Sequence[Arm]) -> list[Table]:
    """Return the tables of the planned hypotheses (a) to (d), as docs/study.md numbers them."""

    def larger_k(arm: Arm) -> bool:
        return arm.k == 5 and not arm.clean

    def k1(arm: Arm, base: Arm) -> bool:
        return (base.method, base.k, base.clean) == (arm.method, 1, False)

    def without(arm: Arm, base: Arm) -> bool:
        return (base.method, base.k, base.clean) == (arm.method, arm.k, False)

    mixed = [arm for arm in arms if arm.method != "none" and not arm.clean]
    tables = [readings_table("Both readings", arms, AS_TRAINED)]
    for name, margin in MARGINS.items():
        changes = {arm.label: arm.change(name, AS_TRAINED, RECOMPUTED) for arm in mixed}
        tables.append(family_table(f"(a) {HEADS[name]}, recomputed − as trained", changes, margin))
    for letter, name in (("b", "ece"), ("c", "error")):
        for reading in (RECOMPUTED, AS_TRAINED):
            tests = pairs_of(arms, name, reading, larger_k, k1)
            tables.append(family_table(f"({letter}) {HEADS[name]}, {reading}, K = 5 − K = 1", tests, MARGINS[name]))
    for reading in (RECOMPUTED, AS_TRAINED):
        for name, margin in MARGINS.items():
            tests = pairs_of(arms, name, reading, lambda arm: arm.clean, without)
            tables.append(family_table(f"(d) {HEADS[name]}, {reading}, clean term − none", tests, margin))
    for name, margin in MARGINS.items():
        changes = {arm.label: arm.change(name, RECOMPUTED, UNAUGMENTED) for arm in arms}
        tables.append(family_table(f"{HEADS[name]}, unaugmented − recomputed", changes, margin))
    return tables


def finetuning_tables(arms: Sequence[Arm]) -> list[Table]:
    """Return the tables of fine-tuning: both readings, the tests, and the ranking."""
    tables = [
        readings_table("Both readings, momentum 0.01", arms, LAGGING),
        readings_table("Both readings, momentum 0.1", arms, USUAL),
    ]
    for first in (LAGGING, USUAL):
        for name, margin in MARGINS.items():
            changes = {arm.label: arm.change(name, first, RECOMPUTED) for arm in arms}
            tables.append(family_table(f"{HEADS[name]}, recomputed − {first}", changes, margin))
    for name, margin in MARGINS.items():
        changes = {arm.label: arm.change(name, RECOMPUTED, UNAUGMENTED) for arm in arms}
        tables.append(family_table(f"{HEADS[name]}, unaugmented − recomputed", changes, margin))
    single = [arm for arm in arms if arm.k == 1]
    baseline = next(arm for arm in single if arm.method == "none")
    rows = []
    for reading in (LAGGING, USUAL, RECOMPUTED):
        ordered = sorted(single, key=lambda arm: summary(list(arm.numbers[reading, "error"].values())).mean)
        ranking = " < ".join(
            f"{NAMES.get(arm.method, arm.method)} {summary(list(arm.numbers[reading, 'error'].values())).mean:.1f}"
            for arm in ordered
        )
        reference = baseline.numbers[reading, "error"]
        counts = {
            NAMES.get(arm.method, arm.method): sum(
                value < reference[seed] for seed, value in arm.numbers[reading, "error"].items()
            )
            for arm in single
            if arm is not baseline
        }
        wins = ", ".join(f"{name} {count} of {len(reference)}" for name, count in counts.items())
        rows.append([reading, ranking, wins])
    tables.append(Table.of_rows("Ranking", ["statistics", "error, %, lowest first", "seeds better than no mixing"], rows))
    tests = {}
    for arm in (arm for arm in arms if arm.k == 5):
        base = next(one for one in single if one.method == arm.method)
        for reading in (LAGGING, RECOMPUTED):
            test = paired_by_seed(arm.numbers[reading, "error"], base.numbers[reading, "error"])
            assert test is not None
            tests[f"{arm.label} − K = 1, {reading}"] = test
    shown = [[label, test.n, f"{signed(test.mean)} ± {test.half:.2f}"] for label, test in tests.items()]
    tables.append(
        Table.of_rows("K = 5 − K = 1 (no verdict: too few images and seeds)", ["comparison", "n", "points ± 95 %"], shown)
    )
    return tables


def read_study() -> list[Arm]:
    """Return the arms of the stored study."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
        return study_arms(collect_runs([folder], lambda sentence: None))


def read_finetuning() -> list[Arm]:
    """Return the arms of the stored fine-tuning."""
    return finetuning_arms([json.loads(line) for line in FINETUNING.read_text().splitlines()])


if __name__ == "__main__":
    for table in (*study_tables(read_study()), *finetuning_tables(read_finetuning())):
        print(table.markdown())
