"""Figures show the means, bands and intervals of the rows, against slow loops and SciPy."""

import io
from dataclasses import asdict

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

from multimix.lab.evaluation.calibration import reliability_bins
from multimix.lab.images import PREDICTED_BOX, TRUE_BOX, ImageGrid
from multimix.lab.report import study_figures
from multimix.lab.report.figures import Dot, dots, image_grid
from multimix.lab.report.frame import study
from multimix.lab.report.stats import summary
from multimix.lab.report.study_figures import CURVES, epoch_curves, error_against_k, error_dots, pooled_bins, time_against_k
from multimix.lab.report.study_tables import confusion_matrix
from multimix.lab.report.style import png
from result_rows import made_up_recipe, result_row

RECIPE = made_up_recipe()
BY_K = made_up_recipe([("none", 1, 23.0), *(("mixup", k, 22.0 - k) for k in (1, 3, 5))], "by_k")


def k_rows(seeds=3, scale="paper", ks=(1, 3, 5)):
    rows = [result_row(BY_K, "none", 1, seed, [50.0, 40.0, 30.0 + seed], scale=scale) for seed in range(seeds)]
    for k in ks:
        for seed in range(seeds):
            errors = [50.0, 40.0 - k + seed**2, 30.0]
            rows.append(result_row(BY_K, "mixup", k, seed, errors, seconds=(0.5 + 0.5 * k) * (1 + 0.1 * seed * k), scale=scale))
    return rows


def labelled(figure, label):
    handles, labels = figure.axes[0].get_legend_handles_labels()
    return handles[labels.index(label)]


def test_curves_are_means_over_the_seeds_with_a_value_in_a_band():
    rows = [
        result_row(RECIPE, seed=0, errors=[None, 40.0, 30.0]),
        result_row(RECIPE, seed=1, errors=[None, None, 33.0]),
        result_row(RECIPE, seed=2, errors=[None, 50.0, 36.0]),
    ]
    figure = epoch_curves(study(RECIPE, "paper", rows), CURVES["error"])
    line = labelled(figure, "none")
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([2, 3], [45.0, 33.0])
    (band,) = figure.axes[0].collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(2, 40), (2, 50), (3, 30), (3, 36)} <= corners


def test_a_log_axis_shows_values_above_zero():
    figure = epoch_curves(study(RECIPE, "paper", [result_row(RECIPE, norms=[0.0, 0.25, 4.0])]), CURVES["gradient"])
    assert figure.axes[0].get_yscale() == "log"
    assert list(labelled(figure, "none").get_ydata()) == [0.25, 4.0]
    assert epoch_curves(study(RECIPE, "paper", [result_row(RECIPE, norms=[0.0] * 3)]), CURVES["gradient"]) is None


def test_a_single_epoch_draws_groups_beside_each_other():
    rows = [result_row(RECIPE, "mixup", k, seed, [40.0 + seed]) for k in (1, 5) for seed in (0, 1)]
    figure = epoch_curves(study(RECIPE, "paper", rows), CURVES["error"])
    places = [labelled(figure, f"mixup K = {k}").get_xdata()[0] for k in (1, 5)]
    assert places[0] < 1 < places[1]


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_error_against_k_has_scipys_intervals(scale):
    full_study = study(BY_K, scale, k_rows(scale=scale))
    figure = error_against_k({"": full_study})
    line, _, (bars,) = labelled(figure, "mixup")
    for k, mean, bar in zip((1, 3, 5), line.get_ydata(), bars.get_segments(), strict=True):
        values = [np.median([50.0, 40.0 - k + seed**2, 30.0]) if scale == "paper" else 30.0 for seed in range(3)]
        low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values)) if np.ptp(values) else (30.0, 30.0)
        assert mean == pytest.approx(np.mean(values))
        assert bar[:, 1] == pytest.approx([low, high])
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert "no mixing" in labels
    assert ("mixup, the paper" in labels) == (scale == "paper")


def test_time_against_k_is_a_multiple_seed_by_seed_on_one_machine():
    rows = k_rows()
    figure = time_against_k(study(BY_K, "paper", rows))
    line, _, (bars,) = labelled(figure, "mixup")
    for k, mean, bar in zip((1, 3, 5), line.get_ydata(), bars.get_segments(), strict=True):
        ratios = [(0.5 + 0.5 * k) * (1 + 0.1 * seed * k) / (1 + 0.1 * seed) for seed in range(3)]
        half = stats.t.ppf(0.975, 2) * stats.sem(ratios)
        assert mean == pytest.approx(np.mean(ratios))
        assert bar[:, 1] == pytest.approx([mean - half, mean + half])
    for row in rows:
        row["device"] = "cuda" if row["k"] == 5 else "cpu"
    few = time_against_k(study(BY_K, "paper", [row for row in rows if row["k"] in (1, 5)]))
    assert few is None, "times of two machines are not divided"


def test_groups_with_other_settings_are_not_connected():
    rows = [
        *k_rows(1, ks=(1, 3)),
        result_row(BY_K, "mixup", 5, general={"epochs": 7}),
        result_row(BY_K, "mixup", 3, general={"epochs": 7}),
    ]
    figure = error_against_k({"": study(BY_K, "paper", rows)})
    assert [round(x) for x in labelled(figure, "mixup")[0].get_xdata()] == [1, 3, 5]
    assert [round(x) for x in labelled(figure, "mixup [1]")[0].get_xdata()] == [3]


def test_dots_are_sorted_and_intervals_end_where_errors_do():
    lasts = {("none", 1): 3.0, ("mixup", 1): 0.0, ("mixup", 5): 20.0}
    rows = [result_row(BY_K, *key, seed, [last + 4 * seed] * 3) for key, last in lasts.items() for seed in range(3)]
    figure = error_dots(study(BY_K, "paper", rows))
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["mixup", "none"]
    assert axes.get_xlim()[0] >= 0
    point, _, (bar,) = labelled(figure, "K = 1")
    half = stats.t.ppf(0.975, 2) * stats.sem([0.0, 4.0, 8.0])
    assert point.get_xdata() == pytest.approx([4.0])
    assert half > 4.0, "the interval would reach below 0"
    assert bar.get_segments()[0][:, 0] == pytest.approx([0.0, 4.0 + half])


def test_two_seeds_show_their_range_and_references_are_hollow():
    figure = dots({"row": [Dot(summary([21.0, 27.0]), "K = 1", points=[21.0, 27.0], reference=20.0)]}, "x", reference="the paper")
    _, _, (bar,) = labelled(figure, "K = 1")
    assert bar.get_segments()[0][:, 0] == pytest.approx([21.0, 27.0])
    assert labelled(figure, "the paper").get_markerfacecolor() == "none"


def test_of_many_groups_no_mixing_and_the_lowest_errors_are_drawn():
    arms = ["none", "smoothing", "cutout", "mixup", "cutmix", "fmix", "puzzlemix", "large_batch", "batch_augmentation"]
    keys = [(arm, k) for arm in arms for k in ((1,) if arm in arms[:2] else (1, 5))]
    full_study = study(
        RECIPE, "paper", [result_row(RECIPE, arm, k, errors=[90.0 - 2 * i] * 3) for i, (arm, k) in enumerate(keys)]
    )
    handles, labels = epoch_curves(full_study, CURVES["loss"]).axes[0].get_legend_handles_labels()
    lowest = sorted(full_study.trained, key=lambda group: group.mean("last"))[:11]
    assert {label.replace("\n", " ") for label in labels} == {"none", *(group.label for group in lowest)}
    assert len({(handle.get_color(), handle.get_linestyle()) for handle in handles}) == 12


def test_every_figure_of_a_study_is_a_png_and_an_svg_and_the_same_every_time():
    full_study = study(BY_K, "small", k_rows(2, "small"))
    figures = study_figures.study_figures(full_study)
    assert list(figures) == ["dots", "error", "loss", "gradient", "k", "time"]
    for name, drawn in figures.items():
        assert set(drawn.files) == {f"{name}.png", f"{name}.svg"}
        picture = np.asarray(Image.open(io.BytesIO(drawn.files[f"{name}.png"])).convert("L"))
        assert (picture < 128).mean() > 0.002
        assert (picture[[0, -1]] > 200).all()
        assert (picture[:, [0, -1]] > 200).all()
        assert b"<text" in drawn.svg
    assert {name: drawn.files for name, drawn in study_figures.study_figures(full_study).items()} == {
        name: drawn.files for name, drawn in figures.items()
    }
    assert study_figures.study_figures(study(RECIPE, "paper", [])) == {}


def samples(seed, count):
    generator = torch.Generator().manual_seed(seed)
    confidence = 0.1 + 0.7 * torch.rand(count, generator=generator)
    return confidence, torch.rand(count, generator=generator) < confidence


def test_pooled_bins_are_those_of_all_samples():
    parts = [samples(seed, count) for seed, count in ((1, 50), (2, 80), (3, 7))]
    results = [{"bins": [asdict(one) for one in reliability_bins(*part)]} for part in parts]
    expected = reliability_bins(torch.cat([c for c, _ in parts]), torch.cat([r for _, r in parts]))
    for own, one in zip(pooled_bins(results), expected, strict=True):
        assert (own["low"], own["high"], own["count"]) == (one.low, one.high, one.count)
        assert own["confidence"] == (None if one.confidence is None else pytest.approx(one.confidence))
        assert own["accuracy"] == (None if one.accuracy is None else pytest.approx(one.accuracy))
    assert any(one.count == 0 for one in expected), "an empty bin"


def test_reliability_shows_accuracy_against_confidence_in_a_panel_per_group():
    rows = []
    for k in (1, 5):
        bins = [asdict(one) for one in reliability_bins(*samples(k, 60))]
        evaluation = {"numbers": {"ece": 2.0}, "result": {"calibration": {"bins": bins}}, "options": {}}
        rows.append(result_row(BY_K, "mixup", k) | {"evaluations": {"calibration": evaluation}})
    figure = study_figures.reliability(study(BY_K, "paper", rows))
    assert [axes.get_title(loc="left").split("\n")[0] for axes in figure.axes] == ["mixup K = 1", "mixup K = 5"]
    filled = [one for one in reliability_bins(*samples(1, 60)) if one.count]
    line = labelled(figure, "accuracy")
    assert list(line.get_xdata()) == pytest.approx([one.confidence for one in filled])
    assert list(line.get_ydata()) == pytest.approx([one.accuracy for one in filled])


LONG_NAMES = ("Black_footed_Albatross", "great crested flycatcher of the north", "W" * 40, "cat", "$x$", "a-b-c-d-e-f-g-h")


@pytest.mark.parametrize(("count", "columns", "size"), [(1, 1, (8, 8)), (6, 4, (32, 48)), (5, 5, (160, 160))])
def test_an_image_grid_draws_every_picture_with_its_title_and_boxes(count, columns, size):
    images = np.random.default_rng(0).integers(0, 255, (count, *size, 3), dtype=np.uint8)
    boxes = np.array([[0, 1, 1, 3, 3, TRUE_BOX], [count - 1, 0, 0, 2, 2, PREDICTED_BOX]], dtype=float)
    figure = image_grid(ImageGrid(images, LONG_NAMES[:count], columns, "", boxes))
    assert isinstance(figure, Figure)
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == count
    for axes, image, title in zip(shown, images, LONG_NAMES, strict=False):
        assert np.array_equal(axes.images[0].get_array(), image)
        assert axes.get_title().split()[0][:5] == title[:5]
    assert [len(axes.patches) for axes in (shown[0], shown[-1])] == ([2, 2] if count == 1 else [1, 1])
    assert png(figure).startswith(b"\x89PNG")


def test_confusions_are_shares_of_the_true_class_over_all_seeds():
    result = {
        "classes": ["a", "b", "c"],
        "per_class": [
            {"n": 4, "wrong": 1, "error": 25.0},
            {"n": 2, "wrong": 2, "error": 100.0},
            {"n": 0, "wrong": 0, "error": None},
        ],
        "confusions": [{"true": 0, "predicted": 2, "count": 1}, {"true": 1, "predicted": 0, "count": 2}],
    }
    assert confusion_matrix([result, result]).tolist() == [[0.75, 0, 0.25], [1, 0, 0], [0, 0, 0]]
    row = result_row(BY_K, "mixup", 1) | {"evaluations": {"error": {"numbers": {}, "result": result, "options": {}}}}
    figure = study_figures.confusions(study(BY_K, "paper", [row]))
    pixels = figure.axes[0].images[0].get_array()
    assert pixels.shape == (3, 3, 3)
    brightness = pixels.astype(int).sum(2)
    assert brightness[1, 0] == brightness.max() > brightness[0, 0] > brightness[0, 2] > brightness[2, 2]
    assert study_figures.confusions(study(BY_K, "paper", [])) is None
