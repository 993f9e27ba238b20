"""Every figure of the paper under its number: from runs, from the demo of the spiral, or from two pictures."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from torch import Tensor

from ...methods import Method
from ..recipes.base import Follow, Scale
from ..report.pages.spiral import read_demo, spiral_picture
from ..results.paper_table import DemoRuns, FilledTable
from ..results.rows import Rows

OF_PICTURES = (2, 3)


def demo_runs(folder: Path) -> dict[Scale, DemoRuns]:
    """Return the demo's accuracies by scale, arm, and seed."""
    by_arm = {scale: frame.set_index("seed").groupby("arm").accuracy for scale, frame in read_demo(folder).items()}
    return {scale: DemoRuns({str(arm): own.to_dict() for arm, own in groups}) for scale, groups in by_arm.items()}


def figure_files(
    filled: FilledTable,
    rows: Rows,
    *,
    follow: Follow = "text",
    demo: Path,
    pair: tuple[Tensor, Tensor] | None = None,
    track: Callable[[Sequence[Method]], Iterable[Method]] = iter,
    note: Callable[[str], None] = print,
) -> dict[str, bytes]:
    """The files of a figure by name, ``figure-6.png`` and ``figure-6.svg``; a PNG alone of pictures; none without results.

    ``filled`` and ``follow`` are as ``fill`` has them, ``rows`` those of the runs, ``demo`` is the folder of the spiral. ``pair``
    are two pictures ``[3, H, H]`` for Fig. 2 and 3, by default a cat and a dog.
    """
    exhibit = filled.paper
    if exhibit.number in OF_PICTURES:
        from ..report.figures import image_grid
        from ..report.style import png
        from ..studies.look import cat, dog, paper_interpolations, paper_samples

        a, b = pair or (cat(), dog())
        grid = paper_samples(a, b, track=track, note=note) if exhibit.number == 2 else paper_interpolations(a, b)
        return {f"{exhibit.file_stem}.png": png(image_grid(grid))}
    if exhibit.number == 4:
        content = spiral_picture(demo, filled.scale)
        return {f"{exhibit.file_stem}.svg": content} if content else {}
    if exhibit.number == 5:
        from ..results.evaluations import bird_strips
        from ..results.figures.boxes import birds_panels

        strips = bird_strips(exhibit, filled.scale, rows, follow)
        return {f"{exhibit.file_stem}.png": birds_panels(strips)} if strips else {}
    from ..results.figures.paper import measured_figure

    return measured_figure(filled, rows, follow)
