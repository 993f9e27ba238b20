"""Self-contained HTML pages from a list of sections: one template, light and dark, no requests."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .style import ON_PAGE
from .tables import Table

LONG_CELL = 40  # characters; longer cells are folded


@dataclass(frozen=True)
class Text:
    """A block of text; its class decides the look.

    Args:
        text: The text.
    """

    text: str
    kind: ClassVar[str]


class Finding(Text):
    """A highlighted paragraph."""

    kind = "finding"


class Heading(Text):
    """A title inside a section."""

    kind = "heading"


class Code(Text):
    """Preformatted text, such as a command."""

    kind = "code"


class Html(Text):
    """Trusted HTML from a file of this package."""

    kind = "html"


@dataclass(frozen=True)
class Notes:
    """A list in small print.

    Args:
        sentences: Its items.
    """

    sentences: Sequence[str]
    kind: ClassVar[str] = "notes"


@dataclass(frozen=True)
class Facts:
    """Names and values in two columns.

    Args:
        values: Values by name.
    """

    values: Mapping[str, Any]
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Picture:
    """An SVG drawing or a PNG image.

    Args:
        content: The file's bytes.
        alt: What it shows, in words.
        caption: Text below it.
    """

    content: bytes
    alt: str
    caption: str = ""
    kind: ClassVar[str] = "picture"

    @property
    def svg(self) -> Markup | None:
        """The drawing as inline SVG with the page's font and colors, None for a PNG image."""
        return None if self.content.startswith(b"\x89PNG") else _inline_svg(self.content, self.alt)

    @property
    def base64(self) -> str:
        """The image's bytes in base64."""
        return base64.b64encode(self.content).decode()


@dataclass(frozen=True)
class Beside:
    """Pictures side by side where they fit.

    Args:
        pictures: The pictures.
    """

    pictures: Sequence[Picture]
    kind: ClassVar[str] = "beside"


@dataclass(frozen=True)
class Section:
    """A folded part of a page with a title that links can target.

    Args:
        title: Its title.
        blocks: Its content. Empty blocks, None, and empty sections are omitted.
        unfolded: Whether it is open when the page loads.
    """

    title: str
    blocks: "Iterable[Block | None]"
    unfolded: bool = False
    kind: ClassVar[str] = "section"

    @property
    def anchor(self) -> str:
        """The target of links."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


Block = str | Text | Notes | Facts | Picture | Beside | Section | Table


def render_page(
    title: str,
    lead: str,
    blocks: Iterable[Block | None],
    *,
    headline: str = "",
    figure: Picture | None = None,
    template: str = "page.html",
    **values: Any,
) -> str:
    """Return a complete HTML document.

    Args:
        title: Title.
        lead: A paragraph below the headline.
        blocks: The content, usually sections.
        headline: One sentence that answers the page's question.
        figure: Figure beside the headline.
        template: File in ``templates``.
        **values: Further variables of the template.
    """
    environment = Environment(
        loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = (files(__package__) / "templates" / "page.css").read_text(encoding="utf-8")
    variables: dict[str, Any] = {"title": title, "lead": lead, "headline": headline, "figure": figure, "long": LONG_CELL}
    variables |= {"blocks": _shown(blocks), "style": Markup(style)}
    return environment.get_template(template).render(**variables, **values)


def _shown(blocks: "Iterable[Block | None]") -> "list[Any]":
    """Omit empty blocks, and convert tables with one row to facts."""
    shown: list[Any] = []
    for block in blocks:
        if isinstance(block, Table):
            shown += _table(block)
        elif isinstance(block, Section):
            content = _shown(block.blocks)
            shown += [Section(block.title, content, block.unfolded)] if content else []
        elif isinstance(block, Notes | Facts | Beside | str):
            values = {Notes: "sentences", Facts: "values", Beside: "pictures"}.get(type(block))
            shown += [block] if (getattr(block, values) if values else block) else []
        elif block is not None:
            shown.append(block)
    return shown


def _table(table: Table) -> "list[Any]":
    table = table.without_empty_columns()
    rows = table.rows
    if not rows or len(table.heads) < 2:
        return []
    notes = [Notes(table.notes)] if table.notes else []
    if len(rows) == 1:
        return [Facts(dict(zip([table.heads[0] or "name", *table.heads[1:]], rows[0], strict=True))), *notes]
    return [table, *notes]


def _inline_svg(svg: bytes, alt: str) -> Markup:
    text = svg.decode()
    text = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.S)
    # Versions of matplotlib differ: "font: SIZE FAMILY", or both properties separately.
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", re.sub(r" ?font-family: [^;\"]*;?", "", text))
    text = re.sub("|".join(ON_PAGE), lambda match: ON_PAGE[match[0]], text)
    # The ids of all figures of a page must be distinct.
    prefix = hashlib.sha256(svg).hexdigest()[:8]
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    return Markup(text.replace("<svg ", str(Markup('<svg role="img" aria-label="{}" ').format(alt)), 1))
