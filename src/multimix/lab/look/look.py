"""The K steps of every method on two pictures: one figure, and one page with a slider."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from torch import Tensor

from ...core.sampling import sample_path, seeded
from ...methods import Method
from ...methods.registry import entries, entry
from ..method_options import lab_options
from ..storage import keep_page, make_folder, write_atomically
from .cases import LEFT_OUT, obstacle, train_ahead, words
from .figure import Row, figure
from .page import POSITIONS, Card, page
from .pictures import SIZES, read_picture
from .steps import Steps, ends, steps, takes_lam

MOST_STEPS = 40


def write_look(
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
    ``note`` gets a sentence on each that cannot, and on what takes long. ``track`` may wrap the methods in a progress bar. Figure
    and page share the geometry, which follows from ``seed``.
    """
    _check_options(k, size, seed)
    few = sample_path(k, 1.0, sampler="grid", generator=seeded(seed)).flatten().tolist()
    chosen, left_out = choose_methods(methods, size, note), {} if methods else _left_out()
    a, b = _picture(a, size, "a"), _picture(b, size, "b")
    many = [i / (POSITIONS - 1) for i in range(POSITIONS)]
    out = Path(out)
    png, html = out / "look.png", out / "look.html"
    make_folder(out)  # before anything that takes time
    train_ahead(chosen, note)
    rows, cards = [], []
    for method in track(chosen):
        about, (first, last) = words(method), ends(method, a, b)
        at_few = steps(method, a, b, few, seed=seed)
        rows.append(Row(method.name, first, at_few, last, about.caption))
        fine = steps(method, a, b, many, seed=seed) if takes_lam(method) else at_few
        sentence = (type(method).__doc__ or "").strip().splitlines()[0]
        cards.append(
            Card(method.name, sentence, list(fine.images), fine.lam.tolist(), last is not None, about.remark + _same_steps(fine))
        )
    write_atomically(png, figure(rows))
    whole = page(a, b, cards, left_out).encode()
    keep_page(html, whole)
    write_atomically(html, whole)
    return png, html


def choose_methods(names: Sequence[str], size: int, note: Callable[[str], None]) -> list[Method]:
    """The methods called ``names``, a ValueError for the first that cannot be shown; without names all that can be."""
    chosen = list({entry(name).name: entry(name) for name in names}.values())
    for name in names:
        if reason := obstacle(entry(name)):
            raise ValueError(f"{name} cannot be shown: {reason}")
    if not names:
        chosen = [known for known in entries() if obstacle(known) is None]
        for name, reason in _left_out().items():
            if reason not in LEFT_OUT:
                note(f"{name} is left out: {reason}")
    return [known.method(**lab_options(known.name).look(size)) for known in chosen]


def _left_out() -> dict[str, str]:
    """The methods that cannot be shown, with the reason."""
    reasons = {known.name: obstacle(known) for known in entries()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _same_steps(fine: Steps) -> str:
    """What to say where all steps came out the same."""
    if len(fine.images) == 1 or not all(picture.equal(fine.images[0]) for picture in fine.images):
        return ""
    return (
        f" All {len(fine.images)} steps are the same picture here: among so few samples the share it aims at changes no choice."
    )


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
