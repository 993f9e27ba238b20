"""What commands say on the terminal: results on the standard stream, everything on the way there on the error stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")


def tell(page: Path, words: str) -> None:
    """Where the page is and what to do with it."""
    print(f"wrote {page}\nOpen {page} in a browser. {words}")


def bar(words: str) -> Callable[[Sequence[Item]], Iterable[Item]]:
    """Something to wrap a list of work in: a progress bar on the error stream, if a person is looking at it."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return lambda work: track(work, words, console=console, transient=True, disable=not console.is_terminal)


def note(sentence: str) -> None:
    """A sentence on the error stream."""
    print(sentence, file=sys.stderr)
