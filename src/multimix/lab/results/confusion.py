"""Which classes are taken for which: the confusion matrix, and the most frequent confusions by name."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from ..evaluation.error import Errors
from .html import png, svg

INK, SOFT, LINE, BAR = "#1d1d22", "#5c5c66", "#d4d2cb", "#d55e00"
MOST = 12  # confusions that are named
NAMED = 20  # classes whose names fit beside the matrix


def confusion_figures(errors: Errors, classes: Sequence[str], title: str = "") -> dict[str, bytes]:
    """PNG and SVG by file name: the matrix, every row in per cent of its class, beside the most frequent confusions.

    Only classes that have samples are shown. Without an error there is nothing to name, and the list is left out.
    """
    if len(classes) != len(errors.per_class):
        raise ValueError(f"classes must be the {len(errors.per_class)} names of the predictions' classes, got {len(classes)}")
    shown = [i for i, entry in enumerate(errors.per_class) if entry.n > 0]
    sheet = Figure(figsize=(9.2, 4.4) if errors.confusions else (4.8, 4.4), layout="constrained")
    grid: Any = sheet.subplots(1, 2 if errors.confusions else 1, squeeze=False)[0]
    matrix = errors.matrix()[shown].double()
    _draw_matrix(sheet, grid[0], 100 * matrix[:, shown] / matrix.sum(1, keepdim=True), [classes[i] for i in shown])
    if errors.confusions:
        _draw_list(grid[1], errors, classes)
    head = f"top-1 error {errors.top1} · {errors.n:,} samples"
    sheet.suptitle(f"{title}\n{head}" if title else head, fontsize=10, color=INK, x=0.01, ha="left", parse_math=False)
    return {"confusion.png": png(sheet, dpi=150), "confusion.svg": svg(sheet)}


def _draw_matrix(sheet: Figure, axes: Any, percent: Tensor, names: Sequence[str]) -> None:
    picture = axes.imshow(percent.numpy(), cmap="cividis", vmin=0, interpolation="nearest", aspect="equal")
    sheet.colorbar(picture, ax=axes, shrink=0.75, label="% of the true class")
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(names) <= NAMED:
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)


def _draw_list(axes: Any, errors: Errors, classes: Sequence[str]) -> None:
    most = errors.confusions[:MOST]
    names = [f"{classes[entry.true]} → {classes[entry.predicted]}" for entry in most]
    axes.barh(range(len(most)), [entry.count for entry in most], color=BAR, height=0.7, zorder=2)
    axes.set_yticks(range(len(most)), names, fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=LINE, lw=0.6)
    axes.set_axisbelow(True)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title("most frequent confusions (true → predicted), samples", fontsize=8, color=SOFT, loc="left")
