"""SAMix (Li et al., 2021): K masks from a network that is trained beside the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from ...core.batch import Batch, MixedBatch
from ...core.checks import check_number, check_share, check_spatial
from ...core.devices import uploaded
from ...core.logits import Output
from ...core.losses import Criterion, soft_cross_entropy
from ...core.mixing import mix
from ...core.plan import MaskPlan, PairPlan, even_mask, per_sample
from ...core.saliency import check_classes
from ...core.sampling import draw_partner, draw_path
from ...core.targets import are_indices, label_rows
from ..base import Method, Traits
from ..path import PairMethod
from ..registry import register
from .block import (
    Average,
    FixedBlock,
    MaskNetwork,
    MixBlock,
    NewBlock,
    balanced_bce,
    mask_loss,
    rescaled,
)


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
    shared="pair, features of a slow copy of the model; masks are learned by a block beside it",
    order="masks nest with `monotone=True`",
    # Every mask is rescaled to its λ, so that the target is the share of pixels.
    examples=(
        {"block": FixedBlock(), "train_block": False, "clean_weight": 0.0, "rescale_p": 1.0},
    ),
    exceptions={
        "one mask for the batch": "a mask depends on the two images of its pair",
        "order in k": "masks are learned; monotone=True nests them",
        "geometry": "only rescaling is drawn, which is certain with rescale_p=1",
    },
)
@dataclass(frozen=True, kw_only=True)
class SAMix(PairMethod):
    """SAMix: x̂_k = (1 − m_k) ⊙ x + m_k ⊙ x', where ``block`` computes m_k for ρ_k = 1 − λ_k.

    The label is (1 − λ_k) y + λ_k y' for any mask. The loss adds ``clean_weight`` times the loss of
    the clean batch and, with ``train_block``, the loss of the block. The block's loss is the
    cross-entropy of its slow copy on a separately drawn mixed batch, plus ``mask_weight`` times
    :func:`.block.mask_loss`. One ``backward`` trains model and block. :class:`multimix.Mix` needs
    ``train_block=False`` and ``clean_weight=0``.

    ``plan`` also accepts ``features [B, C, *places]`` of the block's slow copy.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        block: A mask network such as :class:`.block.MixBlock`, or its description
            :class:`.block.NewBlock`, which ``bind`` turns into a network.
        margin: Use input mixup for steps where λ or 1 − λ is at most ``margin``.
        rescale_p: Probability that masks are rescaled to the mean λ_k.
        monotone: Take the cumulative maximum over k, so that masks nest.
        train_block: Add the loss of the block.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        mask_weight: Weight of the mask loss in the loss of the block.
        mask_slack: Deviation of a mask's mean from its λ that the mask loss does not penalize.
        variance_weight: Weight of the masks' variance, which the mask loss rewards.
        mask_average: ``pair`` computes the mask loss per mask, ``batch`` over all masks as one.
        eta: If set, the block is trained by binary cross-entropy per class, and η is the weight of
            the classes outside the pair. None uses cross-entropy.

    Example::

        method = SAMix(k=5, block=NewBlock("layer3")).bind(model, x, updates=10_000)
        optimizer.add_param_group({"params": method.modules.parameters()})
        mixed_forward(model, method, x, y).loss().backward()
        optimizer.step()
        method.after_step(model)
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
                "block must be a mask network such as MixBlock(model, 'layer3', 256), "
                f"got {type(self.block).__name__}"
            )
        if self.train_block and not isinstance(self.block, MixBlock | NewBlock):
            name = type(self.block).__name__
            raise ValueError(f"block {name} has no weights to train: pass train_block=False")
        for name in ("rescale_p", "mask_slack"):
            check_share(name, getattr(self, name))
        check_share("margin", self.margin, 0.5)
        for name in ("mask_weight", "variance_weight"):
            check_number(name, getattr(self, name))
        check_number("eta", self.eta, none=True)

    @property
    def traits(self) -> Traits:
        traits = super().traits
        if not self.train_block:
            return traits
        term = "adds the loss of its block (omitted with train_block=False)"
        terms = [term] if traits.own_loss is None else [traits.own_loss, term]
        return traits._replace(own_loss=" and ".join(terms))

    @property
    def modules(self) -> nn.ModuleDict:
        return nn.ModuleDict({"block": self.block} if isinstance(self.block, MaskNetwork) else {})

    def bind(self, model: nn.Module, images: Tensor, **options: Any) -> Method:
        bound = super().bind(model, images, **options)
        if bound is not self and not self.train_block:
            bound.modules.requires_grad_(False)
        return bound

    def after_step(self, model: nn.Module) -> None:
        """Move the block's slow copy toward the model.

        Args:
            model: The model that is trained.
        """
        if self.train_block and isinstance(self.block, MixBlock):
            self.block.update(model)

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        assert isinstance(self.block, MaskNetwork)
        check_spatial(batch.x, "SAMix")
        inputs = dict(super().inputs(batch))
        if self.train_block or "features" not in batch.given:
            inputs["features"] = self.block.features(batch.x)
        if self.train_block:
            inputs["block_loss"] = self.block_loss(
                batch.x, batch.y, inputs["features"], generator=batch.generator, output=batch.output
            )
        return inputs

    def loss(self, mixed: MixedBatch, criterion: Criterion) -> Tensor:
        value = super().loss(mixed, criterion)
        if not self.train_block or not mixed.is_first:
            return value
        loss: Tensor = value + mixed.batch.given["block_loss"]
        return loss

    def block_loss(
        self,
        x: Tensor,
        y: Tensor,
        features: Tensor,
        *,
        generator: Generator,
        output: Output | None = None,
    ) -> Tensor:
        """Compute the loss of the block on a separate draw of partners and ρ.

        Gradients reach only the block.

        Args:
            x: ``[B, C, *size]`` samples.
            y: Class indices ``[B]`` or probabilities ``[B, C]``.
            features: ``[B, C, *places]`` of the slow copy.
            generator: A CPU generator.
            output: Selects the logits if the model returns more.

        Returns:
            A scalar.

        Raises:
            ValueError: If ``y`` holds neither class indices nor probabilities.
            MixingError: If the slow copy fails on the mixed batch.
        """
        assert isinstance(self.block, MixBlock)
        check_classes(y, "the block of SAMix", "for other labels pass train_block=False")
        partner = draw_partner(len(x), self.derange, generator)
        rows = len(x) if self.per_pair else 1
        rho = 1 - draw_path(1, self.alpha, None, rows, "iid", generator)
        partner, rho = uploaded(x.device, partner, rho)
        mask = self.block.masks(features, partner, rho, x.shape[2:], learning=True)[0]
        rho, x = rho[0], x.detach()
        logits = self.block.logits(mix(x, x[partner], mask), output)
        labels = label_rows(y, logits.shape[1] if are_indices(y) else None, 0.0).to(logits.dtype)
        target = mix(labels, labels[partner], (1 - rho).unsqueeze(1))
        if self.eta is None:
            loss = soft_cross_entropy(logits, target)
        else:
            loss = balanced_bce(logits, target, self.eta)
        options: dict[str, Any] = {"variance": self.variance_weight, "average": self.mask_average}
        return loss + self.mask_weight * mask_loss(mask, rho, slack=self.mask_slack, **options)

    def build(
        self,
        x: Tensor,
        partner: Tensor,
        lam: Tensor,
        *,
        generator: Generator,
        features: Tensor | None = None,
    ) -> PairPlan:
        check_spatial(x, "SAMix")
        assert isinstance(self.block, MaskNetwork)
        # Always draw, so that later draws do not depend on the options.
        uniform = torch.rand(self.rows(x, lam), generator=generator, dtype=torch.float64)
        is_plain = (lam <= self.margin) | (lam >= 1 - self.margin)
        is_rescaled = uniform < self.rescale_p
        any_rescaled = bool(is_rescaled.any())
        partner, lam, is_rescaled, is_plain = uploaded(
            x.device, partner, lam, is_rescaled, is_plain
        )
        z = self.block.features(x) if features is None else features
        share = self.block.masks(z, partner, 1 - lam, x.shape[2:])
        lam_of_pair = lam.expand(-1, len(x))
        if any_rescaled:
            is_rescaled = per_sample(is_rescaled.unsqueeze(0), x)
            share = torch.where(is_rescaled, rescaled(share, 1 - lam_of_pair), share)
        even = even_mask(lam_of_pair, x.shape[2:])
        share = torch.where(per_sample(is_plain, x), even, share)
        if self.monotone:
            share = share.cummax(0).values
        return LearnedPlan(partner=partner, size=x.shape[2:], share=share.detach(), coefficient=lam)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedPlan(MaskPlan):
    """Masks whose means may differ from the λ of the target.

    Args:
        coefficient: ``[K, 1 or B]``, the partner's share of the target.
    """

    coefficient: Tensor
    shared: ClassVar[tuple[str, ...]] = ("partner",)

    @property
    def lam(self) -> Tensor:
        """``[K, B]``: λ as drawn, not the mean of the mask."""
        return self.coefficient.expand(-1, len(self.partner))
