"""`multimix list`: tables of everything that has a name."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ...checks import nearest
from ...methods import entries
from ..data import DATASETS
from ..nets import NETWORKS, network
from ..recipes import RECIPES
from ..recipes.arms import STRATEGIES, counts_k

CLASSES = 100  # that parameters are counted for


def listing(what: str | None = None) -> list[Table]:
    """Tables for the terminal: recipes, methods, networks or data, all four without a name."""
    if what is None:
        return [table() for table in TABLES.values()]
    if what not in TABLES:
        raise ValueError(f"no list of {what!r}{nearest(what, TABLES)}; there are {', '.join(TABLES)}")
    return [TABLES[what]()]


def recipe_table() -> Table:
    """Every table and figure of the paper, and how long one of its trainings takes at small scale."""
    lines = [[name, recipe.title, len(recipe.rows), recipe.takes.get("small", "")] for name, recipe in RECIPES.items()]
    return _table("Recipes: multimix train RECIPE", ["recipe", "what", "#rows", "one training, small scale"], lines)


def method_table() -> Table:
    """Every name that ``--method`` takes."""
    lines = [[", ".join(entry.names), entry.summary, _takes_k(entry.name)] for entry in entries()]
    lines += [[name, strategy.about, _takes_k(name)] for name, strategy in STRATEGIES.items()]
    return _table("Methods and baselines: --method NAME --k K", ["name", "what", "K"], lines)


def network_table() -> Table:
    """The networks and their sizes."""
    lines = []
    # Made for real, in half a second: torch loads 800 modules to draw normal numbers on the meta device, which takes longer.
    with torch.random.fork_rng(devices=[]):
        for name, make in NETWORKS.items():
            count = sum(weight.numel() for weight in network(name, CLASSES).parameters())
            words = re.sub(r": [\d,]+ parameters.*", "", _first_line(make))  # with another number of classes
            lines.append([name, f"{count:,}", words.rstrip(".")])
    heads = ["network", f"#parameters, {CLASSES} classes", "what"]
    return _table("Networks: --network.name NAME, or package.module:Class of any other", heads, lines)


def data_table() -> Table:
    """The data sets with their official numbers of samples."""
    lines = [
        [
            name,
            entry.classes,
            "×".join(map(str, entry.size)),
            ", ".join(f"{count:,} {part}" for part, count in entry.counts.items()),
        ]
        for name, entry in DATASETS.items()
    ]
    return _table("Data sets: --data.name NAME", ["data set", "#classes", "#size", "samples"], lines)


TABLES: Mapping[str, Callable[[], Table]] = {
    "recipes": recipe_table,
    "methods": method_table,
    "networks": network_table,
    "data": data_table,
}


def _takes_k(arm: str) -> str:
    if not counts_k(arm):
        return ""
    return "factor" if arm in STRATEGIES else "steps"


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _table(title: str, heads: Sequence[str], lines: Sequence[Sequence[object]]) -> Table:
    """Columns whose head begins with # are numbers."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for place, head in enumerate(heads):
        # A name that is folded could not be copied from the terminal.
        table.add_column(head.lstrip("#"), justify="right" if head.startswith("#") else "left", no_wrap=place == 0)
    for line in lines:
        table.add_row(*(Text(str(cell)) for cell in line))
    return table
