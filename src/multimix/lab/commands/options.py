"""Options that several commands take: recipe, seeds, scale, folders of data and of results, changed fields."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

DATA_VARIABLE = "MULTIMIX_DATA"


def option(words: str, metavar: str | None = None, *, default: str | None = None) -> Any:
    """What --help says about an option; ``default`` in words, where the value itself would tell nothing."""
    return tyro.conf.arg(help=words, metavar=metavar, help_behavior_hint=None if default is None else f"(default: {default})")


RUNS = Path("multimix-runs")
PAPER = Path("multimix-paper")  # of multimix reproduce

RecipeName = Annotated[str, option("Which table or figure; multimix list recipes names them.", "RECIPE")]
Seeds = Annotated[tuple[int, ...], option("One training for each.", "SEED …")]
ScaleName = Annotated[
    Literal["paper", "small", "smoke"],
    option("The paper's setting, a reduced study for a CPU (minutes), or a few seconds to see that it runs."),
]
DataFolder = Annotated[Path | None, option("Where the data sets are.", "FOLDER", default=f"${DATA_VARIABLE}, or data")]
OutFolder = Annotated[Path, option("Where runs and results go; what is finished there is not trained again.", "FOLDER")]
FollowName = Annotated[
    Literal["text", "code"], option("Which is right where the paper's text and the code of its authors and baselines differ.")
]
Trust = Annotated[
    tuple[str, ...],
    option("Import paths of networks that the folders of runs may name; their code is run.", "PACKAGE:CLASS …", default="none"),
]
Changes = Annotated[
    tuple[str, ...],
    tyro.conf.arg(name="set", metavar="FIELD=VALUE …", help="Fields of the settings to change; --FIELD VALUE does the same."),
]

# Of the studies that need no data: demo, variance.
Quick = Annotated[bool, option("A short run to see that everything works, not how methods compare.")]
StudyFolder = Annotated[Path, option("Where everything goes; what is finished there is not done again.", "FOLDER")]


def data_folder(given: Path | None) -> Path:
    """Where the data sets are: the given folder, or that of the environment variable, or ``data``."""
    return given or Path(os.environ.get(DATA_VARIABLE) or "data")


def changes_of(words: Sequence[str]) -> dict[str, str]:
    """Fields and their new values, from words FIELD=VALUE."""
    for word in words:
        if "=" not in word:
            raise ValueError(f"--set takes FIELD=VALUE, got {word!r}")
    return {field: value for field, _, value in (word.partition("=") for word in words)}


# What a command takes at most of anything that costs memory or processes.
MOST = {
    "k": 1000,
    "ks": 1000,
    "bins": 10_000,
    "batch": 1_000_000,
    "batches": 100_000,
    "crop": 4096,
    "workers": 1000,
    "jobs": 1000,
}
MOST_SEEDS = 10_000  # where their number is given


def check_sizes(given: Mapping[str, Any]) -> None:
    """Raise ValueError for an option that is larger than anybody can mean, before anything is done with it."""
    most = MOST | ({"seeds": MOST_SEEDS} if isinstance(given.get("seeds"), int) else {})
    for name, limit in most.items():
        value = given.get(name)
        largest = max(value, default=0) if isinstance(value, tuple) else value
        if largest is not None and largest > limit:
            raise ValueError(f"{name} must be at most {limit:,}, got {largest:,}")
