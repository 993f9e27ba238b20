"""What the lab knows about a method beside its registration: options for recipes and for ``multimix look``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Generator, Tensor

from ..methods import CoMixup, RecursiveMix
from ..methods.samix.block import FixedBlock, NewBlock
from ..methods.style.small_pair import NewPair
from .sketch_pair import SketchPair

Options = Mapping[str, Any]
Contrast = Callable[[Tensor], Tensor]
Steps = Callable[[Any, Tensor, Tensor, Sequence[float], Generator, Contrast], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class LabOptions:
    """Options of one method in the lab.

    Args:
        look: Maps the side of a picture in pixels to the method's options for ``multimix look``.
        caption: What differs from training, in a few short lines for the figure.
        remark: What differs from training, in sentences for the page.
        steps: ``steps(method, a, b, lam, generator, contrast)`` returns pictures ``[K, 3, H, W]``
            and the share ``[K]`` of B in each, for methods that do not mix pairs. ``contrast(x)``
            stands for saliency.
        any_lam: Whether the method mixes at any requested share. Otherwise ``steps`` makes as many
            steps as ``lam`` has numbers.
        recipe: Options for training a network with the layers stage1 … stage3, where a recipe does
            not set them.
        small: The same for 8 × 8 images and a network with the layers stage1 and stage2.
    """

    look: Callable[[int], Options] = lambda side: {}
    caption: str = ""
    remark: str = ""
    steps: Steps | None = None
    any_lam: bool = True
    recipe: Options = field(default_factory=dict)
    small: Options = field(default_factory=dict)


_by_name: dict[str, LabOptions] = {}
_DEFAULTS = LabOptions()


def register_options(name: str, **options: Any) -> None:
    """Register the lab's options of a method, in place of those it had.

    Args:
        name: The method's registered name.
        **options: Fields of :class:`LabOptions`.

    Example::

        register_options("mymix", recipe={"layers": ("stage1",)}, caption="a fixed mask")
    """
    _by_name[name] = LabOptions(**options)


def lab_options(name: str) -> LabOptions:
    """Return the lab's options of a method.

    Args:
        name: The method's registered name, not an alias.

    Returns:
        The registered options, or the defaults.
    """
    return _by_name.get(name, _DEFAULTS)


def mirrored_steps(
    method: CoMixup,
    a: Tensor,
    b: Tensor,
    lam: Sequence[float],
    generator: Generator,
    contrast: Contrast,
) -> tuple[Tensor, Tensor]:
    """Return the row of A in a part of A, B and their mirror images, at evenly spaced priors.

    A and B alone would stay as they are: of two outputs that must differ, each takes one. The
    pictures of A come first, because priors are tilted from the first half of a part to the second.
    """
    x = torch.stack([a, a.flip(2), b, b.flip(2)])
    on_grid = replace(method, k=len(lam), part=len(x), sampler="grid", p=1.0)
    # Squared: the contrast alone is so even that every output would show one picture.
    plan: Any = on_grid.plan(x, saliency=contrast(x).square(), generator=generator)
    return plan.mix(x)[:: len(x)], plan.weights[:, 0, 2:].sum(1)


def steps_from_history(
    method: RecursiveMix,
    a: Tensor,
    b: Tensor,
    lam: Sequence[float],
    generator: Generator,
    contrast: Contrast,
) -> tuple[Tensor, Tensor]:
    """Mix A with B as its history. λ is a share of the largest area that training draws."""
    x, areas = a.unsqueeze(0), [method.area * share for share in lam]
    history = {"history_x": b.unsqueeze(0), "history_target": torch.ones(1, 1)}
    plan = replace(method, p=1.0).plan(x, lam=areas, generator=generator, **history)
    return plan.mix(x), plan.lam[:, 0]


STYLE_CAPTION = "a small encoder,\nstyle goes with\ncontent"
STYLE_REMARK = (
    "A small encoder and decoder, trained on synthetic pictures, stand here for large ones; content and style have one λ."
)
NEW_PAIR = {"pair": NewPair(), "side": None}
SMALL_PAIR = {"pair": NewPair(steps=120), "side": None}

register_options("alignmixup", recipe={"layers": ("stage3",)}, small={"layers": ("stage1", "stage2")})
register_options(
    "comixup",
    # 4 × 4 blocks are too coarse for pictures of this size.
    look=lambda side: {"blocks": (8,)},
    caption="4 inputs: A, B and\ntheir mirror images;\nλ may fall",
    remark="It mixes many samples into as many: here A, B and their mirror images, and this is the output that goes "
    "with A. λ is the share of B and its mirror image. No λ can be asked for and no order is promised: the slider moves "
    "through its K steps. Saliency here is the squared contrast of the pictures.",
    steps=mirrored_steps,
    any_lam=False,
)
register_options(
    "cutout",
    # Published for 16 of 32 pixels. Gray is the mean of the data, which is 0 after normalization.
    look=lambda side: {"length": side // 2, "fill": 0.5},
    small={"length": 4},
)
# At the input it would be mixup.
register_options("manifoldmix", recipe={"layers": ("stage1", "stage2")}, small={"layers": ("stage1", "stage2")})
register_options(
    "recursivemix",
    caption="B is the batch\nmixed before",
    remark="B stands for the batch mixed before. Boxes grow to 0.5 of the picture before they are cut off, as in "
    "training: the slider ends there.",
    steps=steps_from_history,
)
register_options(
    "sage",
    # A hundredth of all translations is thousands at this size, each tried at every position of the slider.
    look=lambda side: {"positions": min(0.01, 200 / (2 * side - 1) ** 2)},
)
register_options(
    "samix",
    # Sharper than by default, or it would look like mixup. Rescaled, because the label is λ whatever the mask.
    look=lambda side: {
        "block": FixedBlock(cell=max(1, side // 32), sharpness=8.0),
        "train_block": False,
        "clean_weight": 0.0,
        "rescale_p": 1.0,
    },
    caption="a fixed block\ninstead of a\ntrained one",
    remark="A fixed block stands here for the trained one: B shows first where it is bright; masks are rescaled to a mean of λ.",
    recipe={"block": NewBlock("stage3")},
    small={"block": NewBlock("stage1")},
)
register_options(
    "stylemix",
    look=lambda side: {"pair": SketchPair(), "side": None, "tie": True},
    caption=STYLE_CAPTION,
    remark=STYLE_REMARK,
    recipe=NEW_PAIR,
    small=SMALL_PAIR,
)
register_options(
    "stylecutmix",
    look=lambda side: {"pair": SketchPair(), "side": None, "tie": True, "box": "shift", "gamma": 0.3},
    caption=STYLE_CAPTION,
    remark=STYLE_REMARK + " γ = 0.3, which is drawn in training.",
    recipe=NEW_PAIR,
    small=SMALL_PAIR,
)
