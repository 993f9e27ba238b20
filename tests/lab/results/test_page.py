import pytest
from matplotlib.figure import Figure

from multimix.lab.results import page as report
from multimix.lab.results.figures.style import INK, png, save, svg


def drawn():
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1], color=INK, label="<b>")
    figure.text(0, 0, "<script>")
    return figure


def test_everything_is_escaped_and_nothing_is_loaded():
    parts = [
        report.section("a < b", report.paragraph("5 > 3 & <script>", finding=True)),
        report.table(["name", "x"], [["<b>", 1.5], ["c", 2]], caption="c & d"),
        report.pairs({"<i>": "<u>"}),
        report.picture(png(drawn()), 'says "hi"', "below"),
        report.drawing(svg(drawn()), 'says "ho"', "<below>"),
        report.preformatted("--k <5>"),
    ]
    page = report.document("t < u", "lead", parts, headline="<h>", figure=report.drawing(svg(drawn()), "<alt>"))
    for tag in ("<script", "<i>", "<u>", "<h>", "<below", "<alt", "<b>"):
        assert tag not in page
    assert "&lt;script&gt;" in page
    assert "<td>&lt;b&gt;</td><td>1.5</td>" in page
    assert 'alt="says &quot;hi&quot;"' in page
    assert 'aria-label="says &quot;ho&quot;"' in page
    assert page.count("<h1>") == 1


def test_nothing_is_empty():
    assert report.section("words") == report.section("words", "", "") == report.pairs({}) == report.beside("") == ""
    assert report.table(["name", "x"], []) == report.table(["name", "x"], [["a", "–"], ["b", ""]]) == ""
    columns = report.table(["name", "x", "y"], [["a", "–", 1], ["b", "", 2]])
    assert "<th" in columns
    assert ">x<" not in columns
    assert ">y<" in columns
    one = report.table(["name", "x", "y"], [["a", "–", 1]])
    assert "<table" not in one
    assert "<dt>name</dt><dd>a</dd>" in one
    assert "<dt>y</dt><dd>1</dd>" in one


def test_drawings_follow_the_page():
    text = report.drawing(svg(drawn()), "alt")
    assert INK not in text
    assert "currentColor" in text
    assert "DejaVu" not in text
    assert "<style" not in text
    # Names in two figures must not meet, or one would show parts of the other.
    other = Figure(figsize=(1, 1))
    other.subplots().plot([1, 0])
    names = [
        {part.split('"')[0] for part in report.drawing(content, "").split(' id="')[1:]} for content in (svg(drawn()), svg(other))
    ]
    assert names[0]
    assert not names[0] & names[1]


@pytest.mark.parametrize("title", [(), ("a title",)])
def test_only_the_picture_has_its_title_inside(title):
    plain, files = save("x", drawn()), save("x", drawn(), *title)
    assert files["x.svg"] == plain["x.svg"]
    assert (files["x.png"] == plain["x.png"]) == (not title)
