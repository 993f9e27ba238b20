"""What is compared: every registered method at every K, no mixing, and no mixing with smoothed labels."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from .... import methods as registry
from ....methods import Method, NoMix
from ....methods.samix.block import NewBlock
from ....methods.style.small_pair import NewPair

BASELINE = "none"
SMOOTHING = "smoothing"

# A pair that learns from the split's own images of 0 … 1, in the size they have.
PAIR: dict[str, Any] = {"pair": NewPair(steps=120), "side": None, "mean": 0.305, "std": 0.375}

# A method that does not fit 8×8 images as it comes, or has no default for an option, needs a line here; the others appear by
# themselves. Cutout was published for half the side of the image. Manifold mixup mixes at hidden layers only: at the input it
# would be mixup, which is an arm of its own. Puzzle mix is told what the pixels of 0 … 1 were divided by.
OPTIONS: dict[str, dict[str, Any]] = {
    "alignmixup": {"layers": ("stage1", "stage2")},
    "cutout": {"length": 4},
    "manifoldmix": {"layers": ("stage1", "stage2")},
    "puzzlemix": {"std": 0.375},
    "samix": {"block": NewBlock("stage1")},
    "stylecutmix": PAIR,
    "stylemix": PAIR,
}


class Arm(NamedTuple):
    """One way of training; ``k`` is None where K means nothing."""

    name: str
    k: int | None
    method: Method
    smoothing: float = 0.0

    @property
    def label(self) -> str:
        """How the arm is called in tables and figures."""
        return self.name if self.k is None else f"{self.name}, K = {self.k}"

    def unit(self, seed: int) -> str:
        """The name of one seed's result."""
        return f"{self.name}-k{self.k or 1}-seed{seed}"

    def described(self) -> str:
        """Everything that decides how the arm trains, beside the study's settings."""
        return f"{self.method!r}, smoothing {self.smoothing:g}"


def arms(names: Sequence[str], ks: Sequence[int], smoothing: float, note: Callable[[str], None]) -> list[Arm]:
    """The arms called ``names``, after no mixing, which is always there; without names all that can be trained here.

    A method that cannot is refused with one sentence if it was named; otherwise ``note`` is told.
    """
    found = [Arm(BASELINE, None, NoMix())]
    wanted = {name if name == SMOOTHING else _kind(name).name for name in names}
    if not names or SMOOTHING in wanted:
        found.append(Arm(SMOOTHING, None, NoMix(), smoothing))
    for kind in registry.METHODS:
        if issubclass(kind, NoMix) or (names and kind.name not in wanted):
            continue
        if not names and kind.layout != "images":
            continue  # other data
        hindered = _obstacle(kind)
        if hindered and names:
            raise ValueError(f"{kind.name} cannot be trained on the digits: {hindered}")
        if hindered:
            note(f"{kind.name} is left out: {hindered}")
            continue
        options = OPTIONS.get(kind.name, {})
        if _has(kind, "k"):
            found += [Arm(kind.name, k, kind(**options | {"k": k})) for k in ks]
        else:
            found.append(Arm(kind.name, None, kind(**options)))
    return found


def _kind(name: str) -> type[Method]:
    known = {key: kind for kind in registry.METHODS for key in (kind.name, *kind.aliases)}
    if name not in known:
        registry.create(name)  # has the sentence that names what there is
    return known[name]


def _obstacle(kind: type[Method]) -> str | None:
    """Why methods of this kind cannot be trained here; None if they can."""
    if kind.layout != "images":
        return f"it mixes {kind.layout}"
    given = OPTIONS.get(kind.name, {})
    missing = [option for option in registry.required_options(kind) if option not in given]
    if missing:
        return f"it has no default for {', '.join(missing)}"
    needs = [name for name in kind(**given).needs if name != "saliency"]  # that comes from the network in training
    return f"it needs {', '.join(needs)}, which this study does not compute" if needs else None


def _has(kind: type[Method], name: str) -> bool:
    return name in [option.name for option in fields(kind)]  # type: ignore[arg-type]
