"""SAMix (Li et al., 2021): K masks from a network that learns where to show whom, beside the model and from a slow copy of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from ...batch import Batch, Criterion, Mixed
from ...checks import check_number, check_share, check_spatial
from ...devices import uploaded
from ...logits import Output
from ...loss import soft_cross_entropy
from ...mixing import mix
from ...plan import MaskPlan, PairPlan, even_mask
from ...saliency import check_classes, clean_logits
from ...sampling import random_partner, sample_path
from ...target import soft_target
from ..base import Method, PairMethod, Traits
from ..registry import Look, register
from .block import Average, FixedBlock, MaskNetwork, MixBlock, NewBlock, balanced_bce, mask_loss, rescaled


@register(
    "samix",
    aliases=("boostingmix",),
    published={
        "mix_block": "block",
        "mask_adjust": "rescale_p",
        "lam_margin": "margin",
        "mask_loss": "mask_weight",
        "mask_loss_margin": "mask_slack",
        "lam_mul_k": "kappa of the block",
        "mix_shuffle_no_repeat": "derange",
        "eta_weight": "eta",
    },
    shared="pair, features of a slow copy of the model; masks are learnt by a block beside it",
    order="masks nest with `monotone=True`",
    # Every mask is rescaled to its λ, so that the target is the share of pixels.
    examples=({"block": FixedBlock(), "train_block": False, "clean_weight": 0.0, "rescale_p": 1.0},),
    exceptions={
        "one mask for the batch": "a mask follows its own two images",
        "order in k": "masks are learnt; monotone=True nests them",
        "geometry": "all that is drawn is whether to rescale, here certain",
    },
    look=Look(
        # Sharper than by default, or it would look like mixup; rescaled, because the label says λ whatever the mask.
        lambda side: {
            "block": FixedBlock(cell=max(1, side // 32), sharpness=8.0),
            "train_block": False,
            "clean_weight": 0.0,
            "rescale_p": 1.0,
        },
        short="a fixed block\ninstead of a\ntrained one",
        whole="A fixed block stands here for the trained one: B shows first where it is bright; masks are rescaled to a mean "
        "of λ.",
    ),
    recipe={"block": NewBlock("stage3")},
    small={"block": NewBlock("stage1")},
)
@dataclass(frozen=True, kw_only=True)
class SAMix(PairMethod):
    """x̂_k = (1 − m_k) ⊙ x + m_k ⊙ x', m_k from ``block`` at ρ_k = 1 − λ_k; the label is (1 − λ_k) y + λ_k y', whatever the mask.

    :func:`multimix.mixed_loss` adds ``clean_weight`` times the loss of the clean batch and, with ``train_block``, the block's own
    loss on a draw (π, ρ) of its own: the cross-entropy of its slow copy on a mixed batch and ``mask_weight`` times
    :func:`.block.mask_loss` (``mask_slack``, ``variance_weight``, ``mask_average``). One ``backward`` then trains
    both, the model by the first two terms only and the block by the last only. With neither, ``mixed_logits`` and ``Mix`` work.

    Where λ or 1 − λ is at most ``margin`` the step is plain mixup. With probability ``rescale_p`` masks are rescaled such that
    their mean is λ_k. ``monotone`` takes the cumulative maximum over k, so that masks nest. With ``eta`` the block's loss is
    a binary one of each class in which classes outside the pair weigh ``eta``. ``plan`` takes ``features [B, C, *places]`` of the
    block's slow copy instead of asking for them.
    """

    alpha: float = 2.0
    block: MaskNetwork | NewBlock
    margin: float = 0.08
    rescale_p: float = 0.25
    monotone: bool = False
    train_block: bool = True
    clean_weight: float = 1.0
    mask_weight: float = 0.1
    mask_slack: float = 0.1
    variance_weight: float = 2.0
    mask_average: Average = "pair"
    eta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.block, MaskNetwork | NewBlock):
            raise TypeError(
                f"block must be a network of masks such as MixBlock(model, 'layer3', 256), got {type(self.block).__name__}"
            )
        if self.train_block and not isinstance(self.block, MixBlock | NewBlock):
            raise ValueError(f"{type(self.block).__name__} has nothing to learn: use train_block=False")
        for name in ("rescale_p", "mask_slack"):
            check_share(name, getattr(self, name))
        check_share("margin", self.margin, 0.5)
        for name in ("clean_weight", "mask_weight", "variance_weight"):
            check_number(name, getattr(self, name))
        check_number("eta", self.eta, none=True)

    @property
    def traits(self) -> Traits:
        own = "trains its block by a loss (train_block=False leaves it out)" if self.train_block else None
        clean = f"adds a clean loss of weight {self.clean_weight:g}" if self.clean_weight > 0 else None
        return self._traits._replace(own_loss=clean or own)

    @property
    def modules(self) -> nn.ModuleDict:
        return nn.ModuleDict({"block": self.block} if isinstance(self.block, MaskNetwork) else {})

    def bind(self, model: nn.Module, images: Tensor, **options: Any) -> Method:
        bound = super().bind(model, images, **options)
        if bound is not self and not self.train_block:
            bound.modules.requires_grad_(False)
        return bound

    def after_step(self, model: nn.Module) -> None:
        """The block's slow copy follows the model."""
        if self.train_block and isinstance(self.block, MixBlock):
            self.block.update(model)

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        assert isinstance(self.block, MaskNetwork)
        check_spatial(batch.x, "SAMix")
        told: dict[str, Tensor] = {}
        if self.train_block or "features" not in batch.given:
            told["features"] = self.block.features(batch.x)
        if self.train_block:
            told["block_loss"] = self.block_loss(
                batch.x, batch.y, told["features"], generator=batch.generator, output=batch.output
            )
        if self.clean_weight > 0:
            told["clean_logits"] = clean_logits(batch.model, batch.x, batch.output)
        return told

    def loss(self, batch: Batch, mixed: Mixed, criterion: Criterion) -> Tensor:
        value = super().loss(batch, mixed, criterion)
        if mixed.first and self.clean_weight > 0:
            logits = batch.given["clean_logits"]
            value = value + self.clean_weight * criterion(logits, batch.target_rows(logits.shape[1]))
        return value + batch.given["block_loss"] if mixed.first and self.train_block else value

    def block_loss(self, x: Tensor, y: Tensor, features: Tensor, *, generator: Generator, output: Output | None = None) -> Tensor:
        """What the block learns from, on one draw (π, ρ) of its own; gradients reach nothing but the block."""
        assert isinstance(self.block, MixBlock)
        check_spatial(x, "SAMix")
        check_classes(y, "the block of SAMix", "for others use a trained block and train_block=False")
        partner = random_partner(len(x), derange=self.derange, generator=generator)
        rho = 1 - sample_path(1, self.alpha, rows=len(x) if self.per_pair else 1, generator=generator)
        partner, rho = uploaded(x.device, partner, rho)
        mask = self.block.masks(features, partner, rho, x.shape[2:], learning=True)[0]
        rho, x = rho[0], x.detach()
        logits = self.block.logits(mix(x, x[partner], mask), output)
        own = soft_target(y, logits.shape[1] if y.ndim == 1 and not y.is_floating_point() else None).to(logits.dtype)
        target = mix(own, own[partner], (1 - rho).unsqueeze(1))
        loss = soft_cross_entropy(logits, target) if self.eta is None else balanced_bce(logits, target, self.eta)
        shape = mask_loss(mask, rho, slack=self.mask_slack, variance=self.variance_weight, average=self.mask_average)
        return loss + self.mask_weight * shape

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, features: Tensor | None = None) -> PairPlan:
        check_spatial(x, "SAMix")
        assert isinstance(self.block, MaskNetwork)
        # Drawn whether it counts or not, and for the whole path: neither options nor K then change what is drawn later.
        to_rescale = torch.rand(self.rows(x, lam), generator=generator, dtype=torch.float64) < self.rescale_p
        plain = (lam <= self.margin) | (lam >= 1 - self.margin)
        some_rescaled, some_plain = bool(to_rescale.any()), bool(plain.any())
        partner, lam, to_rescale, plain = uploaded(x.device, partner, lam, to_rescale, plain)
        z = self.block.features(x) if features is None else features
        share = self.block.masks(z, partner, 1 - lam, x.shape[2:])
        of_pair = lam.expand(-1, len(x))
        if some_rescaled:
            share = torch.where(_wide(to_rescale.unsqueeze(0), share), rescaled(share, 1 - of_pair), share)
        if some_plain:
            share = torch.where(_wide(plain, share), even_mask(of_pair, x.shape[2:]), share)
        if self.monotone:
            share = share.cummax(0).values
        return LearnedPlan(partner=partner, size=x.shape[2:], share=share.detach(), coefficient=lam)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedPlan(MaskPlan):
    """Masks whose means are not the labels': ``coefficient [K, 1 or B]`` is the partner's share of the target."""

    coefficient: Tensor
    shared: ClassVar[tuple[str, ...]] = ("partner",)

    @property
    def lam(self) -> Tensor:
        """``[K, B]``: λ as drawn, not the mean of the mask."""
        return self.coefficient.expand(-1, len(self.partner))


def _wide(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(*values.shape, *[1] * (like.ndim - 2))
