"""The page of ``multimix look``: one file with a slider that moves every method along λ."""

import base64
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray
from PIL import Image

from ..page import Notes, Section, render_page

# Positions of the slider. A method has a frame for each position, or its K steps in order.
POSITIONS = 21
MAX_SIDE = 256  # pixels
# Quality and side in pixels, tried in order until the frames of a method fit into its share.
ENCODINGS = ((80, 256), (65, 256), (50, 256), (35, 256), (30, 192), (25, 128))
MAX_FRAME_BYTES = 3_600_000  # of all frames, so that the page fits into a mail
MIN_SHARES = 8  # lower bound of the number of methods that share MAX_FRAME_BYTES

NO_PARTNER = "It has no partner: the slider moves through its own steps, and the label stays that of A."
LEAD = (
    "λ is the requested share of B: 0 is A, 1 is B. Below each picture are the share that is really there and the label that "
    "goes with it."
)


class Card(NamedTuple):
    """A method on the page.

    Args:
        name: Its name.
        sentence: The first line of its docstring.
        frames: ``[N, H, W, 3]``, uint8. With N = ``POSITIONS`` they are at evenly spaced λ from 0
            to 1, otherwise they are the method's own steps.
        lam: The realized λ of each frame.
        partnered: Whether it mixes with B.
        remark: Differences from training.
    """

    name: str
    sentence: str
    frames: NDArray[np.uint8]
    lam: Sequence[float]
    partnered: bool
    remark: str = ""


def look_page(a: NDArray[np.uint8], b: NDArray[np.uint8], cards: Sequence[Card], left_out: Mapping[str, str] = {}) -> str:
    """Return the page; it opens at λ = 1/2, even without scripts.

    Args:
        a: ``[H, H, 3]``.
        b: Its partner, ``[H, H, 3]``.
        cards: The methods.
        left_out: Reasons by name for methods that are not shown.
    """
    side = min(len(a), MAX_SIDE)
    budget = MAX_FRAME_BYTES // max(MIN_SHARES, len(cards))
    frames = [_encoded(card.frames, side, budget) for card in cards]
    values: dict[str, Any] = {
        "a": _encoded([a], side, budget)[0],
        "b": _encoded([b], side, budget)[0],
        "cards": [_shown(card, card_frames) for card, card_frames in zip(cards, frames, strict=True)],
        "data": [
            {"name": card.name, "lam": card.lam, "frames": card_frames} for card, card_frames in zip(cards, frames, strict=True)
        ],
        "side": side,
        "last": POSITIONS - 1,
    }
    reasons = [f"{name}: {reason}" for name, reason in left_out.items()]
    blocks = [Section("Not shown", [Notes(reasons)])]
    return render_page("From A to B, by every method", LEAD, blocks, template="look.html", **values)


def _shown(card: Card, frames: Sequence[str]) -> dict[str, Any]:
    """Return the template's values of a card at λ = 1/2."""
    middle = len(frames) // 2  # as the page's script rounds
    lam = card.lam[middle]
    labels = {"a": f"A {100 - 100 * lam:.0f} %", "b": f"B {100 * lam:.0f} %"}
    position = "realized" if len(frames) == POSITIONS else f"step {middle + 1} of {len(frames)}, realized"
    sentence = marked_up(as_letters(card.sentence))
    values = {"name": card.name, "frame": frames[middle], "lam": lam, "where": position, "remarks": list(_remarks(card))}
    return {**values, **labels, "sentence": sentence}


def _remarks(card: Card) -> Iterator[str]:
    if card.remark:
        yield card.remark
    if not card.partnered:
        yield NO_PARTNER
    elif len(card.lam) == POSITIONS and card.lam[-1] < 0.995:
        yield f"Here it ends at {100 * card.lam[-1]:.0f} % of B."


def as_letters(sentence: str) -> str:
    """Replace x and x' in a formula by A and B.

    Args:
        sentence: The line.

    >>> as_letters("x̂_k is x' inside box k and x outside")
    'x̂_k is B inside box k and A outside'
    """
    return re.sub(r"\bx(?!\u0302|\w)", "A", re.sub(r"\bx'", "B", sentence))


def marked_up(sentence: str) -> Markup:
    """Convert a line of a docstring to HTML.

    Args:
        sentence: The line.

    >>> marked_up("``side`` of λ_k^(1/d)")
    Markup('<code>side</code> of λ<sub>k</sub><sup>1/d</sup>')
    """
    pieces = re.split(r"``(.+?)``", str(escape(sentence)))
    for i in range(0, len(pieces), 2):
        # \b counts a raised digit such as ² as a letter, but it ends a subscript.
        pieces[i] = re.sub(r"_(\w)(?![^\W²³])", r"<sub>\1</sub>", pieces[i])
        pieces[i] = re.sub(r"\^([a-z])\b", r"<sup>\1</sup>", pieces[i])
        pieces[i] = re.sub(r"\^\(([^)]+)\)", r"<sup>\1</sup>", pieces[i])
    return Markup("".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces)))


def _encoded(frames: Iterable[NDArray[np.uint8]], side: int, max_bytes: int) -> list[str]:
    """Return frames in base64, in the best quality within ``max_bytes`` or else the lowest."""
    images, encoded = [Image.fromarray(frame) for frame in frames], []
    for quality, limit in ENCODINGS:
        encoded = [_webp(image, min(side, limit), quality) for image in images]
        if sum(map(len, encoded)) <= max_bytes:
            break
    return encoded


def _webp(image: Image.Image, side: int, quality: int) -> str:
    content = io.BytesIO()
    resized = image if image.size == (side, side) else image.resize((side, side), Image.Resampling.LANCZOS)
    resized.save(content, "WEBP", quality=quality)
    return base64.b64encode(content.getvalue()).decode()
