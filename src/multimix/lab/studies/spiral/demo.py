"""`multimix demo`: train the spiral and write rows and pictures for its page."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from ...recipes.spiral import ARMS, SpiralSettings
from ...storage import write_files
from ..threads import one_thread
from .pictures import boundary_grid
from .runs import ReportProgress, SpiralResult, progress_bar, run_study
from .training import DEPTH, PARAMETERS, WIDTH

SEEDS, QUICK_SEEDS, QUICK_EPOCHS = 20, 5, 200


def run_demo(
    *,
    seeds: int | None = None,
    quick: bool = False,
    out: str | Path = "multimix-demo",
    progress: ReportProgress | None = None,
    note: Callable[[str], None] = print,
) -> Path:
    """Train the demo and return the path of ``spiral.json``, or ``spiral-quick.json`` for a short run.

    Args:
        seeds: Number of seeds, from 0 on; by default 20, or 5 for a short run.
        quick: Whether to train for a few epochs only.
        out: Folder of stored runs and of the file.
        progress: Receives the current work, finished epochs, and all epochs; by default a bar on a terminal.
        note: Receives messages.
    """
    count = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    if count < 1:
        raise ValueError(f"seeds must be at least 1, got {count}")
    settings = SpiralSettings(epochs=QUICK_EPOCHS) if quick else SpiralSettings()
    with progress_bar() if progress is None else nullcontext(progress) as report:
        result = run_study(settings, seeds=range(count), out=out, note=note, progress=report)
    # A short run must not overwrite the results of a full one.
    return write_result(result, Path(out), "spiral-quick" if quick else "spiral")


def write_result(result: SpiralResult, out: Path, stem: str = "spiral") -> Path:
    """Write ``STEM.json`` with a row per run and ``STEM-boundaries.npz`` with pictures; return the first.

    Args:
        result: Finished runs.
        out: Folder.
        stem: Name of the files.
    """
    rows = [
        {"arm": arm.name, "seed": run.seed, "right": run.right, "tested": run.tested, "accuracy": run.accuracy}
        | {"cpu_seconds": run.cpu_seconds, "environment": run.environment}
        for arm in ARMS
        for run in result.runs[arm.name]
    ]
    network = (
        f"{DEPTH} hidden layers of {WIDTH} units, LeakyReLU({result.settings.slope:g}), He normal start, {PARAMETERS} parameters"
    )
    content = {"settings": asdict(result.settings), "network": network, "rows": rows}
    with one_thread():
        pictures = boundary_grid(result).to_bytes()
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    return write_files(out, {f"{stem}.json": text.encode(), f"{stem}-boundaries.npz": pictures})[0]
