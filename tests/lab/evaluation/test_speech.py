"""The best epoch of a log, and the error of its network asked sample by sample; a real training that selects."""

import copy
import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from torch import nn

import multimix as mm
from multimix.lab.data import Augment, Images, Normalise, Splits
from multimix.lab.evaluation.predictions import READING, Reading
from multimix.lab.evaluation.speech import measure_selected
from multimix.lab.evaluation.subject import Parts, Subject
from multimix.lab.recipes.settings import Data
from multimix.lab.training.log import Epoch, is_best, outcome
from multimix.lab.training.loop import Training
from trial import settings, splits

SELECTING = SimpleNamespace(data=SimpleNamespace(select="validation"))
AUGMENT = Augment([Normalise((0.0,), (1.0,))])


class First(nn.Module):
    """The class is the first pixel: wrong where the label is another."""

    def forward(self, x):
        return 10 * torch.eye(3, dtype=x.dtype)[(255 * x[:, 0, 0, 0]).round().long()]


def part(said, true):
    pixels = torch.zeros(len(said), 1, 2, 2, dtype=torch.uint8)
    pixels[:, 0, 0, 0] = torch.tensor(said, dtype=torch.uint8)
    return Images(pixels, torch.tensor(true), ("a", "b", "c"))


TEST = part([0, 1, 2, 0, 1, 2, 0], [0, 1, 2, 0, 1, 0, 1])  # 2 of 7 wrong
VALIDATION = part([0, 1, 2, 2], [0, 1, 2, 0])  # 1 of 4 wrong


def epoch(number, selection_error, error):
    return Epoch(number, 10 * number, 0.1, 1.0, 50.0, 2.0, 100, 100, 1.0, 1.0, error, None, 1.0, selection_error)


LOG = [epoch(1, 50.0, 10.0), epoch(2, 25.0, 200 / 7), epoch(3, None, None), epoch(4, 25.0, 0.0), epoch(5, 30.0, 0.0)]


def speech(network, split, augment, log=(), reading=READING, *, selection=None):
    parts = Parts(split, selection)
    subject = Subject(network, lambda: parts, augment, samples={}, usual={}, settings=SELECTING, history=tuple(log))
    return measure_selected(subject, reading).result


def test_an_epoch_to_select_by_is_needed():
    with pytest.raises(ValueError, match="epochs must have a selection_error to select by, none of the 1 has one"):
        speech(First(), TEST, AUGMENT, [epoch(1, None, 10.0)])


@pytest.mark.parametrize("selection", [None, VALIDATION])
def test_the_error_of_the_selected_network(selection):
    found = speech(First(), TEST, AUGMENT, LOG, Reading(3), selection=selection)
    assert (found.error.count, found.error.n) == (2, 7)
    assert (found.selected_epoch, found.validation_error, found.recorded_error) == (2, 25.0, 200 / 7)
    assert outcome(LOG).selected_epoch == 2
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["error"]["count"] == 2


def test_any_network_without_a_log():
    found = speech(First(), TEST, AUGMENT)
    assert (found.error.count, found.selected_epoch, found.validation_error, found.recorded_error) == (2, None, None, None)
    assert speech(First(), TEST, AUGMENT, selection=VALIDATION).validation_error == 25.0


def test_another_network_than_the_log_says_is_refused():
    other = [replace(one, error=100 / 7) if one.number == 2 else one for one in LOG]
    words = (
        "network must be that of epoch 2, the first with the least selection_error: the log has 14.29 % as its error, "
        "measured is 28.57 % of 7 samples"
    )
    with pytest.raises(ValueError, match=words):
        speech(First(), TEST, AUGMENT, other)
    with pytest.raises(ValueError, match=r"the log has 50.00 % as its selection_error, measured is 25.00 % of 4 samples"):
        speech(First(), TEST, AUGMENT, [epoch(2, 50.0, 200 / 7)], selection=VALIDATION)
    with pytest.raises(ValueError, match="the log has none as its error"):
        speech(First(), TEST, AUGMENT, [epoch(2, 50.0, None)])
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        speech(First(), TEST, AUGMENT, LOG, Reading(0))


def parted():
    """The digits with a part to select by."""
    whole = splits()
    odd = torch.arange(len(whole["test"])) % 2 == 1
    halves = {"validation": odd, "test": ~odd}
    parts = {
        name: replace(whole["test"], pixels=whole["test"].pixels[rows], labels=whole["test"].labels[rows])
        for name, rows in halves.items()
    }
    return Splits("digits", {"train": whole["train"], **parts})


class Best:
    """Keeps the network of the best epoch, and that of the last."""

    def __init__(self, training):
        self.training = training

    def step(self, row, images): ...

    def doing(self, what): ...

    def due(self, updates):
        return False

    def between(self, updates, state, due): ...

    def epoch(self, history):
        self.last = copy.deepcopy(self.training.network)
        if is_best(history):
            self.network = self.last


def test_the_best_network_of_a_training_that_selects():
    chosen = settings(data=Data("digits", per_class=20, select="validation"), method=mm.InputMixup(k=2), epochs=5)
    whole = parted()
    training = Training(chosen, 0, whole, Accelerator(cpu=True))
    best = Best(training)
    training.run(best)
    log, augment = training.at.history, chosen.augment.evaluation(chosen.data.entry())
    found = speech(best.network, training.report, augment, log, selection=training.select)
    assert (found.selected_epoch, found.error.percent) == (outcome(log).selected_epoch, pytest.approx(outcome(log).selected))
    assert found.error.n == len(whole["test"])
    assert found.selected_epoch != 1
    first = [one for one in log if one.number == 1]
    with pytest.raises(ValueError, match="network must be that of epoch 1"):
        speech(best.network, training.report, augment, first)
