"""What several commands take: folders of data and of results, and changes of settings."""

import os
from pathlib import Path

DATA_VARIABLE = "MULTIMIX_DATA"
RUNS = Path("multimix-runs")


def data_folder(given: Path | None) -> Path:
    """Where the data sets are: what was given, or the environment says, or the folder ``data``."""
    return given or Path(os.environ.get(DATA_VARIABLE) or "data")


def change(words: str) -> tuple[str, str]:
    """A field and its new value from FIELD=VALUE."""
    field, equals, value = words.partition("=")
    if not equals:
        raise ValueError(f"--set takes FIELD=VALUE, got {words!r}")
    return field, value
