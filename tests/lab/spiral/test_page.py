"""The page of a tiny study, in a real browser and as a file."""

import html
import io
import json
import re
import shutil
import subprocess

import pytest
from PIL import Image

from multimix.lab.report import POLICY
from multimix.lab.spiral import page, study
from multimix.lab.spiral.settings import ARMS, SpiralSettings

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH")

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom"),
]

PROBE = """<pre id="report"></pre><script>setTimeout(() => {
  const loaded = [...document.images].map((image) => image.naturalWidth > 0);
  const asked = performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:"));
  const told = { loaded, asked, inner: innerWidth, wide: document.documentElement.scrollWidth };
  document.getElementById("report").textContent = JSON.stringify(told);
  parent.postMessage(told, "*");
}, 500)</script></body>"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spiral")
    result = study.run(SpiralSettings(epochs=4), seeds=range(3), out=folder)
    return result, page.write(result, folder)


def opened(path, profile):
    """The DOM after three virtual seconds, and what the console said."""
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def with_probe(text):
    """The page without its policy, which would stop the probe, and any request with it."""
    assert POLICY in text
    return re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", PROBE)


@in_browser
def test_the_page_opens_without_a_message_or_a_request(tiny, tmp_path):
    _, written = tiny
    dom, console = opened(written.page, tmp_path / "first")
    assert console == []
    assert "<h1>The noisy spiral" in dom
    copy = tmp_path / "copy.html"
    copy.write_text(with_probe(written.page.read_text()))
    dom, console = opened(copy, tmp_path / "second")
    told = json.loads(html.unescape(re.search(r'<pre id="report">(.*?)</pre>', dom, re.S)[1]))
    assert (console, told["asked"], told["loaded"]) == ([], [], [True] * 6)


@in_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_cut_off_at_the_side(tiny, tmp_path, width):
    (tmp_path / "inner.html").write_text(with_probe(tiny[1].page.read_text()))
    outer = tmp_path / "outer.html"  # a window cannot be made this narrow, a frame can
    outer.write_text(f"""<body><p>nothing</p><script>addEventListener("message", (event) => {{
      document.querySelector("p").textContent = event.data.inner + "," + event.data.wide; }});
      </script><iframe src="inner.html" style="width: {width}px; height: 800px; border: 0"></iframe></body>""")
    dom, _ = opened(outer, tmp_path / "profile")
    assert re.search(r"<p>(.*?)</p>", dom)[1] == f"{width},{width}"


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
    assert re.search(r"decay +0.0001\n", text)
    assert re.search(r"seeds +0, 1, 2\n", text)
    assert "9 runs: multimix" in text
    assert "Expected beforehand" not in text
    assert not re.search(r"nan\b", re.sub(r"base64,[^\"]+", "", text))
    assert not re.search(r"(src|href)=[\"'](?!data:)", text)
    assert all(re.search(r'alt="[^"]{20,}"', image) for image in re.findall(r"<img [^>]+>", text))


def test_the_pictures_are_pictures(tiny):
    for path in tiny[1].pictures:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            assert image.width > 800
            assert len(image.convert("RGB").getcolors(10**6)) > 50


def test_numbers_are_stored_and_the_report_comes_back_from_them(tiny, tmp_path, monkeypatch):
    result, written = tiny
    stored = json.loads(written.numbers.read_text())
    assert stored["accuracy"] == {arm.name: result.accuracies(arm) for arm in ARMS}
    assert stored["paired"]["multimix-k5 - manifold-k1"]["n"] == 3
    monkeypatch.setattr(study, "trained", None)
    again = page.write(study.rebuilt(result.settings, seeds=result.seeds, out=written.page.parent), tmp_path)
    assert again.page.read_bytes() == written.page.read_bytes()
    assert again.numbers.read_bytes() == written.numbers.read_bytes()
    assert [path.read_bytes() for path in again.pictures] == [path.read_bytes() for path in written.pictures]


def test_one_seed_and_a_collapsed_run_make_a_page_too(tmp_path):
    weights = (0.0,) * 326  # says label 0 everywhere: no boundary to draw
    runs = {arm.name: (study.Run(0, 300, 600, weights, 1.0, {"torch": "x"}),) for arm in ARMS}
    written = page.write(study.SpiralResult(SpiralSettings(), (0,), runs), tmp_path)
    text = re.sub(r"base64,[^\"]+", "", html.unescape(written.page.read_text()))
    assert "no mixup: 1 of 1" in text
    assert "nan" not in text.lower()
    assert json.loads(written.numbers.read_text())["summary"]["none"]["half"] is None


def test_a_folder_that_cannot_be_written_is_one_sentence(tiny, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="cannot write into"):
        page.write(tiny[0], tmp_path / "file")
