"""Options of measures as typed on the command line."""

import inspect
import re

import pytest

from multimix.lab.commands.evaluate import evaluate
from multimix.lab.evaluation.base import measure_named
from multimix.lab.evaluation.names import MEASURES
from multimix.lab.evaluation.options import option_types, parse_options
from multimix.lab.evaluation.subject import View


def test_values_have_the_types_of_the_options():
    texts = {"severities": "1,3", "corruptions": "blur, jpeg", "seed": "2", "unit": "step", "lr": "1e-3", "layers": "stage4.2"}
    options, view = parse_options({**texts, "per-class": "none"}, ["corruption", "transfer"])
    expected = {"severities": (1, 3), "corruptions": ("blur", "jpeg"), "seed": 2, "unit": "step", "lr": 1e-3}
    assert options == {**expected, "layers": ("stage4.2",), "per_class": None}
    assert view == View()


def test_a_view_goes_with_any_measure():
    options, view = parse_options({"mean": "0.5,0.4,0.3", "std": "1", "crop": "64", "foreign": "true"}, ["error"])
    assert (options, view) == ({}, View((0.5, 0.4, 0.3), (1.0,), 64, foreign=True))


@pytest.mark.parametrize(
    ("name", "text", "on", "words"),
    [
        ("bin", "15", "error", ["'bin'", "did you mean 'bins'", "calibration takes bins", "mean, std, crop, foreign"]),
        ("bins", "15", "error", ["bins", "calibration"]),
        ("ks", "1", "error", ["ks", "gradient_norm and training_time"]),
        ("bins", "x", "calibration", ["bins", "'x'"]),
        ("unit", "steps", "transfer", ["unit", "epoch, step", "'steps'"]),
        ("crop", "large", "error", ["crop", "'large'"]),
    ],
)
def test_errors_name_the_option_and_who_takes_it(name, text, on, words):
    with pytest.raises(ValueError, match=name) as caught:
        parse_options({name: text}, [on])
    assert [word for word in words if word not in str(caught.value)] == []


def test_the_help_lists_every_option_with_its_default():
    listed = {}
    for line in inspect.getdoc(evaluate).split("for --set")[1].split("Try it:")[0].splitlines()[1:]:
        name, _, rest = line.strip().partition("  ")
        if given := re.findall(r"(\w+)=(\S*)", rest.partition("(")[0]):
            listed[name] = dict(given)
    assert listed.pop("any measure") == dict.fromkeys(("mean", "std", "crop"), "none") | {"foreign": "false"}
    assert list(listed) == [name for name in MEASURES if option_types(name)]
    for name, texts in listed.items():
        assert parse_options(texts, [name])[0] == measure_named(name).defaults
