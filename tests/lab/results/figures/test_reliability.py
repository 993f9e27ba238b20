"""The reliability diagram: files that can be opened, and bars that are as high as the numbers say."""

import io
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

from multimix.lab.evaluation.calibration import Scaling, calibration, temperature_scaling
from multimix.lab.evaluation.predictions import Predictions
from multimix.lab.results.figures import reliability
from multimix.lab.results.figures.reliability import reliability_figures


def some_predictions(samples=200):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(samples, 5, generator=generator)
    return Predictions(logits, torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1))


@pytest.fixture
def drawn(monkeypatch):
    """The figure itself, before it became bytes."""
    kept = []
    monkeypatch.setattr(reliability, "save", lambda name, figure, *title: kept.append((figure, title)) or {})

    def draw(*arguments, words=False):
        reliability_figures(*arguments)
        return kept[-1][words]

    return draw


@pytest.mark.parametrize("samples", [1, 2, 200])
def test_files_can_be_opened_and_are_light(samples):
    found = reliability_figures(calibration(some_predictions(samples)), r"$\wrong for mathematics$")
    assert list(found) == ["reliability.png", "reliability.svg"]
    with Image.open(io.BytesIO(found["reliability.png"])) as picture:
        assert min(picture.size) > 600
        assert picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 50
    assert ElementTree.fromstring(found["reliability.svg"]).tag.endswith("svg")


def test_the_same_numbers_give_the_same_bytes():
    whole = some_predictions()
    first, second = (reliability_figures(calibration(whole), "x", temperature_scaling(whole)) for _ in range(2))
    assert first == second


def test_bars_are_as_high_as_the_numbers(drawn):
    found = calibration(some_predictions())
    upper, lower = drawn(found).axes
    filled = [entry for entry in found.bins if entry.count]
    assert 3 < len(filled) < 10
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height()) for bar in upper.patches]
    expected = []
    for entry in filled:
        middle = (entry.low + entry.high) / 2
        expected += [(middle, 0, entry.accuracy), (middle, entry.accuracy, entry.confidence - entry.accuracy)]
    assert [value for bar in bars for value in bar] == pytest.approx([value for bar in expected for value in bar])
    assert [bar.get_height() for bar in lower.patches] == pytest.approx([entry.count / 2 for entry in found.bins])
    lines = {line.get_label().split()[0]: list(line.get_xdata()) for line in lower.lines}
    assert lines == {"accuracy": [found.accuracy] * 2, "mean": [found.confidence] * 2}
    diagonal = next(line for line in upper.lines if line.get_label() == "calibrated")
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 100]


def test_each_thing_is_in_the_legend_once(drawn):
    upper, lower = drawn(calibration(some_predictions())).axes
    words = [text.get_text() for text in upper.get_legend().get_texts()]
    assert sorted(words) == ["95 % interval", "accuracy", "calibrated", "gap to confidence"]
    assert len(lower.get_legend().get_texts()) == 2


def test_words(drawn):
    found = calibration(some_predictions(1))
    assert drawn(found, words=True) == ("", f"ECE {found.ece:.2f} % · 10 bins · 1 sample")
    found = calibration(some_predictions(), 15)
    assert drawn(found, "a name", words=True) == ("a name", f"ECE {found.ece:.2f} % · 15 bins · 200 samples")


def test_what_a_temperature_does_is_said(drawn):
    found = calibration(some_predictions())
    known = Scaling("validation", 1200, 200, 1.23456, 9.876, 1.234, 0.9, 0.8)
    words = drawn(found, "", known, words=True)[-1]
    assert words == "Temperature 1.235, fitted on 1,200 samples (validation): ECE 9.88 % → 1.23 % on 200 samples."
    unknown = Scaling("validation", 1, 200, None, 9.876, None, 0.9, None)
    assert drawn(found, "", unknown, words=True)[-1] == "No temperature is the best on 1 sample (validation)."
