"""What the spiral shows on a terminal: a progress bar while it trains, tables and sentences when it is done."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .findings import sentences
from .page import PAPER_NOTE, accuracy_rows, paired_rows
from .study import Progress as Told
from .study import SpiralResult


@contextmanager
def bar(console: Console | None = None) -> Iterator[Told]:
    """A function to hand to ``run`` as its progress; it moves a bar on stderr, if that is a terminal."""
    console = Console(stderr=True) if console is None else console
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("the spiral", total=None)
        yield lambda words, done, total: progress.update(task, description=words, completed=done, total=total)


def summary(result: SpiralResult) -> Group:
    """Both tables and the sentences, for ``Console.print``."""
    accuracy = _table("Accuracy on clean test labels, %", *accuracy_rows(result, short=True))
    paired = _table("Paired differences over the same seeds, in points", *paired_rows(result, short=True))
    lines = [Text(f"• {sentence}") for sentence in sentences(result)]
    return Group(accuracy, Text(), paired, Text(f"paper: {PAPER_NOTE}", style="dim"), Text(), *lines)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, words in enumerate(head):
        table.add_column(words, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
