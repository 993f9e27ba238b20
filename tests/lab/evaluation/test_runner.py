"""Stored rows are found again: the options that identify them stay the same."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from multimix.lab.data import Augment, Images
from multimix.lab.evaluation.background import BACKGROUNDS
from multimix.lab.evaluation.base import measure_named
from multimix.lab.evaluation.cache import EVALUATIONS, find_row
from multimix.lab.evaluation.corruption import COMMON
from multimix.lab.evaluation.names import MEASURES
from multimix.lab.evaluation.runner import query_for
from multimix.lab.evaluation.subject import Parts, Subject
from multimix.lab.storage import append_row

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


def subject(network=None, **changes):
    split = Images(torch.zeros(2, 1, 2, 2), torch.tensor([0, 1]), ("a", "b"))
    return Subject(
        network or nn.Linear(4, 2), lambda: Parts(split), Augment(), **{"samples": SAMPLES, "usual": SAMPLES, **changes}
    )


def test_every_measure_has_a_function():
    assert set(MEASURES) == {*OPTIONS, "transfer"}
    functions = {name: measure_named(name).find for name in MEASURES}
    assert {name: function.__module__ for name, function in functions.items()} == {
        name: f"multimix.lab.evaluation.{name}" for name in MEASURES
    }
    assert len(set(functions.values())) == len(MEASURES)


def test_columns_have_the_names_of_the_modules():
    assert MEASURES["background"].columns == ("n", "clean", *BACKGROUNDS)
    assert MEASURES["corruption"].columns == ("n", "clean", *COMMON)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_a_row_is_found_by(name):
    query = query_for(name, subject(), {}, "last")
    extra = {"labels"} | ({"device", "threads", "processor"} if name == "training_time" else set())
    assert set(query.options) == {*SAMPLES, *OPTIONS[name], *extra}
    assert {key: query.options[key] for key in (*SAMPLES, *OPTIONS[name])} == {**SAMPLES, **OPTIONS[name]}
    assert (query.variant, query.folder) == ("", f"evaluation/{name}")


def test_a_smoke_run_is_timed_with_fewer_repeats():
    query = query_for("training_time", subject(scale="smoke"), {}, "last")
    assert (query.options["repeats"], query.variant) == (2, "")
    query = query_for("training_time", subject(scale="smoke"), {"repeats": 5}, "last")
    assert (query.options["repeats"], query.variant) == (5, "repeats = 5")


@pytest.fixture
def cub(monkeypatch):
    parts = (SimpleNamespace(labels=torch.tensor([0])),) * 2
    monkeypatch.setattr("multimix.lab.evaluation.transfer.birds", lambda folder, per_class, seed: parts)
    monkeypatch.setattr("multimix.lab.evaluation.transfer.last_stage", lambda network: ("stage4",))


def test_the_options_of_a_transfer_have_its_name_and_no_samples(cub):
    query = query_for("transfer", subject(folder="."), {"count": 3, "lr": 0.1}, "last")
    given = {f"transfer.{name}": value for name, value in (TRANSFER | {"count": 3, "lr": 0.1}).items()}
    assert {key: value for key, value in query.options.items() if key != "labels"} == given
    assert query.variant == "transfer.lr = 0.1", "more epochs change none of those before"


IMAGES = SimpleNamespace(data=SimpleNamespace(name="tiny_imagenet", entry=lambda: SimpleNamespace(layout="images")))
RUN = {"folder": Path("."), "settings": IMAGES, "scale": "smoke"}
STEPS = {"unit": "step", "batch": 32, "per_class": None, "layers": ("stage4.2",), "count": 10}
ALL_BIRDS = "transfer.unit = step, transfer.batch = 32, transfer.per_class = None, transfer.layers = stage4.2"
# Subject, options, and the fields of the row that commit 76fdf50 stored for them.
STORED = [
    ("calibration", {}, {"bins": 10}, "", {**SAMPLES, "bins": 10, "labels": "4b206b2193"}),
    ("calibration", {}, {"bins": 15}, "bins = 15", {**SAMPLES, "bins": 15, "labels": "4b206b2193"}),
    (
        "corruption",
        {"samples": {**SAMPLES, "per_class": 100}},
        {"severities": (1, 3, 5)},
        "per_class = 100, severities = 1 3 5",
        {**SAMPLES, "per_class": 100, "severities": [1, 3, 5], "corruptions": [], "seed": 0, "labels": "4b206b2193"},
    ),
    (
        "transfer",
        RUN,
        {},
        "",
        {
            "transfer.unit": "epoch",
            "transfer.count": 2,
            "transfer.lr": 0.0001,
            "transfer.batch": 10,
            "transfer.per_class": 1,
            "transfer.seed": 0,
            "transfer.layers": ["stage4"],
            "labels": "af488a681d",
        },
    ),
    (
        "transfer",
        RUN,
        STEPS,
        ALL_BIRDS,
        {
            "transfer.unit": "step",
            "transfer.count": 10,
            "transfer.lr": 0.0001,
            "transfer.batch": 32,
            "transfer.per_class": None,
            "transfer.seed": 0,
            "transfer.layers": ["stage4.2"],
            "labels": "af488a681d",
        },
    ),
]


@pytest.mark.parametrize(("name", "more", "given", "variant", "options"), STORED)
def test_rows_of_earlier_versions_are_found(tmp_path, cub, name, more, given, variant, options):
    network = nn.Linear(4, 2)
    with torch.no_grad():
        network.weight.fill_(0.5)
        network.bias.zero_()
    weights = "b28429f2121f9d5b7e3291c8b0dba283b612773bc103da630cc5a1eecf52bc38"
    row = {"on": name, "checkpoint": "last", "weights": weights, "options": options, "variant": variant, "file": None}
    append_row(tmp_path / EVALUATIONS, {**row, "numbers": {"n": 2}, "result": {}})
    query = query_for(name, subject(network, **more), given, "last")
    assert (dict(query.options), query.variant) == (options, variant)
    assert list(query.options) == list(options)
    assert find_row(tmp_path, query)["numbers"] == {"n": 2}


def test_what_is_unusual_is_named_in_order():
    other = subject(samples={**SAMPLES, "per_class": 2})
    assert query_for("calibration", other, {"bins": 50}, "last").variant == "per_class = 2, bins = 50"
    query = query_for("corruption", subject(), {"severities": (1, 5), "corruptions": ("blur",)}, "best")
    assert query.variant == "severities = 1 5, corruptions = blur"
    assert query.folder.startswith("evaluation/corruption@best-")


def test_rows_record_the_kind_of_batch_norm_statistics():
    network = subject()
    queries = {way: query_for("error", network, {}, "last", way) for way in ("as_trained", "recomputed")}
    assert "batchnorm" not in queries["as_trained"].options, "stored rows without the option are found again"
    assert queries["recomputed"].options["batchnorm"] == "recomputed"
    assert queries["recomputed"].variant == "batchnorm = recomputed"
    assert queries["recomputed"].weights == queries["as_trained"].weights, "the digest is that of the trained weights"
