"""StyleCutMix (Hong et al., 2021): K boxes of the sample before the partner, each partly in the other's style."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Generator, Tensor

from ...batch import Batch
from ...checks import check_choice, check_number, check_share, checked_result
from ...geometry.boxes import Fit, Grid, inside, random_boxes
from ...mixing import into, mix, mixed_batch
from ...plan import PairPlan, check_size
from ...precision import float32_or_better
from ...sampling import sample_path
from ..base import Traits
from ..registry import Look, register
from .adain import ClassDistances, StyleSpace, adain
from .small_pair import IdentityPair, NewPair, SketchPair
from .stylemix import LOOK_SHORT, LOOK_WHOLE, StyleMethod

Gamma = Literal["beta", "auto"]


@register(
    "stylecutmix",
    aliases=("style_cutmix",),
    published={"alpha1": "alpha", "alpha2": "gamma_alpha", "r": "content_weight", "prob": "p"},
    shared="pair, box centre, the two stylised images",
    order="boxes nest",
    # In which the label is the share of flat images.
    examples=(
        {"pair": IdentityPair(), "side": None, "box": "shift", "gamma": 1.0},
        {"pair": IdentityPair(), "side": None, "box": "shift", "gamma": 0.3, "content_weight": 0.0, "style_order": "sorted"},
    ),
    exceptions={"volumes": "encoders and decoders are for images", "signals": "encoders and decoders are for images"},
    look=Look(
        lambda side: {"pair": SketchPair(), "side": None, "tie": True, "box": "shift", "gamma": 0.3},
        short=LOOK_SHORT,
        whole=LOOK_WHOLE + " γ = 0.3, which is drawn in training.",
    ),
    recipe={"pair": NewPair(), "side": None},
    small={"pair": NewPair(steps=120), "side": None},
)
@dataclass(frozen=True, kw_only=True)
class StyleCutMix(StyleMethod):
    """Inside box k: (1 − λ^s_k) x + λ^s_k g; outside: λ^s_k x' + (1 − λ^s_k) g'; g = γ x + (1 − γ) D(AdaIN(f, f')), g' alike.

    The box holds x: its sides are √(1 − λ^c_k) of the image's around one centre, ``box`` and ``grid`` as in
    :class:`multimix.CutMix`. With c_k the share outside the box, the partner's share of the label is
    r c_k + (1 − r) (γ c_k + (1 − γ) λ^s_k). γ = 1 is CutMix.

    ``gamma`` is a number, ``beta`` for a draw from Beta(``gamma_alpha``, ``gamma_alpha``), or ``auto``: tanh(D / ``delta``) with
    D the ``distances`` of the pair's two classes (:func:`.adain.class_distances`). Then ``plan`` needs ``label``, which
    ``mixed_logits``, ``mixed_loss`` and ``Mix(…, model=)`` hand on.
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
            check_choice("gamma", self.gamma, (*get_args(Gamma), "a number in 0 … 1"))
        else:
            check_share("gamma", self.gamma)
        for name in ("gamma_alpha", "delta"):
            check_number(name, getattr(self, name), above=0)
        if self.distances is not None and not isinstance(self.distances, ClassDistances):
            object.__setattr__(self, "distances", ClassDistances(self.distances))
        if self.gamma == "auto" and self.distances is None:
            raise ValueError("gamma='auto' needs distances=, such as multimix.methods.style.adain.class_distances(…), got None")

    @property
    def traits(self) -> Traits:
        """It needs ``label [B]``, or probabilities ``[B, C]``, where γ follows the classes."""
        return super().traits._replace(needs=("label",) if self.gamma == "auto" else ())

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        return {"label": batch.y} if self.gamma == "auto" else {}

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
        low, high = random_boxes(1 - lam, rows, x.shape[2:], self.box, self.grid, generator)
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

    def _gamma(self, rows: int, partner: Tensor, label: Tensor | None, generator: Generator) -> Tensor:
        """γ ``[1 or B]``, shared by all K."""
        if self.gamma == "beta":
            return sample_path(1, self.gamma_alpha, rows=rows, generator=generator)[0]
        if self.gamma == "auto":
            assert isinstance(self.distances, ClassDistances)
            if not isinstance(label, Tensor) or label.ndim == 0 or len(label) != len(partner):
                got = f"shape {list(label.shape)}" if isinstance(label, Tensor) else type(label).__name__
                raise ValueError(f"label must be a tensor with one row per sample, {len(partner)}, got {got}")
            label = label.cpu()
            return torch.tanh(self.distances.between(label, label[partner]) / self.delta)
        return torch.full((1,), float(self.gamma), dtype=torch.float64)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StyledBoxPlan(PairPlan):
    """Inside box ``[low, high)`` the sample, outside the partner, each partly in the other's style.

    ``low, high [K, 1 or B, 2]`` shrink with k; ``style [K, 1 or B]`` is the partner's share of the style, ``gamma [1 or B]`` that
    of the pixels left as they are. ``lam`` and ``mask`` follow the label's law; without ``space`` nothing is stylised (γ = 1).
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
        """``[K, 1 or B]``: the partner's share of the content, what lies outside the box."""
        total = self.size.numel()
        return (total - (self.high - self.low).prod(-1)).to(self.style.dtype) / total

    @property
    def lam(self) -> Tensor:
        return self._lawful(self.content, self._free, self.style).expand(-1, len(self.partner))

    @property
    def mask(self) -> Tensor:
        places = self._places()
        return places.expand(-1, len(self.partner), *places.shape[2:])

    @property
    def _free(self) -> Tensor:
        # The share of the label that follows the style and not the box.
        return (1 - self.content_weight) * (1 - self.gamma)

    @staticmethod
    def _lawful(content: Tensor, free: Tensor, style: Tensor) -> Tensor:
        # Two products of what rises with k: rounding cannot turn the order round.
        return (1 - free) * content + free * style

    def _places(self) -> Tensor:
        """``[K, 1 or B, 1, H, W]``: the partner's share of the label at every place; its mean is λ."""
        outside = (~inside(self.low, self.high, self.size)).to(self.style.dtype)
        free, style = self._free[:, None, None, None], self.style[..., None, None, None]
        return self._lawful(outside, free, style).float()

    def _mixed(self, z: Tensor, out: Tensor | None, *, large: bool) -> Tensor:
        mixed = super()._mixed(z, out, large=large)
        return mixed if self.space is None else checked_result(mixed, "StyleCutMix")

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        within = inside(self.low, self.high, self.size)
        own, pair = float32_or_better(z), float32_or_better(z)[self.partner]
        if self.space is None:
            return into(torch.where(within, own, pair).flatten(0, 1).to(z.dtype), z, out)
        features = self.space.encode(z)
        features_pair = features[self.partner]
        own_styled = self.space.decode(adain(features, features_pair), z)
        pair_styled = self.space.decode(adain(features_pair, features), z)
        style, gamma = self.style[..., None, None, None], self.gamma[:, None, None, None]
        shown = mix(own, own_styled, style * (1 - gamma))
        around = mix(pair, pair_styled, (1 - style) * (1 - gamma))
        return into(torch.where(within, shown, around).flatten(0, 1).to(z.dtype), z, out)

    def _mix_places(self, target: Tensor) -> Tensor:
        return mixed_batch(target, self.partner, self._places())
