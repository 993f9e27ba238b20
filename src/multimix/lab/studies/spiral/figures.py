"""The figures of the spiral: the data, three decision boundaries, and accuracy seed by seed."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from torch import Tensor

from ...recipes.spiral import ARMS, COLLAPSED, SpiralArm, SpiralSettings
from ...results.figures.recipe import reaches
from ...results.figures.style import BLUE, COLOURS, GREY, INK, LINE, ORANGE, TEXT, VERMILION, legend_below, panels, within
from ...statistics import half_shown
from .data import SpiralData, spiral_data
from .findings import summaries
from .runs import SpiralResult, SpiralRun
from .training import net_with_weights

CLASS_COLORS = (BLUE, ORANGE)
ARM_COLORS = (GREY, BLUE, COLOURS[3])
# Nothing where the network is undecided, so that it lies on white and on black alike.
FIELD = LinearSegmentedColormap.from_list("share", [(*to_rgb(BLUE), 0.35), (0.5, 0.5, 0.5, 0.0), (*to_rgb(ORANGE), 0.35)])
EDGE, GRID = 1.15, 361
BOUNDARY = Line2D([], [], color=INK, linewidth=1.6, label="decision boundary")

Part = Literal["training", "test"]


def data_figure(settings: SpiralSettings, seed: int, parts: Sequence[Part] = ("training", "test")) -> Figure:
    """The training labels with the wrong ones ringed, and the clean test labels beside them; one part alone has no legend."""
    data = spiral_data(settings, seed)
    figure, panels = _panels(len(parts))
    for axes, part in zip(panels, parts, strict=True):
        if part == "training":
            _training_panel(axes, data)
        else:
            _scatter(axes, data.x_test, data.y_test, size=16)
            _frame(axes, f"test: {len(data.x_test)} points, clean labels")
    if len(parts) > 1:
        _legend_below(figure, _point_legend())
    return figure


def boundary_figure(result: SpiralResult, arms: Sequence[SpiralArm] = ARMS) -> Figure:
    """The median run of every arm: class 1's probability as colour, the boundary as a line, that seed's training points."""
    figure, panels = _panels(len(arms))
    for axes, arm in zip(panels, arms, strict=True):
        _boundary_panel(axes, result, arm)
    if len(arms) > 1:
        _legend_below(figure, [*_point_legend(), BOUNDARY])
    return figure


def paper_figure(result: SpiralResult) -> Figure:
    """The paper's Fig. 4: the training data of the first seed, and the boundary of every arm's median run."""
    figure, (first, *others) = _panels(1 + len(ARMS))
    _training_panel(first, spiral_data(result.settings, result.seeds[0]))
    for axes, arm in zip(others, ARMS, strict=True):
        _boundary_panel(axes, result, arm)
    _legend_below(figure, [*_point_legend(), BOUNDARY])
    return figure


def accuracy_figure(result: SpiralResult) -> Figure:
    """Every seed's accuracy under each arm, joined by seed; mean with 95 % interval, median, and the paper's single run."""
    figure, [[axes]] = panels()
    spread = _spread(len(result.seeds))
    columns = [[place + shift for shift in spread] for place in range(len(ARMS))]
    values = [result.accuracies(arm) for arm in ARMS]
    for seed in range(len(result.seeds)):
        axes.plot([column[seed] for column in columns], [value[seed] for value in values], color=LINE, lw=0.8, zorder=1)
    for place, (arm, color, summary) in enumerate(zip(ARMS, ARM_COLORS, summaries(result).values(), strict=True)):
        axes.scatter(columns[place], values[place], s=26, color=color, alpha=0.75, linewidths=0, zorder=2)
        reach = reaches([(summary.mean, half_shown(summary))], 0.0, 100.0)
        axes.errorbar(place + 0.3, summary.mean, reach, fmt="o", color=INK, ms=6, capsize=4, lw=1.6, zorder=3)
        axes.plot([place - 0.22, place + 0.22], [summary.median] * 2, color=INK, lw=1.6, zorder=3)
        axes.scatter([place + 0.42], [arm.paper], marker="D", s=40, facecolor="white", edgecolor=VERMILION, lw=1.5, zorder=3)
    if min(map(min, values)) < COLLAPSED + 5:
        axes.axhline(COLLAPSED, color=VERMILION, lw=1, ls=":", zorder=1)
        axes.text(2.55, COLLAPSED, f"collapsed below {COLLAPSED:.0f} %", color=INK, va="bottom", ha="right", fontsize=TEXT)
    axes.set_xticks(range(len(ARMS)), [arm.words.replace(", ", "\n").replace(" mixup", "\nmixup") for arm in ARMS])
    axes.set_xlim(-0.4, len(ARMS) - 0.4)
    axes.set_ylabel("right test labels (%)")
    axes.grid(visible=False, axis="x")
    within(axes, 0.0, 100.0)
    handles = _accuracy_legend()
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def boundary_field(run: SpiralRun, settings: SpiralSettings) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The places of a square grid along one axis, and class 1's probability ``[y, x]`` on it."""
    line = torch.linspace(-EDGE, EDGE, GRID)
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).flatten(0, 1)
    with torch.no_grad():
        share = net_with_weights(torch.tensor(run.weights), settings.slope)(grid).softmax(dim=1)[:, 1]
    return line.numpy(), share.reshape(GRID, GRID).numpy()


def _training_panel(axes: Any, data: SpiralData) -> None:
    _training_points(axes, data, size=16)
    _frame(axes, f"training: {len(data.x)} points, {int(data.flipped.sum())} labels flipped")


def _boundary_panel(axes: Any, result: SpiralResult, arm: SpiralArm) -> None:
    run = result.median_run(arm)
    line, field = boundary_field(run, result.settings)
    sides = (-EDGE, EDGE, -EDGE, EDGE)
    axes.imshow(field, origin="lower", extent=sides, cmap=FIELD, vmin=0, vmax=1, interpolation="bilinear")
    if float(field.min()) < 0.5 < float(field.max()):
        axes.contour(line, line, field, levels=[0.5], colors=INK, linewidths=1.6)
    _training_points(axes, spiral_data(result.settings, run.seed), size=11)
    _frame(axes, f"{arm.words}\nmedian run (seed {run.seed}): {run.accuracy:.2f} %")


def _training_points(axes: Any, data: SpiralData, size: float) -> None:
    _scatter(axes, data.x, data.y, size)
    wrong = data.x[data.flipped].numpy()
    axes.scatter(wrong[:, 0], wrong[:, 1], s=3.6 * size, facecolor="none", edgecolor=INK, linewidths=0.9)


def _scatter(axes: Any, x: Tensor, label: Tensor, size: float) -> None:
    for number, color in enumerate(CLASS_COLORS):
        own = x[label == number].numpy()
        axes.scatter(own[:, 0], own[:, 1], s=size, color=color, linewidths=0)


def _frame(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=TEXT, color=INK)
    axes.set(xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_color(LINE)


def _panels(count: int) -> tuple[Figure, list[Any]]:
    """Square panels side by side, with room for their titles and, below several, for a legend."""
    figure = Figure(figsize=(3.9 * count, 4.4 if count == 1 else 4.8), layout="constrained")
    # A browser's letters reach higher than matplotlib's.
    figure.get_layout_engine().set(h_pad=0.15)  # type: ignore[union-attr, call-arg]
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _legend_below(figure: Figure, handles: list[Line2D], columns: int = 4) -> None:
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, labelcolor=INK, fontsize=TEXT)


def _point_legend() -> list[Line2D]:
    dots = [
        Line2D([], [], color=color, marker="o", ls="", ms=6, label=f"label {number}") for number, color in enumerate(CLASS_COLORS)
    ]
    return [*dots, Line2D([], [], color=INK, marker="o", mfc="none", ls="", ms=8, label="flipped label")]


def _accuracy_legend() -> list[Line2D]:
    return [
        Line2D([], [], color=GREY, marker="o", ls="", ms=5, label="one seed"),
        Line2D([], [], color=INK, lw=1.6, label="median"),
        Line2D([], [], color=INK, marker="o", lw=1.6, label="mean, 95 % interval"),
        Line2D([], [], color=VERMILION, marker="D", mfc="white", ls="", label="the paper's one run"),
    ]


def _spread(count: int) -> list[float]:
    """Places beside each other, so that equal accuracies do not hide one another."""
    return [0.0] if count == 1 else [0.36 * (i / (count - 1) - 0.5) for i in range(count)]
