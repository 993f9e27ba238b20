"""Which methods can be shown, with which options, and what has to be said about those that need more than two pictures."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, NamedTuple

from ...methods import Cutout, Method, NoMix, PairMethod, required_options
from ...methods.comixup.method import CoMixup
from ...methods.recursivemix.method import RecursiveMix
from ...methods.sage import SAGE
from ...methods.sagemix.method import SageMix
from ...methods.samix.block import FixedBlock
from ...methods.samix.method import SAMix
from ...methods.style.small_pair import SketchPair
from ...methods.style.stylecutmix import StyleCutMix
from ...methods.style.stylemix import StyleMethod
from .steps import FIRST_BODY, SECOND_BODY, takes_lam

MIXES_NOTHING = "it mixes nothing"
MIXES_HIDDEN = "it mixes hidden layers, which have no pixels"
# What is no news: why these are not in the figure is on their cards.
LEFT_OUT = (MIXES_NOTHING, MIXES_HIDDEN)

MOST_TRANSLATIONS = 200
# For methods that need an encoder and a decoder; trained once in a process.
PAIR = SketchPair()

# Saliency comes from the contrast of the pictures.
GIVEN = ("saliency",)


class Words(NamedTuple):
    """What to know about what is shown: ``short`` for the figure, in few short lines, and ``whole`` for the page."""

    short: str = ""
    whole: str = ""


def obstacle(kind: type[Method]) -> str | None:
    """Why methods of this kind cannot be shown on two pictures; None if they can."""
    if issubclass(kind, NoMix):
        return MIXES_NOTHING
    given = options(kind, 64)
    required = [name for name in required_options(kind) if name not in given]
    if "layers" in required:
        return MIXES_HIDDEN
    if required:
        return f"it has no default for {', '.join(required)}"
    if kind.layout != "images" and not issubclass(kind, PairMethod):
        return f"it mixes {kind.layout}, not pictures"
    if not issubclass(kind, PairMethod) and "k" not in (option.name for option in fields(kind)):  # type: ignore[arg-type]
        return "it makes no steps"
    method = kind(**given)
    if any(layer is not None for layer in method.mixes_at):
        return MIXES_HIDDEN
    if method.history and not isinstance(method, RecursiveMix):
        return "it mixes with the batch before, which two pictures do not have"
    if method.needs and not isinstance(method, PairMethod | CoMixup):
        return "it mixes parts of a batch together, not two pictures"
    if missing := [name for name in method.needs if name not in GIVEN]:
        return f"it needs {', '.join(missing)}, which two pictures alone do not give"
    return None


def options(kind: type[Method], size: int) -> dict[str, Any]:
    """What a method is made with here: defaults, except where there are none, or where pictures of this size need others."""
    if issubclass(kind, Cutout):
        # Published for 16 of 32 pixels; grey stands for the mean of the data, which is 0 once it is normalised.
        return {"length": size // 2, "fill": 0.5}
    if issubclass(kind, CoMixup):
        # 4 × 4 blocks are too coarse for pictures of this size. What numba would compile for a minute torch does at once.
        return {"blocks": (8,), "backend": "torch"}
    if issubclass(kind, SageMix):
        return {"backend": "torch"}
    if issubclass(kind, SAGE):
        # A hundredth of all translations is thousands at this size, each tried at every position of the slider.
        return {"positions": min(0.01, MOST_TRANSLATIONS / (2 * size - 1) ** 2)}
    if issubclass(kind, SAMix):
        # Sharper than by default, or it would look like mixup; rescaled, because the label says λ whatever the mask.
        block = FixedBlock(cell=max(1, size // 32), sharpness=8.0)
        return {"block": block, "train_block": False, "clean_weight": 0.0, "rescale_p": 1.0}
    if issubclass(kind, StyleMethod):
        own = {"box": "shift", "gamma": 0.3} if issubclass(kind, StyleCutMix) else {}
        return {"pair": PAIR, "side": None, "tie": True} | own
    return {}


def trained_ahead(methods: Iterable[Method], note: Callable[[str], None]) -> None:
    """Whatever some of ``methods`` have to train before their first picture, so that a progress bar need not wait for it."""
    pairs = [method for method in methods if isinstance(method, StyleMethod)]
    if pairs:
        names = " and ".join(method.name for method in pairs)
        note(f"a small encoder and decoder for {names} is trained first, which takes some seconds")
    for method in pairs:
        if isinstance(method.pair, SketchPair):
            method.pair.trained()


def words(method: Method) -> Words:
    """What is not as it would be in training."""
    if isinstance(method, RecursiveMix):
        until = f"Boxes grow to {method.area:g} of the picture before they are cut off, as in training: the slider ends there."
        return Words("B is the batch\nmixed before", f"B stands for the batch mixed before. {until}")
    if not takes_lam(method):
        return Words(
            "4 inputs: A, B and\ntheir mirror images;\nλ may fall",
            "It mixes many samples into as many: here A, B and their mirror images, and this is the output that goes with A. "
            "λ is the share of B and its mirror image. No λ can be asked for and no order is promised: the slider moves through "
            "its K steps. Saliency here is the squared contrast of the pictures.",
        )
    if method.layout == "points":
        return Words(
            f"points, not pictures:\nA is a {FIRST_BODY},\nB is a {SECOND_BODY}",
            f"It mixes clouds of points, not pictures: A is a {FIRST_BODY} and B a {SECOND_BODY}, and the colour of a point says "
            "how much of it comes from B. All points are equally salient here.",
        )
    if isinstance(method, SAMix):
        return Words(
            "a fixed block\ninstead of a\ntrained one",
            "A fixed block stands here for the trained one: B shows first where it is bright; masks are rescaled to a mean of λ.",
        )
    if isinstance(method, StyleMethod):
        gamma = f" γ = {method.gamma}, which is drawn in training." if isinstance(method, StyleCutMix) else ""
        return Words(
            "a small encoder,\nstyle goes with\ncontent",
            "A small encoder and decoder, trained on made-up pictures, stand here for large ones; content and style have one λ."
            + gamma,
        )
    if "saliency" in method.needs:
        return Words("saliency is\nthe contrast", "Saliency here is the contrast of the pictures.")
    return Words()
