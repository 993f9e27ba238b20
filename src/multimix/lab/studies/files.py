"""What every study gives back: its files on disk and its summary on the terminal. And one thread to compute on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console, RenderableType

from ..storage import write_files
from ..terminal import tell


class StudyFiles(NamedTuple):
    """The files of a finished study, and its summary: ``table`` for the terminal and ``findings`` in sentences."""

    page: Path
    results: Path
    figures: tuple[Path, ...]
    table: RenderableType
    findings: tuple[str, ...]


def write_study(
    out: str | Path,
    stem: str,
    *,
    page: str,
    results: Mapping[str, Any],
    figures: Mapping[str, bytes],
    table: RenderableType,
    findings: Sequence[str],
) -> StudyFiles:
    """Write ``STEM.html``, ``STEM.json`` and a ``STEM-NAME.png`` for each figure into the folder ``out``."""
    numbers = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    files = {f"{stem}.html": page.encode(), f"{stem}.json": numbers.encode()}
    files |= {f"{stem}-{name}.png": content for name, content in figures.items()}
    page_path, results_path, *pictures = write_files(Path(out), files)
    return StudyFiles(page_path, results_path, tuple(pictures), table, tuple(findings))


def show_study(files: StudyFiles, words: str = "It has all numbers, figures and tests.") -> None:
    """Print the table of a study, its findings, and where the page is."""
    Console().print(files.table)
    for sentence in files.findings:
        print(f"- {sentence}")
    tell(files.page, words)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: networks this small are slower on two, many times so on a busy machine; and CPU times compare."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
