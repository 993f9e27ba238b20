from matplotlib.figure import Figure

from multimix.lab.results import page as report
from multimix.lab.results.figures.style import png


def test_everything_is_escaped_and_nothing_is_loaded():
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    parts = [
        report.heading("a < b"),
        report.paragraph("5 > 3 & <script>", finding=True),
        report.table(["name", "x"], [["<b>", 1.5]], caption="c & d"),
        report.picture(png(figure), 'says "hi"', "below"),
        report.preformatted("--k <5>"),
    ]
    page = report.document("t < u", "lead", parts)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<td>&lt;b&gt;</td><td>1.5</td>" in page
    assert 'alt="says &quot;hi&quot;"' in page
    assert "http://" not in page
    assert "https://" not in page
    assert page.count("<h1>") == 1
