"""What the command line does with data sets: fetching and checking, with a progress bar for a person who looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..data.check import checked
from ..data.fetch import fetched


def fetch(name: str, folder: Path, *, note: Callable[[str], None] = print, **options: Any) -> Path:
    """The folder of the data set ``name``, downloaded into ``folder`` if it is not there; ``options`` go to ``fetched``."""
    with _bar(f"Fetching {name}", DownloadColumn()) as show:
        return fetched(name, folder, progress=show, note=note, **options)


def check(folder: Path, *, deep: bool = False) -> list[str]:
    """Lines about every data set in ``folder``: first those that are there, then one for those that are not."""
    with _bar("Checking", MofNCompleteColumn()) as show:
        found = checked(folder, deep=deep, progress=lambda name, done, total: show(done, total))
    lines = []
    for entry in found:
        if entry.state != "absent":
            lines += [f"{entry.name}: {entry.state}", *(f"  {line}" for line in entry.lines)]
    absent = ", ".join(entry.name for entry in found if entry.state == "absent")
    return [*lines, f"not there: {absent}"] if absent else lines


@contextmanager
def _bar(words: str, count: Any) -> Iterator[Callable[[int, int | None], None]]:
    console = Console(stderr=True)
    columns = (TextColumn(words), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(words, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
