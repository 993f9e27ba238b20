"""What ``multimix demo`` has written, for the paper's table of the spiral."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...recipes.base import Scale
from ...recipes.spiral import ARMS, COLLAPSED, SpiralSettings
from ...results.paper_table import DemoRuns

# The study of the spiral has no small scale; a quick one shows that everything runs.
FILES: dict[Scale, str] = {"paper": "spiral.json", "smoke": "spiral-quick.json"}


def read_demo(folder: Path) -> dict[Scale, DemoRuns]:
    """The accuracies by scale; none at a scale that was not run."""
    return {scale: _runs(folder, name) for scale, name in FILES.items() if (folder / name).exists()}


def _runs(folder: Path, name: str) -> DemoRuns:
    path = folder / name
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        seeds, settings, epochs = content["seeds"], content["settings"], content["settings"]["epochs"]
        accuracy = {arm: dict(zip(seeds, values, strict=True)) for arm, values in content["accuracy"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is damaged: multimix demo --rebuild --out {folder} makes it again") from None
    expected = SpiralSettings() if name == FILES["paper"] else replace(SpiralSettings(), epochs=epochs)
    if settings != asdict(expected):
        return DemoRuns({}, (f"the runs in {folder} are left out, since their settings are not those of multimix demo",))
    collapsed = {arm.words: sum(value < COLLAPSED for value in accuracy.get(arm.name, {}).values()) for arm in ARMS}
    counts = ", ".join(f"{words}: {count}" for words, count in collapsed.items() if count)
    note = f"runs that collapsed, that is, ended below {COLLAPSED:.0f} % ({counts}): one moves a mean by a point or more"
    return DemoRuns(accuracy, (note,) if counts else ())
