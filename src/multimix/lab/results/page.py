"""A self-contained HTML page: an answer, a figure beside it, everything else folded. One file, no request, light and dark."""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from .colours import ON_PAGE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
NOTHING = "–"


def document(title: str, lead: str, parts: Sequence[str], *, headline: str = "", figure: str = "") -> str:
    """A complete page. ``headline`` is the sentence that answers the page's question, ``figure`` shows it beside.

    ``figure`` and ``parts`` are HTML, made by the functions below; most parts are sections, which are folded.
    """
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    answer = f'<p class="headline">{html.escape(headline)}</p>' if headline else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<title>{html.escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<div class="answer"><div><h1>{html.escape(title)}</h1>\n{answer}\n'
        f'<p class="lead">{html.escape(lead)}</p></div>\n{figure}</div>\n'
        + "\n".join(filter(None, parts))
        + "\n</main>\n</body>\n</html>\n"
    )


def section(words: str, *content: str, unfolded: bool = False) -> str:
    """A part of the page with a title that links can lead to, folded until somebody asks for it; nothing without content."""
    inner = "\n".join(filter(None, content))
    state = " open" if unfolded else ""
    return (
        f'<details id="{_anchor(words)}"{state}><summary><h2>{html.escape(words)}</h2></summary>\n{inner}</details>'
        if inner
        else ""
    )


def subheading(words: str) -> str:
    """A title inside a section."""
    return f"<h3>{html.escape(words)}</h3>"


def paragraph(words: str, *, finding: bool = False) -> str:
    """Plain text; a finding is set off from the rest."""
    kind = ' class="finding"' if finding else ""
    return f"<p{kind}>{html.escape(words)}</p>"


def notes(sentences: Sequence[str]) -> str:
    """What to know about a table, in small print; nothing without sentences."""
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="notes">{items}</ul>' if items else ""


def preformatted(words: str) -> str:
    """Text whose line breaks count, such as a command."""
    return f"<pre>{html.escape(words)}</pre>"


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values in two columns, such as settings; nothing without values."""
    rows = "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd></div>" for name, value in values.items())
    return f"<dl>{rows}</dl>" if rows else ""


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """A table that scrolls by itself on a narrow screen; the first column is the row's name.

    Nothing without rows; a single row is a list of names and values, and columns without a value are left out.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    shown = [place for place in range(len(head)) if place == 0 or any(row[place] not in ("", NOTHING) for row in cells)]
    if not cells or len(shown) < 2:
        return ""
    # Below the table and not a caption, which would scroll away with it.
    below = f'<p class="below">{html.escape(caption)}</p>' if caption else ""
    if len(cells) == 1:
        return pairs({head[place] or "name": cells[0][place] for place in shown}) + below
    top = "".join(f'<th scope="col">{html.escape(str(head[place]))}</th>' for place in shown)
    body = "".join("<tr>" + "".join(_cell(row[place]) for place in shown) + "</tr>\n" for row in cells)
    inside = f"<table><thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{inside}</div>{below}'


def _cell(value: str) -> str:
    words = html.escape(value)
    # What is longer than a number with its interval and p is folded: it would push all else off a narrow screen.
    return f'<td class="long">{words}</td>' if len(value) > 40 else f"<td>{words}</td>"


def picture(png: bytes, alt: str, caption: str = "", *, small: bool = False) -> str:
    """An embedded PNG with its caption; ``alt`` says in words what it shows. A ``small`` one is not blown up to the page."""
    data = base64.b64encode(png).decode()
    kind = ' class="small"' if small else ""
    return f'<figure{kind}><img src="data:image/png;base64,{data}" alt="{html.escape(alt)}">{_below(caption)}</figure>'


def drawing(svg: bytes, alt: str, caption: str = "") -> str:
    """An SVG of matplotlib inside the page: in the page's font, and in colours that follow light and dark."""
    text = svg.decode()
    text = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.S)
    # Some versions of matplotlib write font: SIZE FAMILY, others the two apart.
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", re.sub(r" ?font-family: [^;\"]*;?", "", text))
    text = re.sub("|".join(ON_PAGE), lambda match: ON_PAGE[match[0]], text)
    # One page has many figures, and their names must not meet.
    own = hashlib.sha256(svg).hexdigest()[:8]
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{own}-", text)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(alt)}" ', 1)
    return f"<figure>{text}{_below(caption)}</figure>"


def beside(*drawn: str) -> str:
    """Figures side by side where there is room, below each other where there is not."""
    return f'<div class="beside">{"".join(drawn)}</div>' if any(drawn) else ""


def _below(caption: str) -> str:
    return f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""


def _anchor(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
