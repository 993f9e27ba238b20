"""What commands say on the terminal: results on the standard stream, everything on the way there on the error stream."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")


# What a terminal obeys in place of showing it: escape sequences begin with one, and others turn the direction of writing.
ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(words: str) -> str:
    """Words that a terminal only shows, whatever names of files, classes or runs are in them.

    >>> printable("a cat\\x1b[2J\\n")
    'a cat�[2J\\n'
    """
    return ORDERS.sub("\N{REPLACEMENT CHARACTER}", words)


def say(words: str) -> None:
    """A result on the standard stream."""
    print(printable(words))


def tell(page: Path, words: str) -> None:
    """Where the page is and what to do with it."""
    say(f"wrote {page}\nOpen {page} in a browser. {words}")


PACE = 15.0  # seconds between two lines where nobody is looking


def bar(words: str) -> Callable[[Sequence[Item]], Iterable[Item]]:
    """Something to wrap a list of work in: a progress bar on the error stream, or a line now and then if nobody is looking."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import track

    console, shown = Console(stderr=True), escape(printable(words))
    if console.is_terminal:
        return lambda work: track(work, shown, console=console, transient=True)
    return lambda work: _told(work, words)


def paced(words: str, work: Sequence[Item]) -> Iterable[Item]:
    """Work with a line now and then if nobody is looking; people have the bars of its parts, and two at a time would not do."""
    return work if sys.stderr.isatty() else _told(work, words)


def _told(work: Sequence[Item], words: str) -> Iterator[Item]:
    start = last = time.monotonic()
    for done, item in enumerate(work):
        now = time.monotonic()
        if done and now - last >= PACE:
            note(f"{words}: {done} of {len(work)}, about {duration((now - start) / done * (len(work) - done))} left")
            last = now
        yield item


def note(sentence: str) -> None:
    """A sentence on the error stream."""
    print(printable(sentence), file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time in words, to within a few per cent.

    >>> duration(99.4), duration(3540), duration(3700), duration(200_000)
    ('99 s', '59 min', '1 h 2 min', '2 d 8 h')
    """
    if round(seconds) < 100:
        return f"{round(seconds)} s"
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def counted(count: int, thing: str, plural: str = "s") -> str:
    """Return a count with its noun.

    >>> counted(1, "run"), counted(3, "run"), counted(1200, "batch", "es")
    ('1 run', '3 runs', '1,200 batches')
    """
    return f"{count:,} {thing}{'' if count == 1 else plural}"
