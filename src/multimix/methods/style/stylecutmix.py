"""StyleCutMix (Hong et al., 2021): K boxes of the sample on its partner, partly stylized."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Generator, Tensor

from ...core.batch import Batch
from ...core.checks import check_choice, check_number, check_share
from ...core.devices import float32_or_better
from ...core.mixing import like, mix, mixed_batch
from ...core.plan import PairPlan
from ...core.sampling import draw_path
from ...geometry.boxes import Fit, Grid, centered_boxes, inside, random_center
from ..base import Traits
from ..registry import register
from .adain import ClassDistances, StyleSpace, adain
from .small_pair import IdentityPair
from .stylemix import StyleMethod

Gamma = Literal["beta", "auto"]


@register(
    "stylecutmix",
    aliases=("style_cutmix",),
    published={"alpha1": "alpha", "alpha2": "gamma_alpha", "r": "content_weight", "prob": "p"},
    shared="pair, box center, the two stylized images",
    order="boxes nest",
    # With these options the label of flat images is their share of pixels.
    examples=(
        {"pair": IdentityPair(), "side": None, "box": "shift", "gamma": 1.0},
        {
            "pair": IdentityPair(),
            "side": None,
            "box": "shift",
            "gamma": 0.3,
            "content_weight": 0.0,
            "style_order": "sorted",
        },
    ),
    exceptions={
        "volumes": "encoders and decoders are for images",
        "signals": "encoders and decoders are for images",
    },
)
@dataclass(frozen=True, kw_only=True)
class StyleCutMix(StyleMethod):
    """StyleCutMix: (1 − λ^s_k) x + λ^s_k g inside box k, λ^s_k x' + (1 − λ^s_k) g' outside.

    g = γ x + (1 − γ) D(AdaIN(f, f')), and g' is g with the images exchanged. Box k shows x. Its
    sides are √(1 − λ^c_k) times those of the image, around one center for all k. c_k is the area
    outside the box. The partner's share of the label is r c_k + (1 − r) (γ c_k + (1 − γ) λ^s_k).
    γ = 1 is CutMix.

    With ``gamma="auto"``, ``plan`` needs ``label``, class indices ``[B]`` or probabilities
    ``[B, C]``, which :func:`multimix.mixed_forward` and ``Mix(…, model=)`` pass.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        pair: Object with ``encode(x)`` and ``decode(features)``, or its description ``NewPair()``.
        content_weight: Weight r of the content in the label.
        tie: Use one path for content and style.
        style_order: ``free`` shuffles the shares of the style over k, ``sorted`` keeps them
            ascending.
        mean: Mean by which x was normalized.
        std: Standard deviation by which x was normalized.
        side: Resize images to this shorter side for the pair, and back. None keeps their size.
        clamp: Clamp decoded images to [0, 1].
        gamma: Share γ in [0, 1] of pixels that are not stylized. ``beta`` draws γ from
            Beta(``gamma_alpha``, ``gamma_alpha``). ``auto`` uses tanh(D / ``delta``), where D is
            the distance between the classes of the pair.
        gamma_alpha: Parameter of the Beta distribution of γ, for ``beta``.
        delta: Scale of the distances, for ``auto``.
        distances: Distances between classes, for ``auto``: see :func:`.adain.class_distances`.
        box: ``clip`` clips boxes at the border, ``shift`` moves them inside: see
            :class:`multimix.CutMix`.
        grid: ``continuous`` or ``integer`` centers and sides of boxes: see
            :class:`multimix.CutMix`.
    """

    gamma: float | Gamma = "beta"
    gamma_alpha: float = 0.8
    delta: float = 3.0
    distances: ClassDistances | Tensor | None = None
    box: Fit = "clip"
    grid: Grid = "continuous"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.gamma, str):
            check_choice("gamma", self.gamma, (*get_args(Gamma), "a number in [0, 1]"))
        else:
            check_share("gamma", self.gamma)
        for name in ("gamma_alpha", "delta"):
            check_number(name, getattr(self, name), above=0)
        if self.distances is not None and not isinstance(self.distances, ClassDistances):
            object.__setattr__(self, "distances", ClassDistances(self.distances))
        if self.gamma == "auto" and self.distances is None:
            raise ValueError(
                "gamma='auto' needs distances=, from multimix.methods.style.adain.class_distances"
            )

    @property
    def traits(self) -> Traits:
        return super().traits._replace(needs=("label",) if self.gamma == "auto" else ())

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        label = {"label": batch.y} if self.gamma == "auto" else {}
        return {**super().inputs(replace(batch, given={**label, **batch.given})), **label}

    def build(
        self,
        x: Tensor,
        partner: Tensor,
        lam: Tensor,
        *,
        generator: Generator,
        style_lam: Tensor | Sequence[float] | None = None,
        label: Tensor | None = None,
    ) -> PairPlan:
        style = self.style_path(x, lam, style_lam, generator)
        rows = self.rows(x, lam)
        center = random_center(rows, x.shape[2:], self.grid, generator)
        low, high = centered_boxes(1 - lam, center, x.shape[2:], self.box, self.grid)
        return StyledBoxPlan(
            partner=partner,
            size=x.shape[2:],
            low=low,
            high=high,
            style=style,
            gamma=self._gamma(rows, partner, label, generator),
            content_weight=self.content_weight,
            space=None if self.gamma == 1 else self.space,
        )

    def _gamma(
        self, rows: int, partner: Tensor, label: Tensor | None, generator: Generator
    ) -> Tensor:
        """Return γ ``[1 or B]``, shared by all K."""
        if self.gamma == "beta":
            return draw_path(1, self.gamma_alpha, None, rows, "iid", generator)[0]
        if self.gamma == "auto":
            assert isinstance(self.distances, ClassDistances)
            if not isinstance(label, Tensor):
                raise TypeError(f"label must be a torch.Tensor, got {type(label).__name__}")
            if label.shape[:1] != partner.shape:
                shape = list(label.shape)
                raise ValueError(f"label must have one row per sample, {len(partner)}, got {shape}")
            label = label.cpu()
            return torch.tanh(self.distances.between(label, label[partner]) / self.delta)
        return torch.full((1,), float(self.gamma), dtype=torch.float64)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StyledBoxPlan(PairPlan):
    """The sample inside box ``[low, high)``, the partner outside, both partly stylized.

    Args:
        low: ``[K, 1 or B, 2]`` first places of boxes that shrink with k.
        high: ``[K, 1 or B, 2]`` one past the last places.
        style: ``[K, 1 or B]``, the partner's share of the style.
        gamma: ``[1 or B]``, the share of the pixels that are not stylized.
        content_weight: r, the content's share of the label.
        space: Encoder and decoder; None stylizes nothing (γ = 1).
    """

    low: Tensor
    high: Tensor
    style: Tensor
    gamma: Tensor
    content_weight: float
    space: StyleSpace | None
    has_places = True
    shared: ClassVar[tuple[str, ...]] = ("partner", "gamma")

    @property
    def content(self) -> Tensor:
        """``[K, 1 or B]``: the partner's share of the content, the area outside the box."""
        total = self.size.numel()
        return (total - (self.high - self.low).prod(-1)).to(self.style.dtype) / total

    @property
    def lam(self) -> Tensor:
        share = self._label_share(self.content, self._style_weight, self.style)
        return share.expand(-1, len(self.partner))

    @property
    def mask(self) -> Tensor:
        places = self._places()
        return places.expand(-1, len(self.partner), *places.shape[2:])

    @property
    def _style_weight(self) -> Tensor:
        """The share of the label that depends on the style instead of the box."""
        return (1 - self.content_weight) * (1 - self.gamma)

    @staticmethod
    def _label_share(content: Tensor, style_weight: Tensor, style: Tensor) -> Tensor:
        # Both products increase with k, so rounding preserves the order.
        return (1 - style_weight) * content + style_weight * style

    def _places(self) -> Tensor:
        """``[K, 1 or B, 1, H, W]``: the partner's share of the label; its mean is λ."""
        outside = (~inside(self.low, self.high, self.size)).to(self.style.dtype)
        style_weight = self._style_weight[:, None, None, None]
        style = self.style[..., None, None, None]
        return self._label_share(outside, style_weight, style).float()

    def _mix(self, z: Tensor) -> Tensor:
        sample = float32_or_better(z)
        pair = sample[self.partner]
        if self.space is not None:
            f = self.space.encode(z)
            f_pair = f[self.partner]
            sample_stylized = self.space.decode(adain(f, f_pair), z)
            pair_stylized = self.space.decode(adain(f_pair, f), z)
            style, gamma = self.style[..., None, None, None], self.gamma[:, None, None, None]
            sample = mix(sample, sample_stylized, style * (1 - gamma))
            pair = mix(pair, pair_stylized, (1 - style) * (1 - gamma))
        mixed = torch.where(inside(self.low, self.high, self.size), sample, pair)
        return like(mixed.flatten(0, 1).to(z.dtype), z)

    def _mix_places(self, target: Tensor) -> Tensor:
        return mixed_batch(target, self.partner, self._places())
