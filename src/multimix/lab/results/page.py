"""A self-contained HTML page of text, tables and figures: one file, no request, light and dark, readable on a phone."""

import base64
import html
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def document(title: str, lead: str, parts: Sequence[str], *, contents: bool = False) -> str:
    """A complete page; ``parts`` are HTML, made by the functions below. ``contents`` puts a list of its sections first."""
    if contents:
        parts = [_contents(parts), *parts]
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<title>{html.escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{html.escape(title)}</h1>\n<p class="lead">{html.escape(lead)}</p>\n'
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def heading(words: str) -> str:
    """A section's title, which links can lead to."""
    return f'<h2 id="{_anchor(words)}">{html.escape(words)}</h2>'


def subheading(words: str) -> str:
    """A title inside a section."""
    return f"<h3>{html.escape(words)}</h3>"


def details(words: str, content: str) -> str:
    """HTML that is folded away below ``words`` until somebody asks for it."""
    return f"<details><summary>{html.escape(words)}</summary>{content}</details>"


def paragraph(words: str, *, finding: bool = False) -> str:
    """Plain text; a finding is set off from the rest."""
    kind = ' class="finding"' if finding else ""
    return f"<p{kind}>{html.escape(words)}</p>"


def notes(sentences: Sequence[str]) -> str:
    """What to know about a table, in small print; nothing without sentences."""
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="notes">{items}</ul>' if items else ""


def preformatted(words: str) -> str:
    """Text whose line breaks count, such as settings or a command."""
    return f"<pre>{html.escape(words)}</pre>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """A table that scrolls by itself on a narrow screen; the first column is the row's name."""
    top = "".join(f'<th scope="col">{html.escape(str(cell))}</th>' for cell in head)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>\n" for row in rows)
    # Below the table and not a caption, which would scroll away with it.
    below = f'<p class="below">{html.escape(caption)}</p>' if caption else ""
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>{below}'


def _cell(value: Any) -> str:
    words = html.escape(str(value))
    # What is longer than a number with its interval and p is folded: it would push all else off a narrow screen.
    return f'<td class="long">{words}</td>' if len(words) > 40 else f"<td>{words}</td>"


def picture(png: bytes, alt: str, caption: str = "", *, small: bool = False) -> str:
    """An embedded PNG with its caption; ``alt`` says in words what it shows. A ``small`` one is not blown up to the page."""
    data = base64.b64encode(png).decode()
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    kind = ' class="small"' if small else ""
    return f'<figure{kind}><img src="data:image/png;base64,{data}" alt="{html.escape(alt)}">{below}</figure>'


def _anchor(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _contents(parts: Sequence[str]) -> str:
    """Links to all sections."""
    found = [re.fullmatch(r'<h2 id="([^"]*)">(.*)</h2>', part) for part in parts]
    links = "".join(f'<a href="#{match[1]}">{match[2]}</a>' for match in found if match)
    return f'<nav aria-label="Sections">{links}</nav>'
