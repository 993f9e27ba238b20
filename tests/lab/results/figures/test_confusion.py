"""The confusion figure shows the classes that have samples, and names the most frequent confusions."""

import pytest
import torch

from multimix.lab.evaluation.error import errors
from multimix.lab.evaluation.predictions import Predictions
from multimix.lab.results.figures.confusion import confusion_figures


def predicted(pairs, classes):
    logits = torch.zeros(len(pairs), classes)
    for row, (_, guess) in enumerate(pairs):
        logits[row, guess] = 1
    return errors(Predictions(logits, torch.tensor([true for true, _ in pairs])))


def test_names_and_shape():
    found = predicted([(0, 0), (0, 1), (0, 1), (2, 2), (2, 0)], 4)
    files = confusion_figures(found, ["ant", "bee", "cow", "dog"], "a title with $math$ signs")
    assert set(files) == {"confusion.png", "confusion.svg"}
    assert files["confusion.png"].startswith(b"\x89PNG")
    assert confusion_figures(found, ["ant", "bee", "cow", "dog"])["confusion.png"] != files["confusion.png"], "the title"


def test_without_errors_and_with_wrong_names():
    assert confusion_figures(predicted([(0, 0), (1, 1)], 2), ["a", "b"])["confusion.png"]
    with pytest.raises(ValueError, match="classes must be the 2 names of the predictions' classes, got 1"):
        confusion_figures(predicted([(0, 0), (1, 1)], 2), ["a"])
