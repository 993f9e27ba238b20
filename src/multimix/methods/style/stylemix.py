"""StyleMix (Hong et al., 2021): content and style of two images mixed apart, at K points of two paths."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from ...checks import check_batch, check_share, check_whole, checked_numbers, checked_result, is_transformed
from ...mixing import by_step, into, rows_like
from ...plan import PairPlan, SharePlan, check_size
from ...sampling import checked_path, sample_path
from ..base import Method, PairMethod, Traits
from ..registry import Look, register
from .adain import EncoderDecoder, StylePair, StyleSpace, adain, check_pair
from .small_pair import IdentityPair, NewPair, SketchPair

LOOK_SHORT = "a small encoder,\nstyle goes with\ncontent"
LOOK_WHOLE = "A small encoder and decoder, trained on made-up pictures, stand here for large ones; content and style have one λ."


@dataclass(frozen=True, kw_only=True)
class StyleMethod(PairMethod):
    """What StyleMix and StyleCutMix share: a ``pair`` with ``encode(x)`` and ``decode(features)``, and two paths.

    λ^c_1 < … < λ^c_K is the partner's share of the content, λ^s_1 … λ^s_K of the style, drawn by the same law. The style's come
    in a random order, so that content and style are independent at every step, as published; with ``style_order="sorted"`` they
    rise with the content's, so that labels do, too; ``tie`` makes both paths one. The label follows the content by
    ``content_weight`` r and the style by 1 − r. A ``lam`` handed to ``plan`` serves as both, unless ``style_lam`` is given, too.

    The pair is given images in 0 … 1: ``mean`` and ``std`` say how x was normalised. Images are resized for it to a shorter side
    of ``side`` pixels, bilinearly and back again; None keeps them. ``clamp`` cuts what it decodes to 0 … 1. No gradient flows
    through the pair.
    """

    pair: EncoderDecoder | NewPair
    content_weight: float = 0.7
    tie: bool = False
    style_order: Literal["free", "sorted"] = "free"
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    side: int | None = 224
    clamp: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pair(self.pair)
        check_share("content_weight", self.content_weight)
        object.__setattr__(self, "std", checked_numbers("std", self.std, positive=True))
        object.__setattr__(self, "mean", checked_numbers("mean", self.mean))
        check_whole("side", self.side, none=True)

    @property
    def traits(self) -> Traits:
        accepts = tuple(name for name in self._traits.accepts if name != "style_lam" or not self.tie)
        return self._traits._replace(accepts=accepts)

    @property
    def space(self) -> StyleSpace:
        """The pair as the method uses it, for :func:`multimix.methods.style.adain.class_distances`."""
        pair: Any = self.pair  # or what stands for it until it is fitted
        return StyleSpace(pair=pair, mean=self.mean, std=self.std, side=self.side, clamp=self.clamp)

    @property
    def modules(self) -> nn.ModuleDict:
        if isinstance(self.pair, StylePair):
            return nn.ModuleDict({"encoder": self.pair.encoder, "decoder": self.pair.decoder})
        return nn.ModuleDict({"pair": self.pair} if isinstance(self.pair, nn.Module) else {})

    def bind(self, model: nn.Module, images: Tensor, **options: Any) -> Method:
        check_batch(images)
        return super().bind(model, self.space.inward(images), **options)  # the pair learns from what it will be given

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        style_lam: Tensor | Sequence[float] | None = None,
        **given: Any,
    ) -> PairPlan:
        if x.ndim != 4:
            raise ValueError(f"{type(self).__name__} needs images [B, C, H, W], got shape {list(x.shape)}")
        check_pair(self.pair)  # a module may have been put back into training mode
        style_lam = lam if style_lam is None else style_lam
        return super().draw(x, generator=generator, partner=partner, lam=lam, style_lam=style_lam, **given)

    def style_path(self, x: Tensor, lam: Tensor, style_lam: Tensor | Sequence[float] | None, generator: Generator) -> Tensor:
        """λ^s ``[K, 1 or B]`` beside the content's ``lam``: the one given, the same if they are tied, or drawn."""
        if style_lam is not None:
            path = checked_path(style_lam, len(x))
            if len(path) != len(lam):
                raise ValueError(f"style_lam must have as many steps as lam, {len(lam)}, got {len(path)}")
            return path
        if self.tie:
            return lam
        path = sample_path(len(lam), self.alpha, rows=self.rows(x, lam), sampler=self.sampler, generator=generator)
        if len(path) == 1 or self.style_order == "sorted":
            return path
        # Sorted like the content's, a style would tell its step: at K = 5 they would be correlated by .67.
        return path.gather(0, torch.rand(path.shape, generator=generator).argsort(0))


@register(
    "stylemix",
    aliases=("style_mix",),
    published={"alpha1": "alpha", "r": "content_weight", "prob": "p"},
    shared="pair, features and their styles from an encoder/decoder pair",
    order="content ordered; style in a random order, or sorted",
    # In which the label is the share of flat images.
    examples=({"pair": IdentityPair(), "side": None, "tie": True},),
    exceptions={
        "volumes": "encoders and decoders are for images",
        "signals": "encoders and decoders are for images",
        "geometry": "its mask is even; what is drawn is t, tested in test_style_mix.py",
    },
    look=Look(lambda side: {"pair": SketchPair(), "side": None, "tie": True}, short=LOOK_SHORT, whole=LOOK_WHOLE),
    recipe={"pair": NewPair(), "side": None},
    small={"pair": NewPair(steps=120), "side": None},
)
@dataclass(frozen=True, kw_only=True)
class StyleMix(StyleMethod):
    """x̂_k = D(t f + t' f' + c AdaIN(f, f') + s AdaIN(f', f)), f = E(x): the partner has λ^c_k of the content, λ^s_k of the style.

    The weights are at least 0 and sum to 1. What two shares leave open, t, is drawn uniformly from what is possible, by one
    uniform number that all K share. The partner's share of the label is r λ^c_k + (1 − r) λ^s_k.
    Options are those of :class:`StyleMethod`.
    """

    alpha: float = 0.5

    def build(
        self,
        x: Tensor,
        partner: Tensor,
        lam: Tensor,
        *,
        generator: Generator,
        style_lam: Tensor | Sequence[float] | None = None,
    ) -> PairPlan:
        style = self.style_path(x, lam, style_lam, generator)
        position = torch.rand(self.rows(x, lam), dtype=torch.float64, generator=generator)
        return StyledPlan(
            partner=partner,
            size=x.shape[2:],
            share=self.content_weight * lam + (1 - self.content_weight) * style,
            weight=feature_weights(lam, style, position).movedim(0, -1),
            space=self.space,
        )


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

    def _mixed(self, z: Tensor, out: Tensor | None, *, large: bool) -> Tensor:
        return checked_result(super()._mixed(z, out, large=large), "StyleMix")

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        own = self.space.encode(z)
        pair = own[self.partner]
        terms = own, pair, adain(own, pair), adain(pair, own)
        weight = self.weight.to(own.dtype)[..., None, None, None]
        # A step at a time: decoders are large, and a step then is the same number for number whatever K is.
        decoded = (self.space.decode(self._features(of_term, terms), z) for of_term in weight)
        if is_transformed(z):
            return into(torch.cat(list(decoded)).to(z.dtype), z, out)
        out = rows_like(z, self.k) if out is None else out
        for step, images in zip(by_step(out, self.k), decoded, strict=True):
            step.copy_(images)
        return out

    @staticmethod
    def _features(weight: Tensor, terms: tuple[Tensor, ...]) -> Tensor:
        features = sum(weight[:, s] * term for s, term in enumerate(terms))
        assert isinstance(features, Tensor)
        return features
