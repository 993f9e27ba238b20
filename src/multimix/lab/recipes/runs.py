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
    """One training of a recipe.

    Args:
        recipe: The recipe.
        scale: The scale.
        arm: The method or batch strategy.
        k: Its K.
        seed: The seed.
        settings: All settings.
        processes: Number of processes.
    """

    recipe: Recipe
    scale: Scale
    arm: str
    k: int
    seed: int
    settings: Settings
    processes: int = 1

    @property
    def digest(self) -> str:
        """Digest of the settings, and the number of processes if it is not 1.

        Pairs and batch statistics are per process, so results depend on their number.
        """
        return self.settings.digest() + (f"-{self.processes}p" if self.processes > 1 else "")

    @property
    def title(self) -> str:
        """The title in messages: recipe, scale, method, K, and seed."""
        k = f", K = {self.k}" if counts_k(self.arm) else ""
        return f"{self.recipe.name} ({self.scale}): {self.arm}{k}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        """The folder of the run, relative to the folder of results."""
        name = f"{self.arm}-k{self.k}-seed{self.seed}-{self.digest}"
        return Path(self.recipe.name) / self.scale / name

    def key(self) -> dict[str, Any]:
        """Return the fields that identify the row of the run."""
        identity = {"recipe": self.recipe.name, "scale": self.scale, "arm": self.arm, "k": self.k}
        return {**identity, "seed": self.seed, "digest": self.digest}


def planned(
    recipe: Recipe,
    *,
    scale: Scale = "paper",
    method: str | None = None,
    k: int | None = None,
    seeds: Sequence[int] = (0,),
    changes: Mapping[str, str] | None = None,
) -> list[Run]:
    """Return the runs of a method, or of all rows of a recipe, seed by seed.

    Args:
        recipe: The recipe.
        scale: The scale.
        method: Name of a method or strategy; None for all rows of the recipe.
        k: Interpolations per pair; None for 5, as in the paper.
        seeds: One run for each.
        changes: Values of settings as text, by dotted name.

    Raises:
        ValueError: If ``seeds`` are not distinct nonnegative integers, ``k`` has no method, or
            ``changes`` has a field that another option sets.
    """
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds must be distinct nonnegative integers, got {', '.join(map(str, seeds)) or 'none'}")
    if method is None and k is not None:
        raise ValueError(f"k must be None without a method, got {k}; the rows of the recipe have their own K")
    if method is None:
        arms = [(row.arm, row.k) for row in recipe.rows]
    else:
        name = arm_name(method)
        arms = [(name, (PAPER_K if k is None else k) if counts_k(name) else 1)]
    changes = changes or {}
    _check_changes(recipe, scale, changes)
    method_changes = {path: text for path, text in changes.items() if path.split(".")[0] == "method"}
    general = {path: text for path, text in changes.items() if path not in method_changes}
    base = apply_changes(recipe.settings(scale), general)
    settings_by_arm = {(arm, k): apply_changes(arm_settings(recipe, base, arm, k), method_changes) for arm, k in arms}
    return [Run(recipe, scale, arm, k, seed, settings) for seed in seeds for (arm, k), settings in settings_by_arm.items()]


def _check_changes(recipe: Recipe, scale: Scale, changes: Mapping[str, str]) -> None:
    """Raise ValueError for a field that another field or option overrides."""
    phase_fields = ("batch", "augment.size", "augment.smallest_crop", "augment.short_side")
    for path in changes:
        if recipe.settings(scale).phases and path in phase_fields:
            raise ValueError(
                f"{path} has no effect in the phases of {recipe.name}; set phases.0.{path.removeprefix('augment.')} …"
            )
    if "method.k" in changes:
        raise ValueError("method.k cannot be changed; set k (--k)")
