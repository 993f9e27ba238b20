"""The ways of training that are compared: every registered method, smoothed labels, and the paper's batch strategies."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from ... import methods as registry
from ...checks import nearest
from ...methods import InputMixup, ManifoldMixup, Method, NoMix
from ...methods.samix.block import NewBlock
from ...methods.style.small_pair import NewPair
from .. import nets
from ..data import Layout
from .base import Recipe
from .settings import Augmentation, Settings

SMOOTHING = 0.1
ROTATION = 15.0  # degrees; the paper's batch augmentation rotates, but does not say how far


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
    "large_batch_mixup": Strategy("mixup", _larger, "mixup with one λ (of every share, where it is cut), K times the batch"),
    "batch_augmentation": Strategy("none", _repeated, "no mixing, K augmentations of every sample in one batch"),
    "batch_augmentation_mixup": Strategy("mixup", _repeated, "K augmentations of every sample in one batch, then mixup"),
}


# The networks that methods work with, where a recipe says nothing else: made from the model and the images at hand.
NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "samix": {"block": NewBlock("stage3")},
    "stylemix": {"pair": NewPair(), "side": None},
    "stylecutmix": {"pair": NewPair(), "side": None},
}


# They mix number by number, whatever the axes mean.
ANY_LAYOUT = (NoMix.name, InputMixup.name, ManifoldMixup.name)
WORDS: Mapping[Layout, str] = {"images": "images", "points": "clouds of points"}


def arm_names(layout: Layout | None = None) -> list[str]:
    """Every name that ``--method`` takes, without aliases; with a ``layout``, those that can be trained on such data."""
    mixing = [kind.name for kind in registry.METHODS if layout in (None, kind.layout) or kind.name in ANY_LAYOUT]
    # All augmentations are for images.
    beside = [name for name, strategy in STRATEGIES.items() if layout != "points" or strategy.changed is not _repeated]
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
    own = {key: kind.name for kind in registry.METHODS for key in (kind.name, *kind.aliases)}
    known = own | {key: key for key in STRATEGIES}
    if name not in known:
        raise ValueError(f"no method {name!r}{nearest(name, known)}; there are {', '.join(arm_names())}")
    return known[name]


def counts_k(arm: str) -> bool:
    """Whether K means something for the arm."""
    return arm not in (NoMix.name, "smoothing")


def _check_together(settings: Settings, arm: str) -> None:
    """Raise one sentence unless arm, network and augmentation are for what the data are."""
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
    kind = next(kind for kind in registry.METHODS if kind.name == name)
    options: dict[str, Any] = {"k": k, **NETWORKS.get(name, {}), **recipe.options.get(name, {})}
    takes = {option.name for option in fields(kind)}  # type: ignore[arg-type]  # every registered method is a dataclass
    entry = settings.data.entry()
    # Those that look at colours must know how they were normalised, whatever data set was asked for.
    # Terms that are cross-entropies would count too much beside softmax_bce, which is a mean over classes.
    scale = "per_class" if settings.loss == "softmax_bce" else "plain"
    told = {"mean": entry.mean, "std": entry.std, "clean_scale": scale, "omega_scale": scale}
    options = {key: value for key, value in told.items() if key in takes} | options
    if "length" in takes and "length" in options:
        # At a smaller scale images are smaller: a hole is at most half as wide as the largest of them.
        side = max((phase.size for phase in settings.phases), default=min(entry.size[1:]))
        options["length"] = min(options["length"], side // 2)
    return registry.create(name, **options)
