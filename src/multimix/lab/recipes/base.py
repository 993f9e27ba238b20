"""What a recipe is: trainings of the paper on one data set with one network, at three scales."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .settings import Running, Settings

Scale = Literal["paper", "small", "smoke"]
SCALES: tuple[Scale, ...] = ("paper", "small", "smoke")
# Where the paper's text and its authors' code (of Puzzle Mix, Co-Mixup, manifold mixup, which it builds on) differ.
Follow = Literal["text", "code"]
# Networks this small are slower on two threads, many times so on a busy machine; two runs at once use two cores better.
REDUCED = Running(threads=1)


@dataclass(frozen=True)
class Row:
    """One training of a recipe: an arm by name, and its K."""

    arm: str
    k: int = 1


# The lines of the paper's large tables.
METHODS = (
    *map(Row, ("none", "mixup", "manifoldmix", "cutout", "cutmix", "fmix", "comixup", "puzzlemix", "smoothing")),
    Row("puzzlemix", 5),
)


@dataclass(frozen=True)
class Recipe:
    """Trainings that share data, network and protocol.

    ``settings(scale)`` are those of no mixing; an arm changes them. ``options`` are the options of methods where they differ from
    the library's defaults, by registered name; with ``small_images`` methods begin with what they say about images of 8 × 8
    (:attr:`multimix.methods.registry.Entry.small`). ``metric`` is the number that the paper reports, one of the
    fields of an outcome.
    """

    name: str
    title: str
    about: str
    settings: Callable[[Scale], Settings]
    rows: tuple[Row, ...]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    small_images: bool = False
    metric: str = "median"
    takes: Mapping[Scale, str] = field(default_factory=dict)
    """How long one training takes, in words, for each scale."""

    def reported(self, scale: Scale) -> str:
        """The metric at a scale: the last epoch where so few are trained that the median of ten would be that of all."""
        return "last" if self.metric == "median" and scale != "paper" else self.metric
