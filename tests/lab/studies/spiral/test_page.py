"""The page of a tiny study, in a real browser and as a file."""

import html
import io
import json
import re

import pytest
from PIL import Image

from browser import in_browser, opened, sound
from multimix.lab.recipes.spiral import ARMS, SpiralSettings
from multimix.lab.studies.spiral import runs
from multimix.lab.studies.spiral.page import write_report


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spiral")
    result = runs.run_study(SpiralSettings(epochs=4), seeds=range(3), out=folder)
    return result, write_report(result, folder)


@in_browser
def test_the_page_opens_without_a_message(tiny, tmp_path):
    dom, console = opened(tiny[1].page, tmp_path / "profile")
    assert console == []
    assert "<h1>The noisy spiral" in dom


@in_browser
def test_the_page_is_worth_showing(tiny, tmp_path):
    assert len(sound(tiny[1].page, tmp_path)["drawings"]) == 6


def test_the_page_holds_numbers_settings_and_the_paper_beside_ours(tiny):
    result, written = tiny
    text = html.unescape(written.page.read_text())
    for arm in ARMS:
        values = result.accuracies(arm)
        assert f"<td>{arm.words}</td><td>3</td><td>{sum(values) / 3:.2f} ± " in text
        assert f"<td>{arm.paper:.2f}</td>" in text
        assert f"{arm.words}, seed {result.median_run(arm).seed}: {sorted(values)[1]:.2f} % right" in text
    for paper in ("+3.50", "+6.83", "+3.33"):
        assert f"<td>{paper}</td>" in text
    assert text.count("one run, generator and settings not published") == 2
    assert "This was a short run (4 of 3,000 epochs, 3 seeds)" in text
    assert "<dt>decay</dt><dd>0.0001</dd>" in text
    assert "<dt>seeds</dt><dd>0, 1, 2</dd>" in text
    assert "9 runs: multimix" in text
    assert "Expected beforehand" not in text
    assert not re.search(r"nan\b", re.sub(r"base64,[^\"]+", "", text))
    assert not re.search(r"(src|href)=[\"'](?!data:|#)", text)
    assert all(re.search(r'aria-label="[^"]{20,}"', drawing) for drawing in re.findall(r"<svg [^>]+>", text))


def test_the_pictures_are_pictures(tiny):
    for path in tiny[1].figures:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            assert image.width > 600
            assert len(image.convert("RGB").getcolors(10**6)) > 50


def test_numbers_are_stored_and_the_report_comes_back_from_them(tiny, tmp_path, monkeypatch):
    result, written = tiny
    stored = json.loads(written.results.read_text())
    assert stored["accuracy"] == {arm.name: result.accuracies(arm) for arm in ARMS}
    assert stored["paired"]["multimix-k5 - manifold-k1"]["n"] == 3
    monkeypatch.setattr(runs, "train_networks", None)
    again = write_report(runs.read_runs(result.settings, seeds=result.seeds, out=written.page.parent), tmp_path)
    assert again.page.read_bytes() == written.page.read_bytes()
    assert again.results.read_bytes() == written.results.read_bytes()
    assert [path.read_bytes() for path in again.figures] == [path.read_bytes() for path in written.figures]


def test_one_seed_and_a_collapsed_run_make_a_page_too(tmp_path):
    weights = (0.0,) * 326  # says label 0 everywhere: no boundary to draw
    of_arm = {arm.name: (runs.SpiralRun(0, 300, 600, weights, 1.0, {"torch": "x"}),) for arm in ARMS}
    written = write_report(runs.SpiralResult(SpiralSettings(), (0,), of_arm), tmp_path)
    text = re.sub(r"base64,[^\"]+", "", html.unescape(written.page.read_text()))
    assert "no mixup: 1 of 1" in text
    assert "nan" not in text.lower()
    assert json.loads(written.results.read_text())["summary"]["none"]["half"] is None


def test_a_folder_that_cannot_be_written_is_one_sentence(tiny, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="out must be a folder, .* is a file"):
        write_report(tiny[0], tmp_path / "file")
