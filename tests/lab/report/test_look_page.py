"""The page, opened in a real browser: a script appended to a copy of it uses it as a visitor would and reports into the DOM."""

import base64
import html
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

import multimix as mm
from browser import in_browser, in_frame, opened
from multimix import CutMix, Cutout, FMix, InputMixup
from multimix.lab.report.pages.look import POSITIONS, Card, as_letters, look_page, marked_up
from multimix.lab.studies.look import cat, dog, write_look
from multimix.lab.studies.look.pictures import to_image
from multimix.lab.studies.look.steps import steps

METHODS = {"cutout": Cutout(length=128, fill=0.5), "mixup": InputMixup(), "cutmix": CutMix(), "fmix": FMix()}

PAIR = [np.asarray(to_image(picture, 16)) for picture in (cat(16), dog(16))]

PROBE = """
<pre id="report"></pre>
<script>
  const wait = (time) => new Promise((done) => setTimeout(done, time));
  (async () => { %s })().then((report) => {
    document.getElementById("report").textContent = JSON.stringify(report);
  });
</script>
"""

READ = """
  const read = () => ({
    asked: document.getElementById("asked").textContent,
    spoken: document.getElementById("lam").getAttribute("aria-valuetext"),
    cards: [...document.querySelectorAll(".card")].map((card) => ({
      name: card.querySelector("h2").textContent,
      src: card.querySelector("img").src,
      alt: card.querySelector("img").alt,
      lam: card.querySelector(".lam").textContent,
      a: card.querySelector(".of-a").textContent,
      b: card.querySelector(".of-b").textContent,
      bar: card.querySelector(".share").getBoundingClientRect().width / card.querySelector(".bar").getBoundingClientRect().width,
    })),
  });
  const slider = document.getElementById("lam");
  const play = document.getElementById("play");
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("look")
    return write_look(cat(), dog(), methods=list(METHODS), seed=0, out=folder)[1]


def report_of(page, tmp_path, script, *flags):
    copy = tmp_path / "copy.html"
    copy.write_text(page.read_text().replace("</body>", PROBE % script + "</body>"))
    dom, console = opened(copy, tmp_path / "profile", *flags)
    assert console == []
    return json.loads(html.unescape(re.search(r'<pre id="report">(.*?)</pre>', dom, re.S)[1]))


def shown(source):
    """The pixels of a data URI."""
    kind, _, content = source.partition(",")
    assert kind == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))).astype(int)


@in_browser
def test_the_page_opens_without_a_message_or_a_request(page, tmp_path):
    report = report_of(page, tmp_path, 'await wait(1000); return performance.getEntriesByType("resource").map((e) => e.name);')
    assert [name for name in report if not name.startswith("data:")] == []


@in_browser
def test_the_browser_would_report_messages_and_requests(tmp_path):
    noisy = tmp_path / "noisy.html"
    noisy.write_text("<body><script>new Image().src = 'http://127.0.0.1:9/pixel.png'; nonsense();</script></body>")
    _, console = opened(noisy, tmp_path / "first")
    assert "nonsense is not defined" in console[0]
    noisy.write_text("<body><script>new Image().src = 'http://127.0.0.1:9/pixel.png';</script></body>")
    script = 'await wait(1000); return performance.getEntriesByType("resource").map((e) => e.name);'
    assert report_of(noisy, tmp_path, script) == ["http://127.0.0.1:9/pixel.png"]


@in_browser
def test_the_slider_moves_every_method(page, tmp_path):
    positions = [0, 5, 10, 19, 20]
    script = f"""{READ}
      const seen = [];
      for (const position of {positions}) {{
        slider.value = position / 20;
        slider.dispatchEvent(new Event("input"));
        seen.push(read());
      }}
      return seen;"""
    report = report_of(page, tmp_path, script)
    assert [seen["asked"] for seen in report] == ["λ = 0.00", "λ = 0.25", "λ = 0.50", "λ = 0.95", "λ = 1.00"]
    assert [seen["spoken"] for seen in report] == [seen["asked"] for seen in report]
    expected = {name: steps(method, cat(), dog(), [i / 20 for i in range(21)], seed=0) for name, method in METHODS.items()}
    for position, seen in zip(positions, report, strict=True):
        assert [card["name"] for card in seen["cards"]] == list(METHODS)
        for card in seen["cards"]:
            frames, lam = expected[card["name"]].images, float(expected[card["name"]].lam[position])
            assert card["lam"] == f"λ = {lam:.2f}"
            assert card["bar"] == pytest.approx(lam, abs=0.005)
            assert [int(card[end].split()[1]) for end in ("a", "b")] == pytest.approx([100 - 100 * lam, 100 * lam], abs=0.51)
            assert card["alt"] == f"{card['name']}: {card['a']}, {card['b']}"
            near = [np.abs(shown(card["src"]) - np.asarray(to_image(frame, 256)).astype(int)).mean() for frame in frames]
            assert near[position] == min(near) < 4  # the frames are compressed, so near is all they can be


@in_browser
def test_every_frame_is_a_picture_the_browser_can_show(page, tmp_path):
    script = """
      const size = (frame) => new Promise((done) => {
        const image = new Image();
        image.onload = () => done(image.naturalWidth + "x" + image.naturalHeight);
        image.onerror = () => done("broken");
        image.src = "data:image/webp;base64," + frame;
      });
      return Promise.all(methods.flatMap((method) => method.frames.map(size)));"""
    assert report_of(page, tmp_path, script) == ["256x256"] * 21 * len(METHODS)


@in_browser
def test_play_moves_to_the_end_and_back_until_paused(page, tmp_path):
    script = """
      const slider = document.getElementById("lam"), play = document.getElementById("play");
      const seen = [[slider.value, play.textContent]];
      const note = () => seen.push([slider.value, play.textContent]);
      slider.value = 0.9;
      play.click(); await wait(230); note();
      await wait(700); note();
      play.click(); note();
      await wait(500); note();
      play.click(); await wait(200);
      slider.value = 0.1; slider.dispatchEvent(new Event("input")); note();
      await wait(500); note();
      return seen;"""
    start, rising, falling, paused, still, taken, rest = report_of(page, tmp_path, script)
    assert start == ["0.5", "Play"]
    assert 0.9 < float(rising[0]) <= 1
    assert rising[1] == falling[1] == "Pause"
    assert float(falling[0]) < 0.95
    assert paused == still == [falling[0], "Play"]
    assert taken == rest == ["0.1", "Play"]


@in_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_cut_off_or_faint(page, tmp_path, width):
    seen = in_frame(page, width, tmp_path)
    assert seen["widths"] == [width, width]
    assert seen["outside"] == seen["faint"] == []


@in_browser
def test_dark_and_light_follow_the_visitor(page, tmp_path):
    script = "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color];"
    light = report_of(page, tmp_path, script)
    dark = report_of(page, tmp_path, script, "--force-dark-mode")

    def brightness(color):
        return sum(map(int, re.findall(r"\d+", color)[:3]))

    assert brightness(light[0]) > 650 > 100 > brightness(light[1])
    assert brightness(dark[0]) < 100 < 650 < brightness(dark[1])


def test_the_page_is_one_light_file_with_words_for_everything(page):
    text = page.read_text()
    assert len(text) < 4_000_000
    assert not re.search(r"(src|href)=[\"'](?!data:)", text)
    assert "http" not in text.replace("http-equiv", "").partition('id="data"')[0]
    assert "{{" not in text
    assert re.search(r'<label for="lam">', text)
    assert all(re.search(r'alt="[^"]+"', image) for image in re.findall(r"<img [^>]+>", text))
    assert text.count('class="remark"') == 2  # cutout has no partner, and clipped boxes end before B
    assert text.count("It has no partner") == 1
    assert re.search(r"Here it ends at \d\d % of B", text)
    assert "square holes in every sample" in text
    assert "x̂<sub>k</sub> = (1 − λ<sub>k</sub>) A + λ<sub>k</sub> B" in text


def test_detailed_photographs_stay_light_too(tmp_path):
    noise = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    a, b = torch.nn.functional.interpolate(noise, 256, mode="bicubic").clamp(0, 1)
    _, html_path = write_look(a, b, methods=list(METHODS), out=tmp_path)
    assert html_path.stat().st_size < 4_000_000


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("λ_k^(1/d) of it", "λ<sub>k</sub><sup>1/d</sup> of it"),
        ("``side_k`` & <b>", "<code>side_k</code> &amp; &lt;b&gt;"),
        ("input_mixup stays", "input_mixup stays"),
        ("λ^c_k of τ_k^d over 2 w_k²", "λ<sup>c</sup><sub>k</sub> of τ<sub>k</sub><sup>d</sup> over 2 w<sub>k</sub>²"),
    ],
)
def test_docstring_signs_become_markup(sentence, expected):
    assert marked_up(sentence) == expected


def test_pictures_are_called_a_and_b():
    assert (
        as_letters("x̂_k is x' inside box k and x outside, exp(x) of max") == "x̂_k is B inside box k and A outside, exp(A) of max"
    )


def test_what_is_not_shown_has_a_reason(tmp_path):
    text = look_page(*PAIR, [Card("a", "", np.stack([PAIR[0]] * 3), [0.0, 0.5, 1.0], True)], {"hidden<": "it mixes <layers>"})
    assert "<li>hidden&lt;: it mixes &lt;layers&gt;</li>" in text
    assert "Not shown" not in look_page(*PAIR, [Card("a", "", np.stack([PAIR[0]] * 3), [0.0, 0.5, 1.0], True)])


@pytest.mark.slow
def test_a_page_of_all_methods_is_light():
    """As many cards as there are methods, of photographs full of detail."""
    noise = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    a, b = torch.nn.functional.interpolate(noise, 256, mode="bicubic").clamp(0, 1)
    lam = [i / (POSITIONS - 1) for i in range(POSITIONS)]
    frames = steps(FMix(), a, b, lam, seed=0)
    images = np.stack([np.asarray(to_image(image, 256)) for image in frames.images])
    cards = [Card(entry.name, entry.summary, images, frames.lam.tolist(), True) for entry in mm.registry.entries()]
    assert len(cards) > 18
    assert len(look_page(images[0], images[-1], cards).encode()) <= 4_000_000


def test_a_name_cannot_end_the_data_early():
    name = "</script><b>"
    text = look_page(*PAIR, [Card(name, "", np.stack([PAIR[0]] * 3), [0.0, 0.5, 1.0], True)])
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    assert json.loads(data)[0]["name"] == name
    assert "<b>" not in text


def stepped(count):
    """A page of one method that takes no λ, with so many steps."""
    card = Card("parts", "", np.stack([PAIR[0]] * count), [i / 10 for i in range(1, count + 1)], True, "No λ <here>.")
    return look_page(*PAIR, [card])


@pytest.mark.parametrize(("count", "opens_at"), [(1, 1), (2, 2), (4, 3), (5, 3)])
def test_a_method_that_takes_no_share_opens_at_its_middle_step(count, opens_at):
    text = stepped(count)
    assert f'<span class="where">step {opens_at} of {count}, realized</span> <span class="lam">λ = 0.{opens_at}0</span>' in text
    assert '<p class="remark">No λ &lt;here&gt;.</p>' in text
    assert "Here it ends at" not in text


@in_browser
def test_the_slider_moves_it_through_its_steps(tmp_path):
    (tmp_path / "page.html").write_text(stepped(4))
    script = f"""{READ}
      const where = () => document.querySelector(".where").textContent;
      const seen = [[where(), read().cards[0].lam]];
      for (const position of [0, 0.1, 0.25, 0.6, 1]) {{
        slider.value = position;
        slider.dispatchEvent(new Event("input"));
        seen.push([where(), read().cards[0].lam]);
      }}
      return seen;"""
    expected = [[f"step {step} of 4, realized", f"λ = 0.{step}0"] for step in (3, 1, 1, 2, 3, 4)]
    assert report_of(tmp_path / "page.html", tmp_path, script) == expected


@in_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_the_longest_remarks_fit(tmp_path, width):
    page = write_look(cat(64), dog(64), k=3, methods=["comixup", "sagemix", "recursivemix", "samix"], size=64, out=tmp_path)[1]
    seen = in_frame(page, width, tmp_path)
    assert seen["widths"] == [width, width]
    assert seen["requests"] == []
    assert "step 2 of 3, realized" in seen["text"]
