"""StyleMix (Hong et al., 2021): content and style mixed separately, at K points."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from ...core.checks import check_batch, check_share, check_whole, checked_numbers
from ...core.mixing import stacked
from ...core.plan import PairPlan, SharePlan
from ...core.sampling import checked_path, draw_path
from ..base import Method, Traits
from ..path import PairMethod
from ..registry import register
from .adain import EncoderDecoder, StylePair, StyleSpace, adain, check_pair
from .small_pair import IdentityPair, NewPair


@dataclass(frozen=True, kw_only=True)
class StyleMethod(PairMethod):
    """Base class of StyleMix and StyleCutMix: an encoder-decoder pair and two paths.

    λ^c_1 < … < λ^c_K are the partner's shares of the content, λ^s_1 … λ^s_K those of the style.
    Both have the same distribution. A ``lam`` passed to ``plan`` sets both, unless ``style_lam`` is
    passed. No gradient flows through the pair.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        pair: An object with ``encode(x)`` and ``decode(features)``, for images in [0, 1], or the
            description ``NewPair()`` of one.
        content_weight: Weight r of the content in the label; the style has 1 − r.
        tie: Use one path for content and style.
        style_order: ``free`` shuffles the shares of the style, so that content and style are
            independent at every step, as published. ``sorted`` keeps them and labels ascending.
        mean: Mean by which x was normalized.
        std: Standard deviation by which x was normalized.
        side: Resize images to this shorter side for the pair, and back. None keeps their size.
        clamp: Clamp decoded images to [0, 1].
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
        accepts = tuple(
            name for name in super().traits.accepts if name != "style_lam" or not self.tie
        )
        return super().traits._replace(accepts=accepts)

    @property
    def space(self) -> StyleSpace:
        """The pair with the method's normalization and size, for :func:`.adain.class_distances`."""
        pair: Any = self.pair
        return StyleSpace(pair=pair, mean=self.mean, std=self.std, side=self.side, clamp=self.clamp)

    @property
    def modules(self) -> nn.ModuleDict:
        if isinstance(self.pair, StylePair):
            return nn.ModuleDict({"encoder": self.pair.encoder, "decoder": self.pair.decoder})
        return nn.ModuleDict({"pair": self.pair} if isinstance(self.pair, nn.Module) else {})

    def bind(self, model: nn.Module, images: Tensor, **options: Any) -> Method:
        check_batch(images)
        return super().bind(model, self.space.inward(images), **options)

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
            name = type(self).__name__
            raise ValueError(f"{name} needs x to be images [B, C, H, W], got shape {list(x.shape)}")
        check_pair(self.pair)  # a module may be back in training mode
        style_lam = lam if style_lam is None else style_lam
        return super().draw(
            x, generator=generator, partner=partner, lam=lam, style_lam=style_lam, **given
        )

    def style_path(
        self,
        x: Tensor,
        lam: Tensor,
        style_lam: Tensor | Sequence[float] | None,
        generator: Generator,
    ) -> Tensor:
        """Return the path of the style.

        Args:
            x: ``[B, C, H, W]``.
            lam: ``[K, 1 or B]``, the path of the content.
            style_lam: The caller's path, if any.
            generator: A CPU generator.

        Returns:
            λ^s ``[K, 1 or B]``: ``style_lam`` if passed, ``lam`` if paths are tied, else drawn.

        Raises:
            ValueError: If ``style_lam`` is invalid or has another number of steps than ``lam``.
        """
        if style_lam is not None:
            path = checked_path(style_lam, len(x))
            if len(path) != len(lam):
                raise ValueError(
                    f"style_lam must have as many steps as lam, {len(lam)}, got {len(path)}"
                )
            return path
        if self.tie:
            return lam
        rows = self.rows(x, lam)
        path = draw_path(len(lam), self.alpha, None, rows, self.sampler, generator)
        if len(path) == 1 or self.style_order == "sorted":
            return path
        # Sorted paths would correlate content and style, by 0.67 at K = 5.
        return path.gather(0, torch.rand(path.shape, generator=generator).argsort(0))


@register(
    "stylemix",
    aliases=("style_mix",),
    published={"alpha1": "alpha", "r": "content_weight", "prob": "p"},
    shared="pair, features and their styles from an encoder/decoder pair",
    order="content ordered; style in a random order, or sorted",
    # With these options the label of flat images is their share of pixels.
    examples=({"pair": IdentityPair(), "side": None, "tie": True},),
    exceptions={
        "volumes": "encoders and decoders are for images",
        "signals": "encoders and decoders are for images",
        "geometry": "its mask is even; what is drawn is t, tested in test_style_mix.py",
    },
)
@dataclass(frozen=True, kw_only=True)
class StyleMix(StyleMethod):
    """StyleMix: x̂_k = D(t f + t' f' + c AdaIN(f, f') + s AdaIN(f', f)), f = E(x).

    The partner has λ^c_k of the content and λ^s_k of the style. The weights are at least 0 and sum
    to 1, which leaves t free: it is drawn uniformly, once for all K. The partner's share of the
    label is r λ^c_k + (1 − r) λ^s_k.

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
        content_weight: Weight r of the content in the label; the style has 1 − r.
        tie: Use one path for content and style.
        style_order: ``free`` shuffles the shares of the style over k, ``sorted`` keeps them
            ascending.
        mean: Mean by which x was normalized.
        std: Standard deviation by which x was normalized.
        side: Resize images to this shorter side for the pair, and back. None keeps their size.
        clamp: Clamp decoded images to [0, 1].

    Example::

        method = StyleMix(k=5, pair=load_adain_pair("vgg_normalised.pth", "decoder.pth"))
        mixed_forward(model, method, x, y).loss().backward()
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
    """Compute the weights of f, f', AdaIN(f, f') and AdaIN(f', f).

    f' and AdaIN(f', f) have the partner's content, f' and AdaIN(f, f') its style. The weights are
    at least 0 and sum to 1.

    Args:
        content: The partner's share of the content.
        style: The partner's share of the style.
        position: Weight of f between its minimum (0) and maximum (1), which the two shares leave
            free.

    Returns:
        ``[4, …]``.
    """
    lowest = (1 - content - style).clamp(min=0)
    highest = torch.minimum(1 - content, 1 - style)
    t = lowest + position * (highest - lowest)
    weights = [t, content + style - 1 + t, 1 - content - t, 1 - style - t]
    return torch.stack(weights).clamp(min=0)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StyledPlan(SharePlan):
    """Decodes Σ_s weight_s · feature_s; ``share`` holds the partner's share of the label.

    Args:
        weight: ``[K, 1 or B, 4]`` as in :func:`feature_weights`.
        space: Encoder and decoder.
    """

    weight: Tensor
    space: StyleSpace
    has_places = True

    def _mix(self, z: Tensor) -> Tensor:
        f = self.space.encode(z)
        f_pair = f[self.partner]
        terms = f, f_pair, adain(f, f_pair), adain(f_pair, f)
        weight = self.weight.to(f.dtype)[..., None, None, None]
        # One step at a time, to limit the decoder's memory.
        return stacked([self.space.decode(self._features(w, terms), z) for w in weight], z)

    def _mix_places(self, target: Tensor) -> Tensor:
        return self._mix_target(target)

    @staticmethod
    def _features(weight: Tensor, terms: tuple[Tensor, ...]) -> Tensor:
        features = sum(weight[:, s] * term for s, term in enumerate(terms))
        assert isinstance(features, Tensor)
        return features
