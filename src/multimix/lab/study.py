"""What all studies share: what they hand back, and how many threads they use."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from rich.table import Table


class Written(NamedTuple):
    """The files of a finished study, and the same in short: ``table`` for the terminal and ``findings`` in sentences."""

    page: Path
    results: Path
    figures: tuple[Path, ...]
    table: Table
    findings: tuple[str, ...]


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: networks this small are slower on two, many times so on a busy machine; and CPU time then compares."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
