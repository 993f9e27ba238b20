"""The page of ``multimix look``: one file, no request, a slider that moves every method along λ."""

import base64
import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from PIL import Image
from torch import Tensor

from .pictures import to_image

# Where the slider can stand; a method has a frame for each, or its K steps in their order.
POSITIONS = 21

# Larger frames would make the page heavy without showing more of the mask.
LARGEST_SIDE = 256
# Tried in this order until a method's frames fit into its share of the page; photographs with much detail need less.
SETTINGS = ((80, 256), (65, 256), (50, 256), (35, 256), (30, 192), (25, 128))  # quality and the largest side
HEAVIEST_PAGE = 3_600_000  # bytes of all frames, so that the page can be sent by mail

NO_PARTNER = "It has no partner: the slider moves through its own steps, and the label stays that of A."

CARD = """
      <li class="card">
        <figure>
          <h2>{name}</h2>
          <img src="data:image/webp;base64,{frame}" alt="{alt}" width="{side}" height="{side}" decoding="sync">
          <figcaption>
            <p class="realised"><span class="where">{where}</span> <span class="lam">λ = {lam:.2f}</span></p>
            <div class="bar" aria-hidden="true"><div class="share" style="width: {b:.1f}%"></div></div>
            <p class="label"><span class="of-a">A {a:.0f} %</span> <span class="of-b">B {b:.0f} %</span></p>
            <p class="sentence">{sentence}</p>{remark}
          </figcaption>
        </figure>
      </li>"""


class Card(NamedTuple):
    """One method on the page: ``frames`` are ``[3, H, W]`` each; ``lam`` is what was realised.

    There are as many as the slider has positions, at evenly spaced λ from 0 to 1, or fewer: then they are the method's own steps.
    """

    name: str
    sentence: str
    frames: Sequence[Tensor]
    lam: Sequence[float]
    partnered: bool
    remark: str = ""


def page(a: Tensor, b: Tensor, cards: Sequence[Card], left_out: Mapping[str, str] = {}) -> str:
    """A complete HTML document; it opens at λ = ½, also where scripts are switched off. ``left_out``: methods with the reason."""
    side = min(a.shape[-1], LARGEST_SIDE)
    share = HEAVIEST_PAGE // max(8, len(cards))
    frames = [_encoded(card.frames, side, share) for card in cards]
    data = [{"name": card.name, "lam": card.lam, "frames": own} for card, own in zip(cards, frames, strict=True)]
    values = {
        "last": str(POSITIONS - 1),
        "step": f"{1 / (POSITIONS - 1):g}",
        "a": _encoded([a], side, share)[0],
        "b": _encoded([b], side, share)[0],
        "cards": "".join(_card(card, own, side) for card, own in zip(cards, frames, strict=True)),
        "missing": "".join(f"<li>{html.escape(name)}: {html.escape(reason)}</li>" for name, reason in left_out.items()),
        "hidden": "" if left_out else " hidden",
        # A "</script>" inside the data would end it early.
        "data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    }
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def _card(card: Card, frames: Sequence[str], side: int) -> str:
    half = len(frames) // 2  # as the page's script rounds
    lam = card.lam[half]
    return CARD.format(
        name=html.escape(card.name),
        alt=html.escape(f"{card.name}: A {100 - 100 * lam:.0f} %, B {100 * lam:.0f} %"),
        frame=frames[half],
        side=side,
        where="realised" if len(frames) == POSITIONS else f"step {half + 1} of {len(frames)}, realised",
        lam=lam,
        a=100 - 100 * lam,
        b=100 * lam,
        sentence=marked_up(as_letters(card.sentence)),
        remark=_remark(card),
    )


def _remark(card: Card) -> str:
    """What else to say under a picture: what is special about it, that there is no partner, or that the path ends before B."""
    words = [card.remark] if card.remark else []
    if not card.partnered:
        words.append(NO_PARTNER)
    elif len(card.lam) == POSITIONS and card.lam[-1] < 0.995:
        words.append(f"Here it ends at {100 * card.lam[-1]:.0f} % of B.")
    return "".join(f'\n            <p class="remark">{html.escape(sentence, quote=False)}</p>' for sentence in words)


def as_letters(sentence: str) -> str:
    """A formula with A and B, as the page calls the pictures, for x and x'."""
    return re.sub(r"\bx(?!\u0302|\w)", "A", re.sub(r"\bx'", "B", sentence))


def marked_up(sentence: str) -> str:
    """A line of a docstring as HTML: ````name```` becomes code, ``λ_k`` a subscript, ``^(1/d)`` a superscript."""
    plain = html.escape(sentence, quote=False)
    pieces = re.split(r"``(.+?)``", plain)
    for i in range(0, len(pieces), 2):
        # A raised digit such as ² is a letter to \b, but ends a subscript.
        pieces[i] = re.sub(r"_(\w)(?![^\W²³])", r"<sub>\1</sub>", pieces[i])
        pieces[i] = re.sub(r"\^([a-z])\b", r"<sup>\1</sup>", pieces[i])
        pieces[i] = re.sub(r"\^\(([^)]+)\)", r"<sup>\1</sup>", pieces[i])
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def _encoded(pictures: Sequence[Tensor], side: int, most: int) -> list[str]:
    """The pictures in base64, in the best quality that keeps them within ``most`` bytes, else in the lowest."""
    encoded: list[str] = []
    for quality, largest in SETTINGS:
        encoded = [_webp(to_image(picture, min(side, largest)), quality) for picture in pictures]
        if sum(map(len, encoded)) <= most:
            break
    return encoded


def _webp(image: Image.Image, quality: int) -> str:
    content = io.BytesIO()
    image.save(content, "WEBP", quality=quality)
    return base64.b64encode(content.getvalue()).decode()
