"""`multimix data`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from ..terminal import note, printable, say
from .options import option


def data(
    action: Annotated[Literal["fetch", "check"], option("Download a set, or look at a folder.", "fetch|check")],
    what: Annotated[str, option("The set to fetch, or the folder to check.", "NAME|FOLDER")],
    /,
    *,
    folder: Annotated[Path, option("Where a fetched set goes.", "FOLDER")] = Path("data"),
    deep: Annotated[bool, option("Check: decode every file and compare checksums, not only read headers.")] = False,
) -> None:
    """Download a data set from its official address, or show what is in a folder and what is wrong with it.

    An interrupted download resumes; checksums are verified, archives unpacked safely. Sets: cifar10, cifar100, tiny_imagenet,
    cub200, speech_commands_v1, speech_commands_v2 (ImageNet needs registration at its site).

    Try it:
      multimix data fetch cifar100 --folder data
      multimix data check data
      multimix data check data --deep
    """
    from rich.progress import DownloadColumn, MofNCompleteColumn

    from ..data.check import check
    from ..data.fetch import fetch

    if action == "fetch":
        with _progress_bar(f"Fetching {what}", DownloadColumn()) as progress:
            path = fetch(what, folder, progress=progress, note=note)
        print(f"wrote {path}")
        return
    with _progress_bar("Checking", MofNCompleteColumn()) as progress:
        states = check(what, deep=deep, progress=progress)
    for name, state, lines in states:
        if state != "absent":
            say("\n  ".join([f"{name}: {state}", *lines]))
    if absent := [name for name, state, _ in states if state == "absent"]:
        print(f"not there: {', '.join(absent)}")


@contextmanager
def _progress_bar(words: str, count: Any) -> Iterator[Callable[[int, int], None]]:
    """A bar on the error stream, if it is a terminal; called with what is done and how much there is in all."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(printable(words), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
