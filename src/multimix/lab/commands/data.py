"""`multimix data`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from ..terminal import note, printable, say
from .options import option


def data(
    action: Annotated[Literal["fetch", "check"], option("Download a data set, or check a folder.", "fetch|check")],
    target: Annotated[str, option("Data set to fetch, or folder to check.", "NAME|FOLDER")],
    /,
    *,
    folder: Annotated[Path, option("Download folder.", "FOLDER")] = Path("data"),
    deep: Annotated[bool, option("check: also decode every file and compare checksums.")] = False,
) -> None:
    """Download a data set from its official address, or list the data sets in a folder and their errors.

    An interrupted download resumes. Checksums are verified. Data sets: cifar10, cifar100, tiny_imagenet, cub200,
    speech_commands_v1, speech_commands_v2 (ImageNet requires registration at its site).

    Try it:
      multimix data fetch cifar100 --folder data
      multimix data check data
      multimix data check data --deep
    """
    from rich.progress import DownloadColumn, MofNCompleteColumn

    from ..data.check import check
    from ..data.fetch import fetch

    if action == "fetch":
        with _progress_bar(f"Fetching {target}", DownloadColumn()) as progress:
            path = fetch(target, folder, progress=progress, note=note)
        print(f"wrote {path}")
        return
    with _progress_bar("Checking", MofNCompleteColumn()) as progress:
        states = check(target, deep=deep, progress=progress)
    for name, state, lines in states:
        if state != "absent":
            say("\n  ".join([f"{name}: {state}", *lines]))
    if absent := [name for name, state, _ in states if state == "absent"]:
        print(f"not there: {', '.join(absent)}")


@contextmanager
def _progress_bar(description: str, count: Any) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if the error stream is a terminal; yield a function of the completed and total work."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(printable(description), total=None)
        yield lambda completed, total: progress.update(task, completed=completed, total=total)
