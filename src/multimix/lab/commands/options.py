"""Options that several commands share: recipe, seeds, scale, folders, and changed fields."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

DATA_VARIABLE = "MULTIMIX_DATA"


def option(text: str, metavar: str | None = None, *, default: str | None = None) -> Any:
    """Return the help of an option for tyro.

    Args:
        text: Its description.
        metavar: The placeholder of its value.
        default: The default in words; None shows the value.
    """
    return tyro.conf.arg(help=text, metavar=metavar, help_behavior_hint=None if default is None else f"(default: {default})")


RUNS = Path("multimix-runs")
PAPER = Path("multimix-paper")  # default of multimix reproduce

RecipeName = Annotated[str, option("Name of the recipe; multimix list recipes shows all.", "RECIPE")]
Seeds = Annotated[tuple[int, ...], option("Seeds; every training is repeated for each seed.", "SEED …")]
ScaleName = Annotated[
    Literal["paper", "small", "smoke"],
    option("paper: the paper's setting; small: a reduced study for a CPU (minutes); smoke: a test of a few seconds."),
]
DataFolder = Annotated[Path | None, option("Folder of the data sets.", "FOLDER", default=f"${DATA_VARIABLE}, or data")]
OutFolder = Annotated[Path, option("Folder of runs and results; finished runs are not trained again.", "FOLDER")]
FollowName = Annotated[
    Literal["text", "code"],
    option("Follow the paper's text, or the code of its authors and baselines, where the two differ."),
]
Trust = Annotated[
    tuple[str, ...],
    option("Import paths of networks in the folders of runs whose code may be executed.", "PACKAGE:CLASS …", default="none"),
]
Changes = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        name="set",
        metavar="FIELD=VALUE …",
        help="Fields of the settings to change; same as --FIELD VALUE.",
        help_behavior_hint="(default: none)",
    ),
]

# Options of demo and variance, which need no data sets.
Quick = Annotated[bool, option("Run a short test that does not compare methods.")]
StudyFolder = Annotated[Path, option("Output folder; finished parts are not repeated.", "FOLDER")]


def data_folder(folder: Path | None) -> Path:
    """Return the folder of the data sets.

    Args:
        folder: The requested folder; None for ``$MULTIMIX_DATA``, or ``data`` if it is not set.
    """
    return folder or Path(os.environ.get(DATA_VARIABLE) or "data")


def parse_changes(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``FIELD=VALUE`` texts.

    Args:
        texts: The texts.

    Returns:
        Unparsed values by field.

    Raises:
        ValueError: If a text has no equals sign.
    """
    for text in texts:
        if "=" not in text:
            raise ValueError(f"--set takes FIELD=VALUE, got {text!r}")
    return {field: value for field, _, value in (text.partition("=") for text in texts)}


MAX_VALUES = {
    "k": 1000,
    "ks": 1000,
    "bins": 10_000,
    "batch": 1_000_000,
    "batches": 100_000,
    "crop": 4096,
    "workers": 1000,
    "jobs": 1000,
}
MAX_SEEDS = 10_000  # for options that are a number of seeds


def check_sizes(options: Mapping[str, Any]) -> None:
    """Raise ValueError for an unreasonably large option, before it costs memory or processes.

    Args:
        options: Values by name.

    Raises:
        ValueError: If a value exceeds its limit.
    """
    limits = MAX_VALUES | ({"seeds": MAX_SEEDS} if isinstance(options.get("seeds"), int) else {})
    for name, limit in limits.items():
        value = options.get(name)
        largest = max(value, default=0) if isinstance(value, tuple) else value
        if largest is not None and largest > limit:
            raise ValueError(f"{name} must be at most {limit:,}, got {largest:,}")
