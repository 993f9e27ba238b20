"""Rows that were stored by earlier versions are found again: the options they are found by stay the same."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from multimix.lab.data import Augment, Images
from multimix.lab.evaluation import MEASURES, measure_named
from multimix.lab.evaluation.runner import query_for
from multimix.lab.evaluation.subject import Parts, Subject
from multimix.lab.evaluation.transfer import TransferOptions

SAMPLES = {"data": "digits", "part": "test", "per_class": None, "subset_seed": 0}
TRANSFER = {"unit": "epoch", "count": 10, "lr": 1e-4, "batch": 32, "per_class": None, "seed": 0, "layers": None}
OPTIONS = {
    "error": {},
    "calibration": {"bins": 10},
    "localization": {},
    "background": {"seed": 0},
    "corruption": {"severities": [1, 2, 3, 4, 5], "corruptions": [], "seed": 0},
    "speech": {},
    "gradient_norm": {"ks": [1, 3, 5, 7, 9], "batches": 20, "seed": 0},
    "training_time": {"ks": [1, 3, 5, 7, 9], "repeats": 5, "seed": 0},
}


def subject(**changes):
    split = Images(torch.zeros(2, 1, 2, 2), torch.tensor([0, 1]), ("a", "b"))
    return Subject(nn.Linear(4, 2), lambda: Parts(split), Augment(), **{"samples": SAMPLES, "usual": SAMPLES, **changes})


def test_all_measures_are_registered():
    assert set(MEASURES) == {*OPTIONS, "transfer"}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_a_row_is_found_by(name):
    query = query_for(name, subject(), measure_named(name).defaults, "last")
    extra = {"labels"} | ({"device", "threads", "processor"} if name == "training_time" else set())
    assert set(query.options) == {*SAMPLES, *OPTIONS[name], *extra}
    assert {key: query.options[key] for key in (*SAMPLES, *OPTIONS[name])} == {**SAMPLES, **OPTIONS[name]}
    assert (query.variant, query.folder) == ("", f"evaluation/{name}")


def test_a_smoke_run_is_timed_with_fewer_repeats():
    query = query_for("training_time", subject(scale="smoke"), measure_named("training_time").defaults, "last")
    assert (query.options["repeats"], query.variant) == (2, "")
    query = query_for("training_time", subject(scale="smoke"), {"ks": (1, 3, 5, 7, 9), "repeats": 5, "seed": 0}, "last")
    assert (query.options["repeats"], query.variant) == (5, "repeats = 5")


def test_the_options_of_a_transfer_have_its_name_and_no_samples(monkeypatch):
    birds = (SimpleNamespace(labels=torch.tensor([0])),) * 2
    monkeypatch.setattr("multimix.lab.evaluation.transfer.birds", lambda folder, options: birds)
    query = query_for("transfer", subject(folder="."), {"transfer": TransferOptions(count=3, lr=0.1)}, "last")
    given = {f"transfer.{name}": value for name, value in (TRANSFER | {"count": 3, "lr": 0.1}).items()}
    assert {key: value for key, value in query.options.items() if key != "labels"} == given
    assert query.variant == "transfer.lr = 0.1", "more epochs change none of those before"


def test_what_is_unusual_is_named_in_order():
    other = subject(samples={**SAMPLES, "per_class": 2})
    assert query_for("calibration", other, {"bins": 50}, "last").variant == "per_class = 2, bins = 50"
    query = query_for("corruption", subject(), {"severities": (1, 5), "corruptions": ("blur",), "seed": 0}, "best")
    assert query.variant == "severities = 1 5, corruptions = blur"
    assert query.folder.startswith("evaluation/corruption@best-")


def test_rows_record_the_kind_of_batch_norm_statistics():
    network = subject()
    queries = {way: query_for("error", network, {}, "last", way) for way in ("as_trained", "recomputed")}
    assert "batchnorm" not in queries["as_trained"].options, "stored rows without the option are found again"
    assert queries["recomputed"].options["batchnorm"] == "recomputed"
    assert queries["recomputed"].variant == "batchnorm = recomputed"
    assert queries["recomputed"].weights == queries["as_trained"].weights, "the digest is that of the trained weights"
