"""The pictures of the page: what the paper's figures show, from our runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..results.paper import Exhibit
from ..results.paper_table import FilledTable
from ..results.rows import Rows
from .plan import Plan


class Picture(NamedTuple):
    """A PNG with what it shows in words."""

    png: bytes
    alt: str
    caption: str = ""


def pictures(plan: Plan, filled: Mapping[Exhibit, FilledTable], rows: Rows, out: Path) -> dict[Exhibit, Sequence[Picture]]:
    """Those of every figure of the plan that has something to show."""
    return {}
