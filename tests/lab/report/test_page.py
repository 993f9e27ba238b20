"""The page template: escaped, self-contained, without empty parts."""

import pytest
from matplotlib.figure import Figure

from multimix.lab.report.page import Beside, Code, Facts, Finding, Heading, Html, Notes, Picture, Section, render_page
from multimix.lab.report.style import INK, png, save, svg
from multimix.lab.report.tables import Table


def drawn():
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1], color=INK, label="<b>")
    figure.text(0, 0, "<script>")
    return figure


def test_everything_is_escaped_and_nothing_is_loaded():
    blocks = [
        Section("a < b", [Finding("5 > 3 & <script>"), Heading("<em>"), "plain <p>"]),
        Table.of_rows("", ["name", "x"], [["<b>", 1.5], ["c", 2]], ["c & <d>"]),
        Facts({"<i>": "<u>"}),
        Beside([Picture(png(drawn()), 'says "hi"', "below"), Picture(svg(drawn()), 'says "ho"', "<below>")]),
        Code("--k <5>"),
        Html("<sup>2</sup>"),
    ]
    page = render_page("t < u", "lead", blocks, headline="<h>", figure=Picture(svg(drawn()), "<alt>"))
    for tag in ("<script", "<i>", "<u>", "<h>", "<below", "<alt", "<b>", "<em>", "<d>", "plain <p>"):
        assert tag not in page
    assert "&lt;script&gt;" in page
    assert "<td>&lt;b&gt;</td><td>1.50</td>" in page
    assert 'alt="says &#34;hi&#34;"' in page
    assert 'aria-label="says &#34;ho&#34;"' in page
    assert "<sup>2</sup>" in page
    assert page.count("<h1>") == 1


def test_nothing_is_empty():
    empty = [Section("gone", []), Section("also gone", ["", None, Notes([]), Section("inner", [])]), Facts({}), Beside([])]
    page = render_page("t", "lead", [*empty, Section("there", (text for text in ["words"]))])
    assert "gone" not in page
    assert "inner" not in page
    assert page.count("<details") == 1
    assert '<details id="there">' in page
    assert "<p>words</p>" in page


def test_drawings_follow_the_page():
    text = str(Picture(svg(drawn()), "alt").svg)
    assert INK not in text
    assert "currentColor" in text
    assert "DejaVu" not in text
    assert "<style" not in text
    # Equal names in two figures would show parts of the other.
    other = Figure(figsize=(1, 1))
    other.subplots().plot([1, 0])
    names = [{part.split('"')[0] for part in str(Picture(svg(one), "").svg).split(' id="')[1:]} for one in (drawn(), other)]
    assert names[0]
    assert not names[0] & names[1]


@pytest.mark.parametrize("title", [(), ("a title",)])
def test_only_the_png_has_its_title_inside(title):
    plain, files = save("x", drawn()), save("x", drawn(), *title)
    assert files["x.svg"] == plain["x.svg"]
    assert (files["x.png"] == plain["x.png"]) == (not title)
