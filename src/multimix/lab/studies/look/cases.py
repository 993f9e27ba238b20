"""The methods that two pictures can show, with their options and remarks."""

from collections.abc import Callable, Iterable, Sequence

from ....methods import Method, PairMethod
from ....methods.registry import Entry, entries, entry
from ...method_options import LabOptions, lab_options
from ...sketch_pair import SketchPair
from .steps import FIRST_BODY, SECOND_BODY

MIXES_NOTHING = "it mixes nothing"
MIXES_HIDDEN = "it mixes hidden layers, which have no pixels"
# Reasons that need no message: they are properties of the method.
EXPECTED = (MIXES_NOTHING, MIXES_HIDDEN)

POINTS = LabOptions(
    caption=f"points, not pictures:\nA is a {FIRST_BODY},\nB is a {SECOND_BODY}",
    remark=f"It mixes clouds of points, not pictures: A is a {FIRST_BODY} and B a {SECOND_BODY}, and the colour of a point says "
    "how much of it comes from B. All points are equally salient here.",
)
SALIENCY = LabOptions(caption="saliency is\nthe contrast", remark="Saliency here is the contrast of the pictures.")


def obstacle(known: Entry, side: int = 64) -> str | None:
    """Return why a method cannot be shown on two pictures, or None if it can.

    Args:
        known: The method's registration.
        side: Side of the pictures in pixels.
    """
    options = lab_options(known.name).look(side)
    required = [name for name in known.required if name not in options]
    if "layers" in required:
        return MIXES_HIDDEN
    if required:
        return f"it has no default for {', '.join(required)}"
    paired = issubclass(known.method, PairMethod)
    if known.layout == "points" and not paired:
        return "it mixes points, not pictures"
    method = known.method(**options)
    if method.traits.mixes_at == ():
        return MIXES_NOTHING
    if any(layer is not None for layer in method.traits.mixes_at):
        return MIXES_HIDDEN
    if lab_options(known.name).steps is not None:
        return None
    if not paired and "k" not in known.options:
        return "it makes no steps"
    if method.traits.history:
        return "it mixes with the batch before, which two pictures do not have"
    if missing := [name for name in method.traits.needs if name != "saliency" or not paired]:
        return f"it needs {', '.join(missing)}, which two pictures alone do not give"
    return None


def choose_methods(names: Sequence[str], size: int, note: Callable[[str], None]) -> list[Method]:
    """Return methods with their options for pictures.

    Args:
        names: Names or aliases; empty for all methods that can be shown.
        size: Side of the pictures in pixels.
        note: Receives a message for every method that is left out for an unexpected reason.

    Raises:
        ValueError: A named method cannot be shown.
    """
    chosen = list({entry(name).name: entry(name) for name in names}.values())
    for name in names:
        if reason := obstacle(entry(name)):
            raise ValueError(f"{name} cannot be shown: {reason}")
    if not names:
        hidden = left_out()
        chosen = [known for known in entries() if known.name not in hidden]
        for name, reason in hidden.items():
            if reason not in EXPECTED:
                note(f"{name} is left out: {reason}")
    return [known.method(**lab_options(known.name).look(size)) for known in chosen]


def left_out() -> dict[str, str]:
    """Return the methods that cannot be shown, with the reason."""
    reasons = {known.name: obstacle(known) for known in entries()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def train_ahead(methods: Iterable[Method], note: Callable[[str], None]) -> None:
    """Train the encoders and decoders of ``methods`` before a progress bar starts.

    Args:
        methods: The methods.
        note: Receives a message if there is something to train.
    """
    pairs = [(method.name, value) for method in methods for value in vars(method).values() if isinstance(value, SketchPair)]
    if pairs:
        names = " and ".join(name for name, _ in pairs)
        note(f"a small encoder and decoder for {names} is trained first, which takes some seconds")
    for _, pair in pairs:
        pair.trained()


def remarks(method: Method) -> LabOptions:
    """Return ``caption`` and ``remark``: what differs from training."""
    options = lab_options(method.name)
    if options.caption or options.remark:
        return options
    if method.layout == "points":
        return POINTS
    return SALIENCY if "saliency" in method.traits.needs else options
