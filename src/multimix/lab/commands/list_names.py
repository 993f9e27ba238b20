"""`multimix list`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from .options import option

if TYPE_CHECKING:
    from rich.table import Table

    from ...methods.registry import Entry

CLASSES = 100  # of the networks whose parameters are counted


def list_(
    what: Annotated[
        Literal["all", "recipes", "methods", "networks", "data", "paper"],
        option("List to print.", "[recipes|methods|networks|data|paper]"),
    ] = "all",
    /,
) -> None:
    """List recipes, methods and baselines, networks, data sets, and tables and figures of the paper by name.

    Try it:
      multimix list
      multimix list recipes
    """
    from rich.console import Console

    tables = {"recipes": recipes, "methods": methods, "networks": networks, "data": data_sets, "paper": exhibits}
    for name, table in tables.items():
        if what in ("all", name):
            Console().print(table())


def recipes() -> Table:
    """Return the table of recipes, with the time of a training at small scale."""
    from ..recipes import RECIPES

    lines = [[name, recipe.title, len(recipe.rows), recipe.takes.get("small", "")] for name, recipe in RECIPES.items()]
    return _table("Recipes: multimix train RECIPE", ["recipe", "what", "#rows", "one training, small scale"], lines)


def methods() -> Table:
    """Return the table of names for ``--method``."""
    from ...methods.registry import entries
    from ..recipes.base import STRATEGIES, counts_k

    lines = [[entry.name, _with_aliases(entry), "steps" if counts_k(entry.name) else ""] for entry in entries()]
    lines += [[name, strategy.about, "factor" if counts_k(name) else ""] for name, strategy in STRATEGIES.items()]
    return _table("Methods and baselines: --method NAME --k K", ["name", "what", "K"], lines)


def _with_aliases(entry: Entry) -> str:
    return f"{entry.summary} (also {', '.join(entry.aliases)})" if entry.aliases else entry.summary


def networks() -> Table:
    """Return the table of networks with their numbers of parameters."""
    import torch

    from ..nets import NETWORKS, network

    lines = []
    # On the CPU, since initialization on the meta device imports 800 modules of torch, which takes longer.
    with torch.random.fork_rng(devices=[]):
        for name, make in NETWORKS.items():
            count = sum(weight.numel() for weight in network(name, CLASSES).parameters())
            first_line = (inspect.getdoc(make) or "").partition("\n")[0]
            about = re.sub(r": [\d,]+ parameters.*", "", first_line)  # that count is for other numbers of classes
            lines.append([name, f"{count:,}", about.rstrip(".")])
    heads = ["network", f"#parameters, {CLASSES} classes", "what"]
    return _table("Networks: --network.name NAME, or package.module:Class of any other", heads, lines)


def data_sets() -> Table:
    """Return the table of data sets with their official numbers of samples."""
    from ..data import DATASETS

    lines = [
        [name, entry.classes, "×".join(map(str, entry.size)), ", ".join(f"{n:,} {part}" for part, n in entry.counts.items())]
        for name, entry in DATASETS.items()
    ]
    return _table("Data sets: --data.name NAME", ["data set", "#classes", "#size", "samples"], lines)


def exhibits() -> Table:
    """Return the table of the paper's tables and figures."""
    from ..report.paper import EXHIBITS

    lines = [[exhibit.short, exhibit.label, exhibit.title, ", ".join(exhibit.recipes)] for exhibit in EXHIBITS]
    title = "Tables and figures of the paper: multimix report RUNS --only NAME, multimix reproduce --only NAME"
    return _table(title, ["name", "in the paper", "what", "recipes"], lines)


def _table(title: str, heads: Sequence[str], lines: Sequence[Sequence[object]]) -> Table:
    """Return a table; columns whose head begins with # are aligned as numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for index, head in enumerate(heads):
        # Do not fold names, so that they can be copied from the terminal.
        table.add_column(head.lstrip("#"), justify="right" if head.startswith("#") else "left", no_wrap=index == 0)
    for line in lines:
        table.add_row(*(Text(str(cell)) for cell in line))
    return table
