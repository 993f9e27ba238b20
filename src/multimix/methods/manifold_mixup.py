"""Manifold mixup (Verma et al., 2019): K points of one segment between hidden representations."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..core.plan import PairPlan, SharePlan
from .base import Traits, checked_layers
from .path import PairMethod
from .registry import register


@register(
    "manifoldmix",
    aliases=("manifold", "manifold_mixup"),
    layout="any",
    shared="pair, layer, the trunk's forward pass",
    order="one segment in hidden space",
    examples=({"layers": (None, "body")},),
)
@dataclass(frozen=True, kw_only=True)
class ManifoldMixup(PairMethod):
    """Manifold mixup: ĥ_k = (1 − λ_k) h(x) + λ_k h(x') at one layer, drawn for each batch.

    The method mixes a layer's output, so choose modules that carry the whole signal: the end of a
    stage, not a branch beside a skip connection. Layers before it run on B samples, later ones on
    K·B. Use the method with :func:`multimix.mixed_forward`.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        layers: Names of layers from ``model.named_modules()``; None is the input. One is drawn per
            batch.

    Example::

        method = ManifoldMixup(k=5, layers=(None, "layer1", "layer2"))
        mixed_forward(model, method, x, y).loss().backward()
    """

    alpha: float = 2.0
    layers: tuple[str | None, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "layers", checked_layers(self.layers, allow_input=True))

    @property
    def traits(self) -> Traits:
        return super().traits._replace(mixes_at=self.layers)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        layer = self.layers[int(torch.randint(len(self.layers), (), generator=generator))]
        size = x.shape[2:] if layer is None else torch.Size()
        return SharePlan(partner=partner, share=lam, size=size, layer=layer)
