"""What is compared: every registered method at every K, no mixing, and no mixing with smoothed labels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ....methods import Method, NoMix, entries
from ....methods.registry import Entry, entry

BASELINE = "none"
SMOOTHING = "smoothing"

# How images of 0 … 1 were normalised, for methods that look at colours.
MEAN, STD = 0.305, 0.375
PIXELS: Mapping[str, Mapping[str, float]] = {
    "puzzlemix": {"std": STD},
    "stylemix": {"mean": MEAN, "std": STD},
    "stylecutmix": {"mean": MEAN, "std": STD},
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
    wanted = {name if name == SMOOTHING else entry(name).name for name in names}
    if not names or SMOOTHING in wanted:
        found.append(Arm(SMOOTHING, None, NoMix(), smoothing))
    for known in entries():
        if known.method is NoMix or (names and known.name not in wanted):
            continue
        if not names and not known.mixes("images"):
            continue  # other data
        options = options_here(known)
        hindered = _obstacle(known, options)
        if hindered and names:
            raise ValueError(f"{known.name} cannot be trained on the digits: {hindered}")
        if hindered:
            note(f"{known.name} is left out: {hindered}")
        elif "k" in known.options:
            found += [Arm(known.name, k, known.method(**options | {"k": k})) for k in ks]
        else:
            found.append(Arm(known.name, None, known.method(**options)))
    return found


def options_here(known: Entry) -> dict[str, Any]:
    """The options of a method on these images, where they are not its defaults."""
    return {**known.small, **PIXELS.get(known.name, {})}


def _obstacle(known: Entry, options: Mapping[str, Any]) -> str | None:
    """Why a method cannot be trained here; None if it can."""
    if not known.mixes("images"):
        return f"it mixes {known.layout}"
    if missing := [option for option in known.required if option not in options]:
        return f"it has no default for {', '.join(missing)}"
    needs = [name for name in known.method(**options).needs if name != "saliency"]  # that comes from the network in training
    return f"it needs {', '.join(needs)}, which this study does not compute" if needs else None
