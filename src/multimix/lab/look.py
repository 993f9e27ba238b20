"""The K steps of every method on two pictures: one figure, and one page with a slider."""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from ..methods import METHODS, Cutout, Method, NoMix, PairMethod, create, required_options
from ..path import sample_path
from .look_page import Card, page
from .pictures import read_picture, to_image
from .results import make_folder, write_atomically

MOST_STEPS = 40
SIZES = (16, 512)
PAGE_FRAMES = 41

# The figure, in pixels.
CELL, GAP, NAME, HEAD, CAPTION, MARGIN = 200, 8, 140, 44, 34, 18
DPI = 100

MIXES_NOTHING = "it mixes nothing"
MIXES_HIDDEN = "it mixes hidden layers, which have no pixels"
MIXES_POINTS = "it mixes points, not pictures"
MIXES_PARTS = "it mixes parts of a batch together, not two pictures"
MIXES_EARLIER = "it mixes with the batch before, which two pictures do not have"
HAS_NETWORK = "it works with a network of its own, which must be trained first"
# What is no news: why these are not in the figure is on their cards.
LEFT_OUT = (MIXES_NOTHING, MIXES_HIDDEN, MIXES_POINTS, MIXES_PARTS, MIXES_EARLIER, HAS_NETWORK)


class Steps(NamedTuple):
    """Pictures along a path: ``images [K, 3, H, W]`` and ``lam [K]``, the partner's realised share in each."""

    images: Tensor
    lam: Tensor


class Row(NamedTuple):
    """One method's line of the figure; without ``partnered`` there is no B at its end."""

    name: str
    steps: Steps
    partnered: bool


def look(
    a: str | Path | Tensor,
    b: str | Path | Tensor,
    *,
    k: int = 5,
    methods: Sequence[str] = (),
    size: int = 256,
    seed: int = 0,
    out: str | Path = "multimix-look",
    track: Callable[[Sequence[Method]], Iterable[Method]] = iter,
    note: Callable[[str], None] = print,
) -> tuple[Path, Path]:
    """Paths of ``look.png`` (K steps per method) and ``look.html`` (any λ by a slider), both written into the folder ``out``.

    ``a`` and ``b`` are image files or pictures ``[3, size, size]`` in 0 … 1. No ``methods`` means all that can be shown;
    ``note`` is told about each that cannot. ``track`` may wrap the methods in a progress bar. Figure and page share the
    geometry, which follows from ``seed``.
    """
    few = sample_path(k, 1.0, sampler="grid").flatten().tolist()
    _check_options(k, size, seed)
    shown = shown_methods(methods, size, note)
    a, b = _picture(a, size, "a"), _picture(b, size, "b")
    many = [i / (PAGE_FRAMES - 1) for i in range(PAGE_FRAMES)]
    rows, cards = [], []
    for method in track(shown):
        partnered = isinstance(method, PairMethod)
        rows.append(Row(method.name, steps(method, a, b, few, seed=seed), partnered))
        fine = steps(method, a, b, many, seed=seed)
        cards.append(Card(method.name, _first_line(method), list(fine.images), fine.lam.tolist(), partnered))
    out = Path(out)
    png, html = out / "look.png", out / "look.html"
    make_folder(out)
    try:
        write_atomically(png, figure(a, b, rows))
        write_atomically(html, page(a, b, cards).encode())
    except OSError as error:
        raise OSError(f"cannot write into {str(out)!r}: {error.strerror}") from error
    return png, html


def steps(method: Method, a: Tensor, b: Tensor, lam: Sequence[float], *, seed: int) -> Steps:
    """What ``method`` makes of ``a`` with the partner ``b`` at the shares ``lam``, all with one geometry drawn from ``seed``.

    A method without a partner has no λ: it shows ``a`` at 0 and goes through its own k steps at the other shares. One that
    needs saliency gets the contrast of the pictures, since there is no network to ask.
    """
    x, generator = torch.stack([a, b]), torch.Generator().manual_seed(seed)
    if isinstance(method, PairMethod):
        # p = 1: a coin that says "no mixing" would leave nothing to look at.
        given = {"saliency": contrast(x)} if "saliency" in method.needs else {}
        plan = replace(method, p=1.0).plan(x, partner=torch.tensor([1, 0]), lam=lam, generator=generator, **given)
        return Steps(plan.mix(x)[::2], plan.lam[:, 0])
    unmoved = sum(share == 0 for share in lam)
    changed: dict[str, Any] = {"k": len(lam) - unmoved}
    plan = replace(method, **changed).plan(x, generator=generator)  # type: ignore[type-var]  # methods are dataclasses
    images = torch.cat([a.expand(unmoved, *a.shape), plan.mix(x)[::2]])
    return Steps(images, torch.cat([torch.zeros(unmoved, dtype=torch.float64), plan.lam[:, 0]]))


def contrast(pictures: Tensor) -> Tensor:
    """``[B, H, W]``: how much the brightness of ``pictures [B, C, H, W]`` changes around each place."""
    bright = pictures.mean(1, keepdim=True)
    across = bright.diff(dim=3, append=bright[..., -1:])
    down = bright.diff(dim=2, append=bright[:, :, -1:])
    reach = max(1, pictures.shape[-1] // 32)
    edges = torch.nn.functional.pad((across.square() + down.square()).sqrt(), (reach,) * 4, mode="replicate")
    return torch.nn.functional.avg_pool2d(edges, 2 * reach + 1, stride=1).squeeze(1)


def shown_methods(names: Sequence[str], size: int, note: Callable[[str], None]) -> list[Method]:
    """The methods called ``names``, one sentence for the first that cannot be shown; without names all that can be."""
    known = {key: kind for kind in METHODS for key in (kind.name, *kind.aliases)}
    for name in names:
        if name not in known:
            create(name)  # raises the sentence that lists what exists
        if reason := _obstacle(known[name]):
            raise ValueError(f"{name} cannot be shown: {reason}")
    if names:
        kinds = list(dict.fromkeys(known[name] for name in names))
    else:
        kinds = [kind for kind in METHODS if _obstacle(kind) is None]
        for kind in METHODS:
            if (reason := _obstacle(kind)) not in (None, *LEFT_OUT):
                note(f"{kind.name} is left out: {reason}")
    return [create(kind.name, **_options(kind, size)) for kind in kinds]


def figure(a: Tensor, b: Tensor, rows: Sequence[Row]) -> bytes:
    """A PNG with one line per method: its name, A, the K steps with their realised λ, and B."""
    k = len(rows[0].steps.lam)
    left, top = corner(len(rows) - 1, k + 1)
    width, height = left + CELL + MARGIN, top + CELL + CAPTION + MARGIN
    sheet = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")

    def write(x: float, y: float, words: str, size: float, **style: Any) -> None:
        style = {"ha": "center", "va": "center", "color": "#1c1c22", "family": "DejaVu Sans"} | style
        sheet.text(x / width, 1 - y / height, words, fontsize=size, **style)

    def place(picture: Tensor, row: int, column: int) -> None:
        x, y = corner(row, column)
        sheet.figimage(np.asarray(to_image(picture, CELL)), x, height - y - CELL)

    for column, words in ((0, "A"), (k + 1, "B")):
        write(corner(0, column)[0] + CELL / 2, MARGIN + HEAD / 2 - 4, words, 15, weight="bold")
    middle = (corner(0, 1)[0] + corner(0, k)[0] + CELL) / 2
    write(middle, MARGIN + HEAD / 2 - 4, _headline(k), 12, color="#5b5b66")
    for i, row in enumerate(rows):
        x, y = corner(i, 0)
        write(x - 16, y + CELL / 2, row.name, 14, weight="bold", ha="right")
        for column, picture in enumerate([a, *row.steps.images, b][: k + 1 + row.partnered]):
            place(picture, i, column)
        for column, lam in enumerate(row.steps.lam.tolist(), start=1):
            write(corner(i, column)[0] + CELL / 2, y + CELL + CAPTION / 2 - 2, f"λ = {lam:.2f}", 12)
        if not row.partnered:
            write(corner(i, k + 1)[0] + CELL / 2, y + CELL / 2, "no partner,\nthe label stays", 11, color="#5b5b66")
    return _png(sheet)


def corner(row: int, column: int) -> tuple[int, int]:
    """Left and top pixel of a picture in the figure; column 0 is A, then come the K steps, then B."""
    return MARGIN + NAME + column * (CELL + GAP), MARGIN + HEAD + row * (CELL + CAPTION + GAP)


def _headline(k: int) -> str:
    return f"K = {k}" if k < 3 else f"K = {k} steps; λ is the share of B that is really there"


def _png(sheet: Figure) -> bytes:
    canvas: Any = FigureCanvasAgg(sheet)
    content = io.BytesIO()
    canvas.draw()  # not savefig, which obeys the user's matplotlibrc and may cut or scale the sheet
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(content, "PNG", optimize=True)
    return content.getvalue()


def _obstacle(kind: type[Method]) -> str | None:
    """Why methods of this kind cannot be shown on two pictures; None if they can."""
    required = required_options(kind)
    if issubclass(kind, NoMix):
        return MIXES_NOTHING
    if kind.layout != "images":
        return MIXES_POINTS
    if kind.works_with is not None:
        return HAS_NETWORK
    if "layers" in required:
        return MIXES_HIDDEN
    if required:
        return f"it has no default for {', '.join(required)}"
    if not issubclass(kind, PairMethod) and "k" not in (option.name for option in fields(kind)):  # type: ignore[arg-type]
        return "it makes no steps"
    method = kind()
    if any(layer is not None for layer in method.mixes_at):
        return MIXES_HIDDEN
    if method.carries:
        return MIXES_EARLIER
    if method.needs and not issubclass(kind, PairMethod):
        return MIXES_PARTS
    if missing := [name for name in method.needs if name != "saliency"]:
        return f"it needs {', '.join(missing)}, which two pictures alone do not give"
    return None


def _options(kind: type[Method], size: int) -> dict[str, Any]:
    # Cutout was published for 16 of 32 pixels; grey stands for the mean of the data, which is 0 once it is normalised.
    return {"length": size // 2, "fill": 0.5} if issubclass(kind, Cutout) else {}


def _first_line(method: Method) -> str:
    line = (type(method).__doc__ or "").strip().splitlines()[0]
    return f"{line} Saliency here is the contrast of the pictures." if "saliency" in method.needs else line


def _check_options(k: int, size: int, seed: int) -> None:
    if k > MOST_STEPS:
        raise ValueError(f"k must be at most {MOST_STEPS} to fit a figure, got {k}")
    if not SIZES[0] <= size <= SIZES[1]:
        raise ValueError(f"size must lie in {SIZES[0]} … {SIZES[1]} pixels, got {size}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must lie in 0 … 2^63 − 1, got {seed}")


def _picture(source: str | Path | Tensor, size: int, name: str) -> Tensor:
    if not isinstance(source, Tensor):
        return read_picture(source, size)
    if list(source.shape) != [3, size, size]:
        raise ValueError(f"{name} must have shape [3, {size}, {size}], got {list(source.shape)}")
    return source
