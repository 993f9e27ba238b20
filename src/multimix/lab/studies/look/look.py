"""`multimix look`: the K steps of every method as a figure and a page, and the paper's Fig. 2 and 3."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ....core.sampling import sample_path, seeded
from ....methods import Method
from ...images import ImageGrid
from ...report.figures import image_grid
from ...report.pages.look import POSITIONS, Card, look_page
from ...report.style import png
from ...storage import make_folder, write_files
from .cases import choose_methods, left_out, remarks, train_ahead
from .pictures import SIZES, read_picture, to_image
from .steps import Steps, ends, steps, takes_lam

MAX_K = 40
FIGURE_PIXELS, FIGURE_INCHES = 200, 1.45  # side of a picture
SAMPLES_IN_A_ROW = 5
SEED = 5  # boxes and fields lie where both pictures remain visible
INTERPOLATED = {"mixup": "input mixup", "cutmix": "cutmix", "puzzlemix": "puzzle-mix"}
NO_PARTNER = "no partner,\nthe label stays"

Track = Callable[[Sequence[Method]], Iterable[Method]]
Source = str | Path | Tensor


def write_look(
    a: Source,
    b: Source,
    *,
    k: int = 5,
    methods: Sequence[str] = (),
    size: int = 256,
    seed: int = 0,
    out: str | Path = "multimix-look",
    track: Track = iter,
    note: Callable[[str], None] = print,
) -> tuple[Path, Path]:
    """Write ``look.png`` with K steps of every method, and ``look.html`` with a slider along λ; return their paths.

    Args:
        a: An image file, or a picture ``[3, size, size]`` in [0, 1].
        b: The same for the partner.
        k: Steps of each method in the figure, at most 40.
        methods: Names of methods; empty for all that can be shown.
        size: Side of the pictures in pixels.
        seed: Determines the geometry.
        out: Folder of the files.
        track: Wraps the methods in a progress bar.
        note: Receives messages.
    """
    if k > MAX_K:
        raise ValueError(f"k must be at most {MAX_K} to fit a figure, got {k}")
    few, many = _even_path(k), [i / (POSITIONS - 1) for i in range(POSITIONS)]
    hidden = {} if methods else left_out()
    chosen, (a, b) = choose_methods(methods, size, note), _pair(a, b, size, seed)
    make_folder(Path(out))  # before anything that takes time
    train_ahead(chosen, note)
    rows, cards = [], []
    for method in track(chosen):
        about, last = remarks(method), ends(method, a, b)[1]
        at_few = steps(method, a, b, few, seed=seed)
        rows.append(_row(method, method.name, a, b, at_few))
        fine = steps(method, a, b, many, seed=seed) if takes_lam(method) else at_few
        sentence = (type(method).__doc__ or "").strip().splitlines()[0]
        frames, remark = _pixels(fine.images, size), about.remark + _same_steps(fine)
        cards.append(Card(method.name, sentence, frames, fine.lam.tolist(), last is not None, remark))
    page = look_page(_pixels([a], size)[0], _pixels([b], size)[0], cards, hidden)
    drawn = _grid([cell for row in rows for cell in row], k + 2, f"{k} steps from A to B; λ is the realized share of B.")
    figure, html = write_files(Path(out), {"look.png": png(image_grid(drawn, side=FIGURE_INCHES)), "look.html": page.encode()})
    return figure, html


def write_paper_figure(
    number: Literal[2, 3],
    a: Source,
    b: Source,
    *,
    methods: Sequence[str] = (),
    size: int = 256,
    seed: int = SEED,
    out: str | Path = "multimix-look",
    track: Track = iter,
    note: Callable[[str], None] = print,
) -> Path:
    """Write the paper's Fig. 2 or 3 of two pictures as ``figure-2.png`` or ``figure-3.png``; return its path.

    Args:
        number: 2 for one sample of every method, 3 for four interpolations.
        a: An image file, or a picture ``[3, size, size]`` in [0, 1].
        b: The same for the partner.
        methods: Names of methods for Fig. 2; empty for all that can be shown.
        size: Side of the pictures in pixels.
        seed: Determines the geometry.
        out: Folder of the file.
        track: Wraps the methods in a progress bar.
        note: Receives messages.
    """
    if number == 3 and methods:
        raise ValueError(f"methods of Fig. 3 are fixed ({', '.join(INTERPOLATED)}), got {', '.join(methods)}")
    a, b = _pair(a, b, size, seed)
    if number == 2:
        drawn = paper_samples(a, b, methods=methods, seed=seed, track=track, note=note)
    else:
        drawn = paper_interpolations(a, b, seed=seed)
    return write_files(Path(out), {f"figure-{number}.png": png(image_grid(drawn, side=FIGURE_INCHES))})[0]


def paper_samples(
    a: Tensor,
    b: Tensor,
    *,
    methods: Sequence[str] = (),
    seed: int = SEED,
    track: Track = iter,
    note: Callable[[str], None] = print,
) -> ImageGrid:
    """Draw Fig. 2: two pictures and one sample of every method at λ = 1/2, with the realized λ.

    Args:
        a: ``[3, H, H]`` in [0, 1].
        b: The same for the partner.
        methods: Names of methods; empty for all that can be shown.
        seed: Determines the geometry.
        track: Wraps the methods in a progress bar.
        note: Receives messages.
    """
    chosen = choose_methods(methods, a.shape[-1], note)
    train_ahead(chosen, note)
    cells = [(a, "A"), (b, "B")]
    for method in track(chosen):
        picture, lam = nearest_sample(method, a, b, seed)
        cells.append((picture, _lines(method.name, f"λ = {lam:.2f}", remarks(method).caption)))
    return _grid(cells, min(SAMPLES_IN_A_ROW, len(cells)), "One sample of every method at λ = 1/2; λ is the realized share of B.")


def nearest_sample(method: Method, a: Tensor, b: Tensor, seed: int) -> tuple[Tensor, float]:
    """Return a method's mix and its realized λ: at λ = 1/2, or for a method without λ its step nearest to 1/2.

    Args:
        method: The method.
        a: ``[3, H, H]`` in [0, 1].
        b: The same for the partner.
        seed: Determines the geometry.
    """
    made = steps(method, a, b, [0.5] if takes_lam(method) else _even_path(5), seed=seed)
    nearest = int((made.lam - 0.5).abs().argmin())
    return made.images[nearest], float(made.lam[nearest])


def paper_interpolations(a: Tensor, b: Tensor, *, seed: int = SEED) -> ImageGrid:
    """Draw Fig. 3: four steps from ``a`` to ``b`` of input mixup, cutmix, and puzzle-mix, a row each.

    Args:
        a: ``[3, H, H]`` in [0, 1].
        b: The same for the partner.
        seed: Determines the geometry.
    """
    path, cells = _even_path(4), []
    for method in choose_methods(list(INTERPOLATED), a.shape[-1], print):
        cells += _row(method, INTERPOLATED[method.name], a, b, steps(method, a, b, path, seed=seed))
    return _grid(cells, len(path) + 2, "Four steps from A to B; λ is the realized share of B.")


def _pair(a: Source, b: Source, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Validate size and seed, and read both pictures."""
    if not SIZES[0] <= size <= SIZES[1]:
        raise ValueError(f"size must lie in {SIZES[0]} … {SIZES[1]} pixels, got {size}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must lie in 0 … 2^63 − 1, got {seed}")
    return _picture(a, size, "a"), _picture(b, size, "b")


def _row(method: Method, name: str, a: Tensor, b: Tensor, made: Steps) -> list[tuple[Tensor, str]]:
    """Return A, the steps, and B with their titles; a blank picture if there is no partner."""
    first, last = ends(method, a, b)
    shown = [(image, f"λ = {lam:.2f}") for image, lam in zip(made.images, made.lam.tolist(), strict=True)]
    end = (first.new_ones(first.shape), NO_PARTNER) if last is None else (last, "B")
    return [(first, _lines(f"{name}: A", remarks(method).caption)), *shown, end]


def _grid(cells: Sequence[tuple[Tensor, str]], columns: int, caption: str) -> ImageGrid:
    images = _pixels([picture for picture, _ in cells], FIGURE_PIXELS)
    return ImageGrid(images, tuple(title for _, title in cells), columns, caption)


def _pixels(pictures: Iterable[Tensor], side: int) -> NDArray[np.uint8]:
    """Return ``[N, side, side, 3]``."""
    return np.stack([np.asarray(to_image(picture, side)) for picture in pictures])


def _lines(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


def _same_steps(fine: Steps) -> str:
    """Return a remark if all steps are equal."""
    if len(fine.images) == 1 or not all(picture.equal(fine.images[0]) for picture in fine.images):
        return ""
    return (
        f" All {len(fine.images)} steps are the same picture here: among so few samples the share it aims at changes no choice."
    )


def _even_path(k: int) -> list[float]:
    return sample_path(k, 1.0, sampler="grid", generator=seeded(SEED)).flatten().tolist()


def _picture(source: Source, size: int, name: str) -> Tensor:
    if not isinstance(source, Tensor):
        return read_picture(source, size)
    if list(source.shape) != [3, size, size]:
        raise ValueError(f"{name} must have shape [3, {size}, {size}], got {list(source.shape)}")
    return source
