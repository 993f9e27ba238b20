"""The paper's Fig. 5 to 8 from finished runs."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ..evaluation.cache import PICTURES
from ..images import ImageGrid, read_image_grid
from ..recipes import recipe
from ..recipes.base import Follow
from .exhibits import Entry, FilledExhibit, recipe_groups
from .figures import BASELINE_STYLE, PERCENT, REFERENCE, Series, against, image_grid
from .frame import Rows, study
from .paper import CURVES, NONE, Key
from .study_figures import CURVES as EPOCH_CURVES
from .study_figures import epoch_curves
from .style import look


def exhibit_figure(filled: FilledExhibit, rows: Rows, follow: Follow = "text") -> Figure | None:
    """Return Fig. 5, 6, 7 or 8, or None without runs for it.

    Args:
        filled: The exhibit.
        rows: Stored rows.
        follow: Whether the recipes follow the paper's text or its authors' code.
    """
    number = filled.paper.number if filled.paper.kind == "figure" else 0
    if number == 5:
        grid = _birds(filled, rows, follow)
        return None if grid is None else image_grid(grid)
    if number == 8:
        recipe_study = study(recipe(filled.paper.columns[0].recipe, follow), filled.scale, rows)
        keys = [row.key for row in filled.paper.rows]
        groups = [group for group in recipe_groups(recipe_study) if (group.arm, group.k) in keys]
        groups.sort(key=lambda group: keys.index((group.arm, group.k)))
        return epoch_curves(recipe_study, EPOCH_CURVES["gradient"], groups)
    return {6: _error_figure, 7: _time_figure}[number](filled) if number in (6, 7) else None


def _error_figure(filled: FilledExhibit) -> Figure | None:
    """Draw the test error against K with standard deviations, a line per method."""
    entries = _entries(filled)
    if not any(entry.values for key, entry in entries.items() if key != NONE):
        return None
    ks = sorted({k for _, k in entries})
    series = []
    for i, (arm, label) in enumerate(CURVES.items()):
        offset = 0.12 * (i - (len(CURVES) - 1) / 2)
        points = [(k + offset, entry) for (name, k), entry in entries.items() if name == arm]
        series.append(_deviations(label, points, i))
        papers = [(x, entry.paper.mean) for x, entry in points if entry.paper is not None]
        if filled.scale == "paper" and papers:
            hollow = {**look(i), "ls": "", "ms": 10, "mfc": "none", "zorder": 4}
            x, y = zip(*papers, strict=True)
            series.append(Series(f"{label}, the paper", x, y, style=hollow))
    baseline, x_range = entries[NONE], [ks[0], ks[-1]]
    if baseline.summary is not None:
        series.append(Series("no mixup", x_range, [baseline.summary.mean] * 2, style=BASELINE_STYLE))
    if filled.scale == "paper" and baseline.paper is not None:
        series.append(Series("no mixup, the paper", x_range, [baseline.paper.mean] * 2, style=REFERENCE))
    return against({"": series}, "K", "test error (%)", bounds=PERCENT, ticks=ks)


def _time_figure(filled: FilledExhibit) -> Figure | None:
    """Draw by how many per cent an update takes longer than with K = 1."""
    entries = _entries(filled)
    if not any(entry.values for (_, k), entry in entries.items() if k > 1):
        return None
    ks = sorted({k for _, k in entries})
    measured = _deviations("puzzle-mix", [(float(k), entry) for (_, k), entry in entries.items()], 0)
    linear = Series("linear growth", ks, [100.0 * (k - 1) for k in ks], style=BASELINE_STYLE)
    return against({"": [measured, linear]}, "K", "increase in time over K = 1 (%)", bounds=(-100.0, math.inf), ticks=ks)


def _entries(filled: FilledExhibit) -> dict[Key, Entry]:
    return {row.key: filled.cells[i, 0] for i, row in enumerate(filled.paper.rows)}


def _deviations(label: str, points: Sequence[tuple[float, Entry]], index: int) -> Series:
    means = [(x, entry.summary) for x, entry in points if entry.summary is not None]
    spread = [mean.sd if math.isfinite(mean.sd) else 0.0 for _, mean in means]
    return Series(label, [x for x, _ in means], [mean.mean for _, mean in means], spread, spread, look(index))


def _birds(filled: FilledExhibit, rows: Rows, follow: Follow) -> ImageGrid | None:
    """Return the birds that the first run of every method stored, a row per method."""
    grids: dict[str, ImageGrid] = {}
    for name in filled.paper.pictures_of:
        groups = {(group.arm, group.k): group for group in recipe_groups(study(recipe(name, follow), filled.scale, rows))}
        for row in filled.paper.rows:
            stored_rows = groups[row.key].rows if row.key in groups else []
            # The evaluation is known to the run; a folder may hold pictures of former weights.
            files = [
                Path(stored_row["place"]) / PICTURES / "transfer" / "birds.npz"
                for stored_row in stored_rows
                if "transfer" in stored_row["evaluations"]
            ]
            grid = next((grid for file in files if (grid := read_image_grid(file)) is not None), None)
            if grid is not None:
                grids[row.label] = grid
    return _stacked(grids) if grids else None


def _stacked(grids: Mapping[str, ImageGrid]) -> ImageGrid:
    """Put grids below each other, a row per grid, with its name above the first picture."""
    columns = min(len(grid.images) for grid in grids.values())
    shape = next(iter(grids.values())).images.shape[1:]
    same_size = {label: grid for label, grid in grids.items() if grid.images.shape[1:] == shape}
    boxes, titles = [], []
    for i, (label, grid) in enumerate(same_size.items()):
        moved = grid.boxes[grid.boxes[:, 0] < columns].copy()
        moved[:, 0] += i * columns
        boxes.append(moved)
        titles += [label, *[""] * (columns - 1)]
    images = np.concatenate([grid.images[:columns] for grid in same_size.values()])
    return ImageGrid(images, tuple(titles), columns, next(iter(same_size.values())).caption, np.concatenate(boxes))
