"""Manifold mixup (Verma et al., 2019): K points of one segment between hidden representations."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..plan import PairPlan, SharePlan
from .base import PairMethod, Traits
from .registry import register


@register(
    "manifoldmix",
    aliases=("manifold", "manifold_mixup"),
    layout="any",
    shared="pair, layer, the trunk's forward pass",
    order="one segment in hidden space",
    examples=({"layers": (None, "body")},),
    recipe={"layers": ("stage1", "stage2")},
    # At the input it would be mixup.
    small={"layers": ("stage1", "stage2")},
)
@dataclass(frozen=True, kw_only=True)
class ManifoldMixup(PairMethod):
    """ĥ_k = (1 − λ_k) h(x) + λ_k h(x') at one of ``layers``, drawn uniformly for each batch and shared by all k.

    Layers are named as in ``model.named_modules()``; None is the input. What a layer puts out is mixed, so name modules that
    carry the whole signal (the end of a stage, not a branch beside a skip connection). Layers up to it run once on B
    samples, the rest on K·B. Use it through :func:`multimix.mixed_logits`.
    """

    alpha: float = 2.0
    layers: tuple[str | None, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.layers, str) or len(self.layers) == 0:
            raise ValueError(f"layers must be a tuple of layer names, such as ('layer1', 'layer2'), got {self.layers!r}")
        if not all(layer is None or isinstance(layer, str) for layer in self.layers):
            raise ValueError(
                "layers are names from model.named_modules(), not numbers, and None for the input, such as (None, 'layer1'), "
                f"got {self.layers!r}"
            )
        object.__setattr__(self, "layers", tuple(self.layers))

    @property
    def traits(self) -> Traits:
        return self._traits._replace(mixes_at=self.layers)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        layer = self.layers[int(torch.randint(len(self.layers), (), generator=generator))]
        size = x.shape[2:] if layer is None else torch.Size()
        return SharePlan(partner=partner, share=lam, size=size, layer=layer)
