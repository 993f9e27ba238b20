"""Plans that mix content and style apart: in an encoder's features, or in a box of pixels and the style around it."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...geometry.boxes import inside
from ...mixing import by_step, into, mix, mixed_batch, rows_like
from ...plan import PairPlan, SharePlan, check_size
from ...precision import float32_or_better
from .adain import StyleSpace, adain


def feature_weights(content: Tensor, style: Tensor, position: Tensor) -> Tensor:
    """``[4, …]``: weights of f, f', AdaIN(f, f') and AdaIN(f', f) that give the partner its shares of ``content`` and ``style``.

    They are at least 0 and sum to 1; f' and AdaIN(f', f) have the partner's content, f' and AdaIN(f, f') its style. One freedom
    is left: the weight t of f, at ``position`` 0 … 1 between the least and the most that is possible.
    """
    own_content, own_style = 1 - content, 1 - style
    least = (1 - content - style).clamp(min=0)
    most = torch.minimum(own_content, own_style)
    t = least + position * (most - least)
    return torch.stack([t, content + style - 1 + t, own_content - t, own_style - t]).clamp(min=0)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StyledPlan(SharePlan):
    """D(Σ_s weight_s · feature_s): ``weight [K, 1 or B, 4]`` as in :func:`feature_weights`; ``share`` is the label's law."""

    weight: Tensor
    space: StyleSpace

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        own = self.space.encode(z)
        pair = own[self.partner]
        terms = own, pair, adain(own, pair), adain(pair, own)
        weight = self.weight.to(own.dtype)[..., None, None, None]
        out = rows_like(z, self.k) if out is None else out
        # A step at a time: decoders are large, and a step then is the same number for number whatever K is.
        for step, of_term in zip(by_step(out, self.k), weight, strict=True):
            features = sum(of_term[:, s] * term for s, term in enumerate(terms))
            assert isinstance(features, Tensor)
            step.copy_(self.space.decode(features, z))
        return out


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
        return (total - (self.high - self.low).prod(-1)).to(torch.float64) / total

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
        outside = (~inside(self.low, self.high, self.size)).to(torch.float64)
        free, style = self._free[:, None, None, None], self.style[..., None, None, None]
        return self._lawful(outside, free, style).float()

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
