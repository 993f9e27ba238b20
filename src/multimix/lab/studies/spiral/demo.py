"""``multimix demo``: the whole study, its report on disk and its summary on the terminal."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from ...study import one_thread
from .page import Written, write
from .settings import SpiralSettings
from .study import Progress, rebuilt, run
from .terminal import bar, summary

SEEDS, QUICK_SEEDS, QUICK_EPOCHS = 20, 5, 200


def demo(
    *,
    seeds: int | None = None,
    quick: bool = False,
    out: str | Path = "multimix-demo",
    rebuild: bool = False,
    progress: Progress | None = None,
    note: Callable[[str], None] = print,
    console: Console | None = None,
) -> Written:
    """Where the page, the figures and the numbers are; the summary is printed on ``console``.

    ``seeds`` counts them, from seed 0 on: 20, or 5 if ``quick``, which also trains for fewer epochs. ``rebuild`` trains nothing
    and makes the report again from the runs on disk. Without ``progress`` a bar is shown on stderr, if that is a terminal.
    """
    count = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    if count < 1:
        raise ValueError(f"seeds must be at least 1, got {count}")
    settings = SpiralSettings(epochs=QUICK_EPOCHS) if quick else SpiralSettings()
    if rebuild:
        result = rebuilt(settings, seeds=range(count), out=out, note=note)
    else:
        with bar() if progress is None else nullcontext(progress) as told:
            result = run(settings, seeds=range(count), out=out, note=note, progress=told)
    with one_thread():
        # A short run must not take the place of a full report.
        written = write(result, out, "spiral-quick" if quick else "spiral")
    (Console() if console is None else console).print(summary(result))
    return written
