"""The page opened in a real browser, its tables, and the figures."""

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from browser import in_browser, in_frame, opened
from multimix import CutMix, InputMixup, NoMix
from multimix.lab.studies.digits.arms import Arm
from multimix.lab.studies.digits.figures import COLOURS, DOT_ALPHA, GREY
from multimix.lab.studies.digits.study import written
from multimix.lab.studies.digits.train import Outcome, Settings

ARMS = (
    Arm("none", None, NoMix()),
    Arm("smoothing", None, NoMix(), 0.1),
    *(Arm("mixup", k, InputMixup(k=k)) for k in (1, 5)),
    *(Arm("cutmix", k, CutMix(k=k)) for k in (1, 5)),
)


def made_up(arm, place, seed):
    error = 5 + seed - place / 2 + 0.1 * (place * seed % 3)
    return Outcome(error, 2 + place, 0.123456, 0.34567, 90.0, 0.0, 1.5 * (arm.k or 1), 25_000, "arm", "split", "start")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    results = {arm: {seed: made_up(arm, place, seed) for seed in range(3)} for place, arm in enumerate(ARMS)}
    return written(results, Settings(), tmp_path_factory.mktemp("digits"))


@in_browser
def test_the_page_opens_without_a_message(files, tmp_path):
    dom, console = opened(files.page, tmp_path / "profile")
    assert console == []
    assert "Every method on real digits" in dom


@in_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_requested_broken_or_cut_off(files, tmp_path, width):
    report = in_frame(files.page, width, tmp_path)
    assert report["requests"] == []
    assert report["widths"] == [width, width]
    assert len(report["pictures"]) == 3
    assert min(report["pictures"]) > 1000
    assert all(sentence in report["text"] for sentence in files.findings)


def test_the_page_holds_the_figures_and_words_for_them(files):
    text = files.page.read_text()
    embedded = [base64.b64decode(found) for found in re.findall(r'src="data:image/png;base64,([^"]+)"', text)]
    assert embedded == [path.read_bytes() for path in files.figures]
    assert len(re.findall(r'<img [^>]*alt="[^"]{20,}"', text)) == 3
    assert "250 training samples (25 per class), 1,547 test samples, 500 optimiser steps" in text
    assert len(text) < 1_000_000


def cells(text):
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)]
    return {row[0]: row[1:] for row in rows if row}


def test_the_tables_hold_the_numbers(files):
    means, error, ece = map(cells, re.findall(r"<table>.*?</table>", files.page.read_text(), re.S))
    assert list(means) == [arm.label for arm in ARMS]
    # Errors 5, 6, 7: deviation 1, t(0.975, 2) = 4.3027, divided by the root of 3.
    assert means["none"] == ["3", "6.00 ± 2.48", "2.00 ± 0.00", "−4.00", "0.1235", "0.346", "1.50", "25,000"]
    assert list(error) == list(ece)
    assert list(error)[-2:] == ["mixup, K = 5 − 1", "cutmix, K = 5 − 1"]
    assert error["mixup, K = 1 − none"][:2] == ["−0.90 ± 0.25", "3 of 3"]
    assert ece["mixup, K = 1 − none"] == ["+2.00", "0 of 3", "0.250", "1.000", "0.250", "3"], "no spread: that of the sign test"


def test_the_terminal_table_has_a_line_per_arm(files):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(files.table)
    text = console.export_text()
    assert "…" not in text, "everything must fit a terminal of 80 columns"
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if "±" in line and "Digits" not in line]
    assert [line[0] for line in lines] == [arm.label for arm in ARMS]
    assert lines[2][1:] == ["5.10 ± 2.62", "−0.90", "4.00 ± 0.00", "+2.00", "1.50"]


def test_the_strip_figure_shows_every_seed_and_mean_in_the_colour_of_its_k(files):
    with Image.open(files.figures[0]) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    for colour in (GREY, COLOURS[0], COLOURS[1]):
        solid = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        assert (pixels == solid).all(axis=1).sum() > 300  # bars and means
        dots = 255 - DOT_ALPHA * (255 - solid)  # on white
        assert (abs(pixels - dots) < 2).all(axis=1).sum() > 300
    assert (pixels == 255).all(axis=1).mean() > 0.7


def test_one_seed_is_written_without_intervals_or_tests(tmp_path):
    results = {arm: {0: made_up(arm, place, 0)} for place, arm in enumerate(ARMS)}
    files = written(results, Settings(), tmp_path)
    means, error, _ = map(cells, re.findall(r"<table>.*?</table>", files.page.read_text(), re.S))
    assert means["none"][1] == "5.00"
    assert error["smoothing − none"] == ["−0.50", "1 of 1", "–", "–", "–", "1"]
    assert json.loads(files.results.read_text())["comparisons"][0]["half"] is None
