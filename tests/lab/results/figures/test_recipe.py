import io

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from multimix.lab.results.figures import recipe as figures
from multimix.lab.results.figures.recipe import CURVES, curve, recipe_figures, times_of_one
from multimix.lab.results.rows import aggregate
from result_rows import made_up_recipe, result_row

RECIPE = made_up_recipe()
BY_K = made_up_recipe([("none", 1, 23.0), *(("mixup", k, 22.0 - k) for k in (1, 3, 5))], "by_k")


@pytest.fixture
def drawn(monkeypatch):
    """The axes of every figure that is drawn, by name."""

    def draw(recipe, scale, rows):
        sheets = []
        with monkeypatch.context() as patch:
            patch.setattr(figures, "save", lambda name, sheet, *title: sheets.append((sheet, title)) or {name: b""})
            names = list(recipe_figures(aggregate(recipe, scale, rows)))
        axes = {name: sheet.axes[0] for name, (sheet, _) in zip(names, sheets, strict=True)}
        for own, (_, title) in zip(axes.values(), sheets, strict=True):
            own.title_lines = title
        return axes

    return draw


def line_of(rows, recipe=RECIPE, place=0):
    return aggregate(recipe, "paper", rows).lines[place]


def labelled(axes, label):
    handles, labels = axes.get_legend_handles_labels()
    return handles[labels.index(label)]


def k_rows(seeds=3, scale="paper", ks=(1, 3, 5)):
    rows = [result_row(BY_K, "none", 1, seed, [50.0, 40.0, 30.0 + seed], scale=scale) for seed in range(seeds)]
    for k in ks:
        for seed in range(seeds):
            errors = [50.0, 40.0 - k + seed**2, 30.0]
            rows.append(result_row(BY_K, "mixup", k, seed, errors, seconds=(0.5 + 0.5 * k) * (1 + 0.1 * seed * k), scale=scale))
    return rows


def test_a_curve_is_the_mean_over_the_seeds_that_have_a_value():
    rows = [
        result_row(RECIPE, seed=0, errors=[None, 40.0, 30.0]),
        result_row(RECIPE, seed=1, errors=[None, None, 33.0]),
        result_row(RECIPE, seed=2, errors=[None, 50.0, 36.0]),
    ]
    points = curve(line_of(rows), CURVES["error"])
    assert points == [(2, 45.0, 40.0, 50.0), (3, 33.0, 30.0, 36.0)]
    assert [point.mean for point in curve(line_of(rows), CURVES["loss"])] == [4.0, 3.0, 2.0]


def test_a_log_axis_takes_what_is_above_zero():
    line = line_of([result_row(RECIPE, norms=[0.0, 0.25, 4.0])])
    assert curve(line, CURVES["gradient"]) == [(2, 0.25, 0.25, 0.25), (3, 4.0, 4.0, 4.0)]
    assert len(curve(line, CURVES["gradient"]._replace(log=False))) == 3


def test_curves_have_mean_and_band(drawn):
    rows = [result_row(RECIPE, "none", 1, seed, [60.0 + seed, 50.0 - seed, 40.0]) for seed in (0, 2)]
    axes = drawn(RECIPE, "paper", rows)["error"]
    mean = labelled(axes, "none")
    assert (list(mean.get_xdata()), list(mean.get_ydata())) == ([1, 2, 3], [61.0, 49.0, 40.0])
    (band,) = axes.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(1, 60), (1, 62), (2, 48), (2, 50), (3, 40)} <= corners
    assert axes.get_ylabel() == "error (%)"


def test_one_seed_one_epoch_and_missing_evaluations_are_drawn(drawn):
    assert not drawn(RECIPE, "paper", [result_row(RECIPE, errors=[None, None, 40.0])])["error"].collections
    one = [result_row(RECIPE, "mixup", k, seed, [40.0 + seed]) for k in (1, 5) for seed in (0, 1)]
    axes = drawn(RECIPE, "smoke", [row | {"scale": "smoke"} for row in one])["error"]
    assert list(axes.get_xticks()) == [1]
    places = [labelled(axes, f"mixup K = {k}").get_xdata()[0] for k in (1, 5)]
    assert places[0] < 1 < places[1]
    assert [bar.get_segments()[0][:, 1].tolist() for bar in axes.collections] == [[40.0, 41.0]] * 2


def test_gradient_norms_are_on_a_log_axis_one_line_for_each_k(drawn):
    rows = [result_row(BY_K, "mixup", k, norms=[8.0 / k, 4.0 / k, 2.0 / k]) for k in (1, 3, 5)]
    axes = drawn(BY_K, "paper", rows)["gradient"]
    assert axes.get_yscale() == "log"
    shades = []
    for k in (1, 3, 5):
        found = labelled(axes, f"mixup K = {k}")
        assert found.get_ydata() == pytest.approx([8.0 / k, 4.0 / k, 2.0 / k])
        shades.append(found.get_color())
    assert len(set(shades)) == 3
    nothing = [result_row(BY_K, "mixup", 1, norms=[0.0, 0.0, 0.0])]
    assert "gradient" not in drawn(BY_K, "paper", nothing)


def test_error_against_k_with_intervals(drawn):
    axes = drawn(BY_K, "paper", k_rows())["k"]
    line, _, (bars,) = labelled(axes, "mixup")
    assert list(line.get_xdata()) == [1, 3, 5]
    for k, mean, bar in zip((1, 3, 5), line.get_ydata(), bars.get_segments(), strict=True):
        medians = [np.median([50.0, 40.0 - k + seed**2, 30.0]) for seed in range(3)]
        low, high = stats.t.interval(0.95, 2, np.mean(medians), stats.sem(medians))
        assert mean == pytest.approx(np.mean(medians))
        assert bar[:, 1] == pytest.approx([low, high])
    assert list(axes.get_xticks()) == [1, 3, 5]
    assert labelled(axes, "no mixing").get_ydata() == pytest.approx([40.0, 40.0])
    paper = labelled(axes, "mixup, the paper")
    assert (list(paper.get_xdata()), list(paper.get_ydata())) == ([1, 3, 5], [21.0, 19.0, 17.0])


def test_the_papers_numbers_are_drawn_at_its_own_scale_and_settings_only(drawn):
    small = drawn(BY_K, "small", k_rows(scale="small"))["k"]
    assert "mixup, the paper" not in small.get_legend_handles_labels()[1]
    other = [result_row(BY_K, "mixup", k, general={"epochs": 7}) for k in (1, 3)]
    assert drawn(BY_K, "paper", other)["k"].get_legend_handles_labels()[1] == ["mixup\n(epochs = 7, not 3)"]


def test_time_against_k_is_a_multiple_seed_by_seed(drawn):
    rows = k_rows()
    axes = drawn(BY_K, "paper", rows)["time"]
    line, _, (bars,) = labelled(axes, "mixup")
    for k, mean, bar in zip((1, 3, 5), line.get_ydata(), bars.get_segments(), strict=True):
        ratios = [(0.5 + 0.5 * k) * (1 + 0.1 * seed * k) / (1 + 0.1 * seed) for seed in range(3)]
        half = stats.t.ppf(0.975, 2) * stats.sem(ratios)
        assert mean == pytest.approx(np.mean(ratios))
        assert bar[:, 1] == pytest.approx([mean - half, mean + half])
    assert list(labelled(axes, "K times as long").get_ydata()) == [1, 3, 5]


def test_times_of_different_machines_or_seeds_are_not_divided(drawn):
    rows = k_rows(2, ks=(1, 5))
    one, five = (line_of(rows, BY_K, place) for place in (1, 3))
    assert times_of_one(five, one).n == 2
    rows[-1]["device"] = "cuda"
    assert times_of_one(line_of(rows, BY_K, 3), one).n == 1
    rows[-2]["processes"] = 2
    assert times_of_one(line_of(rows, BY_K, 3), one) is None
    assert "time" not in drawn(BY_K, "paper", rows)
    assert "time" not in drawn(BY_K, "paper", k_rows(1, ks=(3, 5)))  # nothing to be a multiple of


def test_settings_of_their_own_are_not_connected_with_the_others(drawn):
    rows = [*k_rows(1, ks=(1, 3)), result_row(BY_K, "mixup", 5, general={"epochs": 7})]
    axes = drawn(BY_K, "paper", rows)
    assert list(labelled(axes["k"], "mixup")[0].get_xdata()) == [1, 3]
    rows.append(result_row(BY_K, "mixup", 3, general={"epochs": 7}))
    assert "mixup K = 3\n(epochs = 7, not 3)" in drawn(BY_K, "paper", rows)["error"].get_legend_handles_labels()[1]


def test_figures_are_those_that_the_rows_have_something_for(drawn):
    assert recipe_figures(aggregate(RECIPE, "paper", [])) == {}
    assert list(drawn(RECIPE, "paper", [result_row(RECIPE, "mixup", 5)])) == ["error", "loss", "gradient"]
    assert list(drawn(BY_K, "paper", k_rows(1))) == ["dots", "error", "loss", "gradient", "k", "time"]


def test_many_lines_look_different(drawn):
    arms = ["none", "smoothing", "cutout", "mixup", "cutmix", "fmix", "puzzlemix", "large_batch", "batch_augmentation"]
    rows = [result_row(RECIPE, arm, k) for arm in arms for k in ((1,) if arm in arms[:2] else (1, 5))]
    handles, labels = drawn(RECIPE, "paper", rows)["loss"].get_legend_handles_labels()
    assert len(labels) == 12
    assert labels[0] == "none"
    assert len({(handle.get_color(), handle.get_linestyle()) for handle in handles}) == 12


def test_of_many_lines_those_of_lowest_error_are_drawn(drawn):
    arms = ["none", "smoothing", "cutout", "mixup", "cutmix", "fmix", "puzzlemix", "large_batch", "batch_augmentation"]
    keys = [(arm, k) for arm in arms for k in ((1,) if arm in arms[:2] else (1, 5))]
    rows = [result_row(RECIPE, arm, k, errors=[90.0 - 2 * place] * 3) for place, (arm, k) in enumerate(keys)]
    axes = drawn(RECIPE, "paper", rows)["error"]
    kept = [line.label for line in aggregate(RECIPE, "paper", rows).trained if line.label in axes.get_legend_handles_labels()[1]]
    lowest = sorted(aggregate(RECIPE, "paper", rows).trained, key=lambda line: line.summary("last").mean)[:11]
    assert set(kept) == {"none", *(line.label for line in lowest)}
    assert "none and the 11 lines of lowest error of 16" in axes.title_lines[2]


def test_dots_are_sorted_and_end_where_errors_do(drawn):
    lasts = {("none", 1): 3.0, ("mixup", 1): 0.0, ("mixup", 5): 20.0}
    rows = [result_row(BY_K, *key, seed, [last + 4 * seed] * 3) for key, last in lasts.items() for seed in range(3)]
    axes = drawn(BY_K, "paper", rows)["dots"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["mixup", "none"]
    assert axes.get_ylim() == (1.5, -0.5)
    assert axes.get_xlim()[0] >= 0
    point, _, (bar,) = labelled(axes, "K = 1")
    half = stats.t.ppf(0.975, 2) * stats.sem([0.0, 4.0, 8.0])
    assert point.get_xdata() == pytest.approx([4.0])
    assert half > 4.0, "the interval would reach below 0"
    assert bar.get_segments()[0][:, 0] == pytest.approx([0.0, 4.0 + half])


def test_of_two_seeds_the_range_is_drawn(drawn):
    rows = [
        result_row(BY_K, arm, k, seed, [20.0 + k + 6 * seed] * 3) for arm, k in (("none", 1), ("mixup", 1)) for seed in (0, 1)
    ]
    _, _, (bar,) = labelled(drawn(BY_K, "paper", rows)["dots"], "K = 1")
    assert bar.get_segments()[0][:, 0] == pytest.approx([21.0, 27.0])


def test_every_figure_says_its_scale(drawn):
    for scale in ("paper", "small", "smoke"):
        for axes in drawn(BY_K, scale, k_rows(1, scale)).values():
            name, title, _ = axes.title_lines
            assert name == "A made-up table"
            assert f"{scale} scale" in title
            assert ("not the paper's setting" in title) == (scale != "paper")


def test_files_are_sound_and_the_same_every_time():
    rows = [result_row(RECIPE, "mixup", 5, seed, scale="small") for seed in range(2)]
    files = recipe_figures(aggregate(RECIPE, "small", rows))
    for name, content in files.items():
        if name.endswith(".png"):
            picture = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
            assert picture.shape[1] == 810
            # Something is drawn, and nothing touches the edge, where it would be cut off.
            assert (picture < 128).mean() > 0.005
            assert (picture[[0, -1]] > 200).all()
            assert (picture[:, [0, -1]] > 200).all()
        else:
            assert b"<text" in content, "text stays text, so that a page can set it in its own font"
    assert files == recipe_figures(aggregate(RECIPE, "small", rows))
