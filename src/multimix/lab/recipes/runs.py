"""Runs of a recipe: what identifies them, where they are stored, and how they are planned."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .base import Recipe, Scale, arm_name, arm_settings, counts_k
from .serialise import apply_changes
from .settings import Settings

PAPER_K = 5
RESULTS = "results.jsonl"  # rows of finished runs, in a folder of results
SETTINGS, BEST = "settings.json", "best.checkpoint"  # files of a run
Which = Literal["last", "best"]  # weights of a run


class Run(NamedTuple):
    """One training of a recipe."""

    recipe: Recipe
    scale: Scale
    arm: str
    k: int
    seed: int
    settings: Settings
    processes: int = 1

    @property
    def digest(self) -> str:
        """That of the settings; and the number of processes, within each of which pairs are drawn and batch statistics taken."""
        return self.settings.digest() + (f"-{self.processes}p" if self.processes > 1 else "")

    @property
    def title(self) -> str:
        """How the run is called while it goes on; the scale is always said."""
        k = f", K = {self.k}" if counts_k(self.arm) else ""
        return f"{self.recipe.name} ({self.scale}): {self.arm}{k}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Where it is kept, below the folder of all results."""
        name = f"{self.arm}-k{self.k}-seed{self.seed}-{self.digest}"
        return Path(self.recipe.name) / self.scale / name

    def key(self) -> dict[str, Any]:
        """What tells its row from others."""
        own = {"arm": self.arm, "k": self.k, "seed": self.seed}
        return {"recipe": self.recipe.name, "scale": self.scale, **own, "digest": self.digest}


def planned(
    recipe: Recipe,
    *,
    scale: Scale = "paper",
    method: str | None = None,
    k: int | None = None,
    seeds: Sequence[int] = (0,),
    changes: Mapping[str, str] | None = None,
) -> list[Run]:
    """The runs of one method, or without a name of all rows of the recipe; seed by seed, so that a part is a fair comparison.

    ``changes`` are fields of the settings by dotted name. K is 5, as in the paper, if it is not given.
    """
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds must be different whole numbers of at least 0, got {', '.join(map(str, seeds)) or 'none'}")
    if method is None and k is not None:
        raise ValueError(f"k={k} needs a method; without one the rows of the recipe are trained, each with its own K")
    if method is None:
        arms = [(row.arm, row.k) for row in recipe.rows]
    else:
        name = arm_name(method)
        arms = [(name, (PAPER_K if k is None else k) if counts_k(name) else 1)]
    changes = changes or {}
    _check_changes(recipe, scale, changes)
    of_method = {path: words for path, words in changes.items() if path.split(".")[0] == "method"}
    general = {path: words for path, words in changes.items() if path not in of_method}
    start = apply_changes(recipe.settings(scale), general)
    chosen = {(arm, k): apply_changes(arm_settings(recipe, start, arm, k), of_method) for arm, k in arms}
    return [Run(recipe, scale, arm, k, seed, settings) for seed in seeds for (arm, k), settings in chosen.items()]


def _check_changes(recipe: Recipe, scale: Scale, changes: Mapping[str, str]) -> None:
    """Raise ValueError for a field that is set elsewhere, so that a change of it would come to nothing."""
    hidden = ("batch", "augment.size", "augment.smallest_crop", "augment.short_side")
    for path in changes:
        if recipe.settings(scale).phases and path in hidden:
            raise ValueError(
                f"{recipe.name} has phases, set phases.0.{path.removeprefix('augment.')} and so on instead of {path}"
            )
    if "method.k" in changes:
        raise ValueError("method.k is set by k (--k), which results are kept by")
