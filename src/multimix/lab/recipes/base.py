"""What a recipe is: trainings of the paper on one data set with one network, at three scales.

Its arms are the ways of training that are compared: every registered method, smoothed labels, the paper's batch strategies.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from ...core.checks import nearest
from ...methods import Method, NoMix, create
from ...methods.registry import entries, entry
from .. import nets
from ..data import Layout
from ..method_options import lab_options
from .settings import Augmentation, Running, Settings

Scale = Literal["paper", "small", "smoke"]
SCALES: tuple[Scale, ...] = ("paper", "small", "smoke")
# Where the paper's text and its authors' code (of Puzzle Mix, Co-Mixup, manifold mixup, which it builds on) differ.
Follow = Literal["text", "code"]
# Networks this small are slower on two threads, many times so on a busy machine; two runs at once use two cores better.
REDUCED = Running(threads=1)
SMOOTHING = 0.1
ROTATION = 15.0  # degrees; the paper's batch augmentation rotates, but does not say how far


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


def reduced(settings: Settings, *, epochs: int, batch: int, per_class: int, report_per_class: int) -> Settings:
    """Fewer samples of every class, and the schedule squeezed into fewer epochs."""
    data = replace(settings.data, per_class=per_class, report_per_class=report_per_class)
    schedule = settings.schedule.squeezed(epochs / settings.epochs)
    return replace(settings, data=data, schedule=schedule, epochs=epochs, batch=batch)


@dataclass(frozen=True)
class Recipe:
    """Trainings that share data, network and protocol.

    ``settings(scale)`` are those of no mixing; an arm changes them. ``options`` are the options of methods where they differ from
    the library's defaults, by registered name; with ``small_images`` methods begin with what they say about images of 8 × 8
    (:attr:`multimix.lab.method_options.LabOptions.small`). ``in_process``: below paper scale a run takes less time than
    starting a process. ``metric`` is the number that the paper reports, one of the
    fields of an outcome.
    """

    name: str
    title: str
    about: str
    settings: Callable[[Scale], Settings]
    rows: tuple[Row, ...]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    small_images: bool = False
    in_process: bool = False
    metric: str = "median"
    takes: Mapping[Scale, str] = field(default_factory=dict)
    """How long one training takes, in words, for each scale."""

    def reported(self, scale: Scale) -> str:
        """The metric at a scale: the last epoch where so few are trained that the median of ten would be that of all."""
        return "last" if self.metric == "median" and scale != "paper" else self.metric


class Strategy(NamedTuple):
    """A baseline that is more than a method: a method, what else changes with the factor K, and what it is."""

    method: str
    changed: Callable[[Settings, int], Settings]
    about: str


def _smoothed(settings: Settings, k: int) -> Settings:
    return replace(settings, smoothing=SMOOTHING)


def _larger(settings: Settings, k: int) -> Settings:
    phases = tuple(replace(phase, batch=k * phase.batch) for phase in settings.phases)
    return replace(settings, batch=k * settings.batch, phases=phases)


def _repeated(settings: Settings, k: int) -> Settings:
    if settings.augment == Augmentation():
        raise ValueError(f"batch augmentation shows augmented samples, and the recipe on {settings.data.name} augments none")
    return replace(settings, repeats=k, augment=replace(settings.augment, rotation=ROTATION))


STRATEGIES: Mapping[str, Strategy] = {
    "smoothing": Strategy("none", _smoothed, f"no mixing, labels smoothed by {SMOOTHING}"),
    "large_batch": Strategy("none", _larger, "no mixing, K times the batch"),
    "large_batch_mixup": Strategy("puzzlemix", _larger, "puzzle-mix with K = 1, K times the batch"),
    "large_batch_input_mixup": Strategy("mixup", _larger, "input mixup with one λ (of every share), K times the batch"),
    "batch_augmentation": Strategy("none", _repeated, "no mixing, K augmentations of every sample in one batch"),
    "batch_augmentation_mixup": Strategy("puzzlemix", _repeated, "K augmentations of every sample in one batch, then puzzle-mix"),
    "batch_augmentation_input_mixup": Strategy("mixup", _repeated, "K augmentations of every sample in one batch, then mixup"),
}


WORDS: Mapping[Layout, str] = {"images": "images", "points": "clouds of points"}


def arm_names(layout: Layout | None = None) -> list[str]:
    """Every name that ``--method`` takes, without aliases; with a ``layout``, those that can be trained on such data."""
    mixing = [known.name for known in entries() if layout is None or known.mixes(layout)]
    # All augmentations are for images.
    beside = [
        name
        for name, strategy in STRATEGIES.items()
        if layout is None or (strategy.method in mixing and (layout == "images" or strategy.changed is not _repeated))
    ]
    return mixing + beside


def arm_settings(recipe: Recipe, settings: Settings, arm: str, k: int) -> Settings:
    """``settings`` as the arm trains: its method with the recipe's options, and what a strategy changes beside it.

    K is the number of interpolations; for a batch strategy it is the factor, and the method inside has K = 1.
    """
    _check_together(settings, arm)
    strategy = STRATEGIES.get(arm)
    if strategy is None:
        return replace(settings, method=_method(recipe, settings, arm, k))
    return strategy.changed(replace(settings, method=_method(recipe, settings, strategy.method, 1)), k)


def arm_name(name: str) -> str:
    """The name that results carry, for a name or an alias."""
    known = {key: own.name for own in entries() for key in own.names} | {key: key for key in STRATEGIES}
    if name not in known:
        raise ValueError(f"no method {name!r}{nearest(name, known)}; there are {', '.join(arm_names())}")
    return known[name]


def counts_k(arm: str) -> bool:
    """Whether K means something for the arm."""
    return arm not in (NoMix.name, "smoothing")


def _check_together(settings: Settings, arm: str) -> None:
    """Raise ValueError unless arm, network and augmentation are for what the data are."""
    layout: Layout = settings.data.entry().layout
    other: Layout = "images" if layout == "points" else "points"
    rest, network = f"is for {WORDS[other]}, and {settings.data.name} has {WORDS[layout]}", settings.network.name
    if arm not in arm_names(layout):
        raise ValueError(f"{arm} {rest}, on which {', '.join(arm_names(layout))} can be trained")
    if network in nets.NETWORKS and (network in nets.OF_POINTS) != (layout == "points"):
        raise ValueError(f"the network {network} {rest}")
    if layout == "points" and settings.augment != Augmentation():
        raise ValueError(f"every field of augment {rest}")


def _method(recipe: Recipe, settings: Settings, name: str, k: int) -> Method:
    known, data = entry(name), settings.data.entry()
    in_lab = lab_options(known.name)
    usual = in_lab.small if recipe.small_images else in_lab.recipe
    options: dict[str, Any] = {"k": k, **usual, **recipe.options.get(name, {})}
    # Methods that look at colours must know how they were normalised, whatever data set was asked for. Terms that are
    # cross-entropies would count too much beside softmax_bce, which is a mean over classes.
    scale = "per_class" if settings.loss == "softmax_bce" else "plain"
    told = {"mean": data.mean, "std": data.std, "clean_scale": scale, "omega_scale": scale}
    options = {key: value for key, value in told.items() if key in known.options} | options
    if "length" in options:
        # At a smaller scale images are smaller: a hole is at most half as wide as the largest of them.
        side = max((phase.size for phase in settings.phases), default=min(data.size[1:]))
        options["length"] = min(options["length"], side // 2)
    try:
        return create(name, **options)
    except TypeError as error:  # a plug-in with a required option that nothing sets
        raise ValueError(str(error)) from error
