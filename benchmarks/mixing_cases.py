"""Every registered method as mixing.py and memory.py run it, with a batch of its layout and all that it must be given.

Saliency is handed in (a random map to the fourth power), so no pass of the trained model is counted. Networks of a method's own
(SAMix, StyleMix) are small and do count. Methods for hidden layers mix the input, AlignMixup also features of 512 channels.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import multimix as mm
from multimix.lab.sketch_pair import SketchPair
from multimix.methods.samix.block import FixedBlock, MixBlock

CLASSES = 100
POINTS = 1024  # in a cloud, as published
LARGE = 64  # pixels a side, above which batches are smaller for networks

# What a method does beside mixing: its cost is no number of copies. Others are memory traffic and some draws.
WORK = {
    "puzzlemix": "graph cuts, transport",
    "comixup": "labelling of 20 outputs at a time",
    "saliencymix": "saliency from pixels",
    "alignmixup at a layer": "Sinkhorn, 4² or 7² places",
    "sage": "search for a translation",
    "sagemix": "assignment of 1,024 points",
    "samix": "masks by a fixed rule",
    "samix, MixBlock": "slow copy and mask network",
    "stylemix": "encoder, decoder",
    "stylecutmix": "encoder, decoder",
    "guidedmixup": "pairing by saliency, blur",
}


@dataclass(frozen=True)
class Case:
    """One method on one batch; ``given`` are keywords of its ``plan``."""

    name: str
    method: mm.Method
    x: Tensor
    given: Mapping[str, Any] = field(default_factory=dict)
    z: Tensor | None = None
    """Features to be mixed at a hidden layer; None where the input is."""

    @property
    def work(self) -> str | None:
        """What costs time beside the mixing; None if nothing does."""
        return WORK.get(self.name)

    @property
    def source(self) -> Tensor:
        """What is mixed."""
        return self.x if self.z is None else self.z

    def plan(self, generator: torch.Generator) -> mm.plans.Plan:
        return self.method.plan(self.x, generator=generator, **self.given)


def cases(batch: int, size: int, k: int, points: int = POINTS) -> list[Case]:
    """Every registered method, some of them twice; batches of clouds are smaller, above 64 pixels those of networks."""
    few = batch if size <= LARGE else max(batch // 32, 1)
    images, fewer = torch.rand(batch, 3, size, size), torch.rand(few, 3, size, size)
    made: dict[str, Callable[[], list[Case]]] = {
        "comixup": lambda: [drawn("comixup", images, k, threads=1)],
        "manifoldmix": lambda: [drawn("manifoldmix", images, k, layers=(None,))],
        "alignmixup": lambda: aligned(images, few, k),
        "puzzlemix": lambda: [drawn("puzzlemix", images, k, blocks=(8,), std=0.1)],
        "recursivemix": lambda: [remembering(images, k)],
        "sagemix": lambda: [drawn("sagemix", torch.rand(max(batch // 8, 1), points, 3), k, threads=1)],
        "samix": lambda: learnt(images, fewer, k),
        "stylemix": lambda: [drawn("stylemix", fewer, k, pair=SketchPair(), side=None)],
        "stylecutmix": lambda: [drawn("stylecutmix", fewer, k, pair=SketchPair(), side=None)],
        "none": lambda: [Case("none", mm.NoMix(), images)],
    }
    names = [entry.name for entry in mm.registry.entries()]
    return [case for name in names for case in made.get(name, lambda name=name: [drawn(name, images, k)])()]


def drawn(name: str, x: Tensor, k: int, **options: Any) -> Case:
    """The method as it comes, given a map if it needs one."""
    method = mm.create(name, k=k, **options)
    places = x.shape[:2] if method.layout == "points" else (len(x), *x.shape[2:])
    return Case(name, method, x, {"saliency": torch.rand(places) ** 4} if "saliency" in method.traits.needs else {})


def aligned(images: Tensor, few: int, k: int) -> list[Case]:
    """At the input, where nothing is aligned, and at a layer of 512 channels with 4 × 4 or 7 × 7 places."""
    side = 4 if images.shape[3] <= LARGE else 7
    at_input = mm.AlignMixup(k=k, layers=("body",), input_share=1.0)
    at_layer = mm.AlignMixup(k=k, layers=("body",), input_share=0.0)
    features = torch.rand(few, 512, side, side)
    return [Case("alignmixup", at_input, images), Case("alignmixup at a layer", at_layer, images[:few], z=features)]


def remembering(x: Tensor, k: int) -> Case:
    """RecursiveMix after one batch: given what it would keep of it."""
    method = mm.RecursiveMix(k=k)
    before = torch.rand_like(x)
    target = torch.eye(CLASSES)[torch.randint(CLASSES, (len(x),))]
    return Case("recursivemix", method, x, history(method.plan(before), before, target))


def history(plan: mm.plans.Plan, x: Tensor, target: Tensor) -> dict[str, Tensor]:
    """The first step of a mixed batch, with logits of 0, as RecursiveMix keeps it."""
    kept = target[: len(x)]
    return {"history_x": plan[0].mix(x).clone(), "history_target": kept, "history_logits": torch.zeros_like(kept)}


def learnt(images: Tensor, fewer: Tensor, k: int) -> list[Case]:
    """Masks by a fixed rule, and by a block beside a small network; the block is not trained here."""
    options: dict[str, Any] = {"k": k, "train_block": False, "clean_weight": 0.0}
    block = MixBlock(small_network(8 if images.shape[3] <= LARGE else 32), "body", 64)
    return [
        Case("samix", mm.SAMix(block=FixedBlock(), **options), images),
        Case("samix, MixBlock", mm.SAMix(block=block, **options), fewer),
    ]


def small_network(stride: int) -> nn.Module:
    """Two convolutions, the first with ``stride / 2``; its layer ``body`` puts out 64 channels."""
    body = nn.Sequential(nn.Conv2d(3, 32, stride, stride // 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU())
    return nn.Sequential(OrderedDict(body=body, pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), head=nn.Linear(64, CLASSES)))
