"""Which classes are taken for which: the confusion matrix, and the most frequent confusions by name."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from ...evaluation.error import Errors
from .style import SOFT, VERMILION, plain, save

MOST = 12  # confusions that are named
NAMED = 20  # classes whose names fit beside the matrix


def confusion_figures(errors: Errors, classes: Sequence[str], title: str = "") -> dict[str, bytes]:
    """PNG and SVG by file name: the matrix, every row in per cent of its class, beside the most frequent confusions.

    Only classes that have samples are shown. Without an error there is nothing to name, and the list is left out.
    """
    if len(classes) != len(errors.per_class):
        raise ValueError(f"classes must be the {len(errors.per_class)} names of the predictions' classes, got {len(classes)}")
    shown = [i for i, entry in enumerate(errors.per_class) if entry.n > 0]
    figure = Figure(figsize=(9.2, 4.4) if errors.confusions else (4.8, 4.4), layout="constrained")
    grid: Any = figure.subplots(1, 2 if errors.confusions else 1, squeeze=False)[0]
    matrix = errors.matrix()[shown].double()
    _draw_matrix(figure, grid[0], 100 * matrix[:, shown] / matrix.sum(1, keepdim=True), [classes[i] for i in shown])
    if errors.confusions:
        _draw_list(grid[1], errors, classes)
    return save("confusion", figure, title, f"top-1 error {errors.top1} · {errors.n:,} samples")


def _draw_matrix(figure: Figure, axes: Any, percent: Tensor, names: Sequence[str]) -> None:
    picture = axes.imshow(percent.numpy(), cmap="cividis", vmin=0, interpolation="nearest", aspect="equal")
    figure.colorbar(picture, ax=axes, shrink=0.75, label="% of the true class")
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(names) <= NAMED:
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)


def _draw_list(axes: Any, errors: Errors, classes: Sequence[str]) -> None:
    most = errors.confusions[:MOST]
    names = [f"{classes[entry.true]} → {classes[entry.predicted]}" for entry in most]
    axes.barh(range(len(most)), [entry.count for entry in most], color=VERMILION, height=0.7, zorder=2)
    axes.set_yticks(range(len(most)), names, fontsize=8, parse_math=False)
    axes.invert_yaxis()
    plain(axes)
    axes.grid(visible=False, axis="y")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title("most frequent confusions (true → predicted), samples", fontsize=8, color=SOFT, loc="left")
