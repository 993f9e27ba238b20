"""The page of ``multimix look``: one file, no request, a slider that moves every method along λ."""

import base64
import html
import io
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from PIL import Image
from torch import Tensor

from .pictures import to_image

# Where the slider can stand; a method has a frame for each, or its K steps in their order.
POSITIONS = 41

# Larger frames would make the page heavy without showing more of the mask.
LARGEST_SIDE = 256
# Tried in this order until a method's frames fit. Colour at full resolution shows the edges of masks best; photographs with
# much detail need less.
JPEG_SETTINGS = ((75, "4:4:4"), (75, "4:2:0"), (60, "4:2:0"), (45, "4:2:0"))
HEAVIEST_CARD = 950_000

NO_PARTNER = "It has no partner: the slider moves through its own steps, and the label stays that of A."

CARD = """
      <li class="card">
        <figure>
          <h2>{name}</h2>
          <img src="data:image/jpeg;base64,{frame}" alt="{alt}" width="{side}" height="{side}" decoding="sync">
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


def page(a: Tensor, b: Tensor, cards: Sequence[Card]) -> str:
    """A complete HTML document. It opens at λ = ½, also where scripts are switched off."""
    side = min(a.shape[-1], LARGEST_SIDE)
    frames = [_jpegs(card.frames, side) for card in cards]
    data = [{"name": card.name, "lam": card.lam, "frames": own} for card, own in zip(cards, frames, strict=True)]
    values = {
        "last": str(POSITIONS - 1),
        "step": f"{1 / (POSITIONS - 1):g}",
        "a": _jpegs([a], side)[0],
        "b": _jpegs([b], side)[0],
        "cards": "".join(_card(card, own, side) for card, own in zip(cards, frames, strict=True)),
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
        sentence=marked_up(card.sentence),
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


def _jpegs(pictures: Sequence[Tensor], side: int) -> list[str]:
    """The pictures in base64, at the best of the settings that keeps them within ``HEAVIEST_CARD``, else at the last."""
    images = [to_image(picture, side) for picture in pictures]
    encoded: list[str] = []
    for quality, subsampling in JPEG_SETTINGS:
        encoded = [_jpeg(image, quality, subsampling) for image in images]
        if sum(map(len, encoded)) <= HEAVIEST_CARD:
            break
    return encoded


def _jpeg(image: Image.Image, quality: int, subsampling: str) -> str:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=quality, subsampling=subsampling, optimize=True)
    return base64.b64encode(content.getvalue()).decode()
