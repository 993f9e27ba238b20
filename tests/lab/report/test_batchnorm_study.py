"""docs/results.md shows the stored rows of the study on batch-norm statistics and of fine-tuning."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("batchnorm_study", ROOT / "tools/batchnorm_study.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs/results.md").read_text()


@pytest.fixture(scope="module")
def study(tool):
    return tool.read_study()


@pytest.fixture(scope="module")
def finetuning(tool):
    return tool.read_finetuning()


def rows_of(table):
    return [line for line in table.markdown().splitlines() if line.startswith("|")][2:]


def test_all_planned_runs_are_stored(study, finetuning):
    assert {(arm.method, arm.k, arm.clean) for arm in study} == {
        ("none", 1, False),
        *((method, k, False) for method in ("mixup", "manifoldmix", "cutmix", "puzzlemix") for k in (1, 5)),
        *((method, k, True) for method in ("mixup", "cutmix") for k in (1, 5)),
    }
    assert all(set(values) == set(range(16, 24)) for arm in study for values in arm.numbers.values())
    assert {(arm.method, arm.k) for arm in finetuning} == {
        *((method, 1) for method in ("none", "mixup", "cutmix", "puzzlemix")),
        *((method, 5) for method in ("mixup", "cutmix")),
    }
    assert all(set(values) == set(range(4)) for arm in finetuning for values in arm.numbers.values())


def test_the_page_has_every_row_of_the_tables(tool, study, finetuning, page):
    for table in tool.study_tables(study)[:9]:
        assert f"**{table.title}**" in page, table.title
        assert [row for row in rows_of(table) if row not in page] == []
    for table in tool.finetuning_tables(finetuning):
        if f"**{table.title}**" in page:
            assert [row for row in rows_of(table) if row not in page] == []
    titles = {table.title for table in tool.finetuning_tables(finetuning) if f"**{table.title}**" in page}
    assert {"Both readings, momentum 0.01", "Both readings, momentum 0.1", "Ranking"} <= titles


def test_differences_and_corrections_are_scipys(tool, study):
    arms = {(arm.method, arm.k, arm.clean): arm for arm in study}
    changes = {}
    for key, arm in arms.items():
        if key[0] != "none" and not key[2]:
            before, after = (
                [arm.numbers[reading, "error"][seed] for seed in range(16, 24)] for reading in ("as trained", "recomputed")
            )
            changes[arm.label] = stats.ttest_rel(after, before)
    table = next(table for table in tool.study_tables(study) if table.title == "(a) error, recomputed − as trained")
    order = sorted(changes, key=lambda label: changes[label].pvalue)
    corrected = np.maximum.accumulate([min(1.0, (len(order) - i) * changes[label].pvalue) for i, label in enumerate(order)])
    by_label = dict(zip(order, corrected, strict=True))
    for row in table.rows:
        low, high = changes[row[0]].confidence_interval()
        assert row[2] == f"{(low + high) / 2:+.2f} ± {(high - low) / 2:.2f}".replace("-", "−")
        assert row[3] == ("< 0.001" if by_label[row[0]] < 0.001 else f"{by_label[row[0]]:.3f}")
