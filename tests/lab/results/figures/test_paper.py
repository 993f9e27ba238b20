"""Fig. 6, 7 and 8 show the means and spreads of the runs, against a slow loop over their rows."""

import io
import math

import pytest
from PIL import Image

from multimix.lab.recipes import recipe
from multimix.lab.results.figures.paper import error_figure, measured_figure, norm_figure, time_figure
from multimix.lab.results.paper import exhibit
from multimix.lab.results.paper_table import fill
from multimix.lab.results.rows import aggregate
from result_rows import result_row

RECIPE = recipe("cifar100_resnext29_4_24")
LABELS = {"mixup": "input mixup", "manifoldmix": "manifold mixup", "cutmix": "cutmix", "puzzlemix": "puzzle-mix"}
KS = (1, 3, 5, 7, 9)
PAPER = {("none", 1): 21.84, ("mixup", 1): 21.78, ("manifoldmix", 1): 21.45, ("cutmix", 1): 20.92}
PAPER |= {("puzzlemix", 1): 19.74, ("puzzlemix", 5): 18.23}


def error_of(arm, k, seed):
    return 20.0 + 3 * [*LABELS, "none"].index(arm) - k / 4 + seed**2 / (1 + k)


def row_of(arm, k, seed, scale, error=None, **more):
    last = error_of(arm, k, seed) if error is None else error
    return result_row(RECIPE, arm, k, seed, [last, last], scale=scale, **more)


def rows_of(scale="paper", seeds=(0, 1, 2)):
    """Every training of Fig. 6, but manifold mixup with K = 9."""
    keys = [("none", 1), *((arm, k) for arm in LABELS for k in KS)]
    return [row_of(arm, k, seed, scale) for arm, k in keys for seed in seeds if (arm, k) != ("manifoldmix", 9)]


def timed_rows(scale="paper", increases=((0, 0.0), (1, 10.0), (2, 40.0))):
    rows = [row_of("puzzlemix", 1, seed, scale) for seed, _ in increases]
    for row, (_, more) in zip(rows, increases, strict=True):
        numbers = {f"increase_{k}": 70.0 * (k - 1) + more * (k > 1) for k in KS}
        row["evaluations"] = {"training_time": {"numbers": numbers}}
    return rows


def filled(number, rows, scale="paper"):
    return fill(exhibit("figure", number), scale, rows, {})


def labelled(axes, label):
    handles, labels = axes.get_legend_handles_labels()
    return handles[labels.index(label)]


def bars(container):
    """The ends of the bars of an errorbar: lower and upper for each point."""
    _, _, (lines,) = container
    return [tuple(y for _, y in segment) for segment in lines.get_segments()]


def mean_and_sd(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def test_errors_are_means_with_standard_deviations():
    (axes,) = error_figure(filled("6", rows_of())).figure.axes
    for arm, label in LABELS.items():
        drawn = labelled(axes, label)
        ks = [k for k in KS if (arm, k) != ("manifoldmix", 9)]
        line, *_ = drawn
        assert [round(x) for x in line.get_xdata()] == ks
        for k, y, (low, high) in zip(ks, line.get_ydata(), bars(drawn), strict=True):
            mean, sd = mean_and_sd([error_of(arm, k, seed) for seed in range(3)])
            assert (y, low, high) == pytest.approx((mean, mean - sd, mean + sd))
    assert list(axes.get_xticks()) == list(KS)


def test_no_mixup_is_a_dotted_line_and_the_papers_numbers_are_hollow():
    (axes,) = error_figure(filled("6", rows_of())).figure.axes
    dotted = labelled(axes, "no mixup")
    assert (dotted.get_linestyle(), set(dotted.get_ydata())) == (
        ":",
        {mean_and_sd([error_of("none", 1, i) for i in range(3)])[0]},
    )
    assert set(labelled(axes, "no mixup, the paper").get_ydata()) == {21.84}
    for arm, label in LABELS.items():
        hollow = labelled(axes, f"{label}, the paper")
        points = {(arm, round(x)): y for x, y in zip(*hollow.get_data(), strict=True)}
        assert points == {key: value for key, value in PAPER.items() if key[0] == arm}
        assert hollow.get_markerfacecolor() == "none"


def test_at_other_scales_the_paper_is_not_drawn():
    (axes,) = error_figure(filled("6", rows_of("small"), "small")).figure.axes
    assert not [label for label in axes.get_legend_handles_labels()[1] if "paper" in label]


def test_one_seed_has_no_bar():
    (axes,) = error_figure(filled("6", rows_of(seeds=(0,)))).figure.axes
    for low, high in bars(labelled(axes, "cutmix")):
        assert low == high


@pytest.mark.parametrize("errors", [(100.0, 99.0, 94.0), (0.0, 0.5, 5.0)])
def test_axes_and_bars_end_where_errors_do(errors):
    rows = [row_of(arm, 1, seed, "smoke", error) for arm in ("none", "cutmix") for seed, error in enumerate(errors)]
    (axes,) = error_figure(filled("6", rows, "smoke")).figure.axes
    bottom, top = axes.get_ylim()
    ((low, high),) = bars(labelled(axes, "cutmix"))
    mean, sd = mean_and_sd(errors)
    assert (low, high) == pytest.approx((max(0.0, mean - sd), min(100.0, mean + sd)))
    assert 0 <= bottom <= low < high <= top <= 100
    line, *_ = labelled(axes, "cutmix")
    assert not line.get_clip_on()  # a mark on the edge is whole


def test_time_is_the_increase_beside_linear_growth():
    (axes,) = time_figure(filled("7", timed_rows())).figure.axes
    drawn = labelled(axes, "puzzle-mix")
    line, *_ = drawn
    assert list(line.get_xdata()) == list(KS)
    for k, y, (low, high) in zip(KS, line.get_ydata(), bars(drawn), strict=True):
        mean, sd = mean_and_sd([70.0 * (k - 1) + more * (k > 1) for more in (0.0, 10.0, 40.0)])
        assert (y, low, high) == pytest.approx((mean, mean - sd, mean + sd))
    growth = labelled(axes, "linear growth")
    assert list(zip(*growth.get_data(), strict=True)) == [(1, 0), (3, 200), (5, 400), (7, 600), (9, 800)]
    assert axes.get_ylim()[1] > 800


def norm_rows(scale="paper"):
    keys = [("none", 1), ("cutmix", 5), *(("puzzlemix", k) for k in (5, 1, 3))]
    norms = {(k, seed): [(epoch + 1.0) / k + seed for epoch in range(4)] for _, k in keys for seed in (0, 1)}
    rows = [result_row(RECIPE, arm, k, seed, [50.0] * 4, scale=scale, norms=norms[k, seed]) for arm, k in keys for seed in (0, 1)]
    odd = result_row(RECIPE, "puzzlemix", 3, 2, [50.0] * 4, scale=scale, norms=[99.0] * 4, general={"batch": 7})
    return [*rows, odd], norms


def test_norms_are_means_over_the_seeds_for_every_epoch():
    rows, norms = norm_rows()
    (axes,) = norm_figure(exhibit("figure", "8"), aggregate(RECIPE, "paper", rows)).figure.axes
    handles, labels = axes.get_legend_handles_labels()
    assert labels == [f"puzzlemix K = {k}" for k in (1, 3, 5)]  # no other arm, and no changed settings
    for k, line in zip((1, 3, 5), handles, strict=True):
        assert list(line.get_xdata()) == [1, 2, 3, 4]
        assert list(line.get_ydata()) == pytest.approx([(norms[k, 0][i] + norms[k, 1][i]) / 2 for i in range(4)])
    assert axes.get_xlabel() == "epoch"


@pytest.mark.parametrize("number", ["6", "7", "8"])
def test_files_are_a_png_and_an_svg_with_a_title(number):
    rows = {"6": rows_of, "7": timed_rows, "8": lambda scale: norm_rows(scale)[0]}[number]("small")
    files = measured_figure(filled(number, rows, "small"), rows)
    assert list(files) == [f"figure-{number}.png", f"figure-{number}.svg"]
    assert Image.open(io.BytesIO(files[f"figure-{number}.png"])).width > 800
    assert b"</svg>" in files[f"figure-{number}.svg"]


@pytest.mark.parametrize("number", ["6", "7", "8"])
def test_without_runs_there_is_no_figure(number):
    only_none = [row_of("none", 1, seed, "paper") for seed in range(2)]
    assert measured_figure(filled(number, []), []) == {}
    assert measured_figure(filled(number, only_none), only_none) == {}
