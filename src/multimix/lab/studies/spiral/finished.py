"""What ``multimix demo`` has written, for the paper's Fig. 4."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...recipes.base import Scale
from ...recipes.spiral import ARMS, COLLAPSED, SpiralSettings
from ...results.figures.style import save
from ...results.paper_table import DemoRuns
from ...results.rows import SCALE_WORDS
from ...storage import parse_json
from ..files import one_thread
from .figures import paper_figure
from .runs import read_runs

# The paper's own study is small enough for the small scale; a quick one shows that everything runs.
FILES: dict[Scale, str] = {"paper": "spiral.json", "small": "spiral.json", "smoke": "spiral-quick.json"}


def read_demo(folder: Path) -> dict[Scale, DemoRuns]:
    """The accuracies by scale; none at a scale that was not run."""
    return {scale: _runs(folder, name) for scale, name in FILES.items() if (folder / name).exists()}


def spiral_figure(folder: Path, scale: Scale) -> dict[str, bytes]:
    """Fig. 4 as PNG and SVG by file name: the data and three decision boundaries; empty where the demo was not run."""
    if scale not in FILES or not (folder / FILES[scale]).exists():
        return {}
    settings, accuracy = _read(folder, FILES[scale])
    if settings is None:
        return {}
    result = read_runs(settings, seeds=list(accuracy[ARMS[0].name]), out=folder)
    with one_thread():
        return save("figure-4", paper_figure(result), f"Fig. 4: the noisy spiral, {SCALE_WORDS[scale]}", dpi=120)


def _read(folder: Path, name: str) -> tuple[SpiralSettings | None, dict[str, dict[int, float]]]:
    """The settings, None where they are not those of the demo, and the accuracies by arm and seed."""
    path = folder / name
    try:
        content: dict[str, Any] = parse_json(path.read_bytes())
        seeds, settings, epochs = content["seeds"], content["settings"], content["settings"]["epochs"]
        accuracy = {arm: dict(zip(seeds, values, strict=True)) for arm, values in content["accuracy"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is damaged: multimix demo --rebuild --out {folder} makes it again") from None
    expected = SpiralSettings() if name == FILES["paper"] else replace(SpiralSettings(), epochs=epochs)
    return expected if settings == asdict(expected) else None, accuracy


def _runs(folder: Path, name: str) -> DemoRuns:
    settings, accuracy = _read(folder, name)
    if settings is None:
        return DemoRuns({}, (f"the runs in {folder} are left out, since their settings are not those of multimix demo",))
    collapsed = {arm.words: sum(value < COLLAPSED for value in accuracy.get(arm.name, {}).values()) for arm in ARMS}
    counts = ", ".join(f"{words}: {count}" for words, count in collapsed.items() if count)
    note = f"runs that collapsed, that is, ended below {COLLAPSED:.0f} % ({counts}): one moves a mean by a point or more"
    return DemoRuns(accuracy, (note,) if counts else ())
