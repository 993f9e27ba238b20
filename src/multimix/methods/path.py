"""Base classes of methods with K interpolations, and the clean loss that any of them can add."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from ..core.batch import Batch, MixedBatch
from ..core.checks import check_choice, check_number, check_share, check_whole
from ..core.losses import Criterion
from ..core.plan import PairPlan
from ..core.saliency import CleanPass, clean_logits, clean_pass, cross_entropy
from ..core.sampling import (
    Sampler,
    check_alpha,
    checked_partner,
    checked_path,
    draw_partner,
    draw_path,
    make_generator,
)
from .base import Method, Traits, check_needs

CleanScale = Literal["plain", "per_class", "loss"]


@dataclass(frozen=True, kw_only=True)
class PathMethod(Method):
    """A method with K interpolations.

    The loss is the mean over the K·B mixed rows plus ``clean_weight`` times the loss of the B
    unmixed samples, which is computed once per batch, for any K (RegMixup). Batches that stay
    unmixed because of ``p`` get no further term.

    Args:
        k: Number of interpolations per sample.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
    """

    k: int = 1
    p: float = 1.0
    clean_weight: float = 0.0

    def __post_init__(self) -> None:
        check_whole("k", self.k)
        check_share("p", self.p)
        check_number("clean_weight", self.clean_weight)
        for name, choices in self._literal_options.items():
            if getattr(self, name) not in choices:
                check_choice(name, getattr(self, name), choices)

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        if self.p == 1:
            return self
        draw = torch.rand(
            (), generator=make_generator(generator), dtype=torch.float64, device="cpu"
        )
        return replace(self, p=1.0) if float(draw) < self.p else None

    @property
    def loss_weights(self) -> tuple[float, float]:
        """Weights of the mixed and of the clean loss."""
        return 1.0, self.clean_weight

    @property
    def traits(self) -> Traits:
        clean = self.loss_weights[1]
        term = f"adds a clean loss of weight {clean:g}" if clean > 0 else None
        return self._traits if term is None else self._traits._replace(own_loss=term)

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        needs, given = self.traits.needs, batch.given
        needs_map = "saliency" in needs and "saliency" not in given
        has_clean_loss = self.loss_weights[1] > 0
        check_needs(self, needs, ["saliency", *given])
        if needs_map:
            clean = self.clean_pass(batch, training=has_clean_loss)
            saliency = {"saliency": self.saliency_of(clean)}
            return {**saliency, "clean_logits": clean.logits} if has_clean_loss else saliency
        if has_clean_loss:
            return {"clean_logits": clean_logits(batch.model, batch.x, batch.output)}
        return {}

    def clean_pass(self, batch: Batch, *, training: bool) -> CleanPass:
        """Run the model on the unmixed batch, forward and backward.

        Args:
            batch: The batch.
            training: Run the model in its current mode and keep the graph, for a clean loss.

        Returns:
            The gradient by ``x`` and the logits.
        """
        return clean_pass(batch.model, batch.x, batch.y, training=training, output=batch.output)

    def saliency_of(self, clean: CleanPass) -> Tensor:
        """Compute the saliency that ``plan`` needs.

        Args:
            clean: The result of :meth:`clean_pass`.

        Returns:
            ``[B, *size]``.
        """
        return clean.saliency

    def loss(self, mixed: MixedBatch, criterion: Criterion) -> Tensor:
        mixed_weight, clean_weight = self.loss_weights
        value = mixed_weight * super().loss(mixed, criterion)
        if clean_weight == 0 or not mixed.is_first:
            return value
        return value + clean_weight * self.clean_loss(mixed.batch, criterion)

    def clean_loss(self, batch: Batch, criterion: Criterion) -> Tensor:
        """Compute the loss of the unmixed batch.

        Args:
            batch: The batch; ``batch.given["clean_logits"]`` are the logits of its samples.
            criterion: The caller's loss.

        Returns:
            A scalar.
        """
        if "clean_logits" not in batch.given:
            name = type(self).__name__
            raise RuntimeError(f"{name}.inputs must include the result of super().inputs(batch)")
        logits = batch.given["clean_logits"]
        return criterion(logits, batch.target_rows(logits.shape[-1]))


@dataclass(frozen=True, kw_only=True)
class CleanLossMethod(PathMethod):
    """Base class of methods whose authors give the clean loss its own scale.

    Args:
        k: Number of interpolations per sample.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        clean_scale: ``plain`` is CE(model(x), y). ``per_class`` is CE · 2/C, which matches a
            criterion that averages over classes, such as ``softmax_bce``. ``loss`` is the training
            criterion on the clean batch, with smoothed labels, as for all other methods.
    """

    clean_scale: CleanScale = "plain"

    def clean_loss(self, batch: Batch, criterion: Criterion) -> Tensor:
        if self.clean_scale == "loss":
            return super().clean_loss(batch, criterion)
        logits = batch.given["clean_logits"]
        scale = 2 / logits.shape[1] if self.clean_scale == "per_class" else 1.0
        return cross_entropy(logits, batch.y) * scale


@dataclass(frozen=True, kw_only=True)
class PairMethod(PathMethod):
    """Base class of methods that mix each sample with a partner, at K points of a path.

    0 < λ_1 < … < λ_K < 1 are drawn from Beta(α, α). ``plan`` also accepts ``partner [B]`` and an
    ascending ``lam`` of shape ``[K]``, ``[K, 1]`` or ``[K, B]``.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
    """

    alpha: float = 1.0
    sampler: Sampler = "iid"
    per_pair: bool = False
    derange: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha(self.alpha)

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        return None if self.alpha == 0 else super().choose(generator=generator)

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        **given: Any,
    ) -> PairPlan:
        partner = self.draw_partner(x, partner, generator)
        lam = self.draw_path(x, generator) if lam is None else checked_path(lam, len(x))
        return self.build(x, partner, lam, generator=generator, **given)

    def draw_partner(self, x: Tensor, partner: Tensor | None, generator: Generator) -> Tensor:
        """Return the partners of a batch.

        Args:
            x: ``[B, …]`` samples.
            partner: ``[B]`` indices passed to ``plan``, or None to draw them.
            generator: A CPU generator.

        Returns:
            ``[B]`` indices on the CPU.

        Raises:
            ValueError: If ``partner`` does not hold B indices of the batch.
        """
        if partner is None:
            return draw_partner(len(x), self.derange, generator)
        return checked_partner(partner, len(x))

    def draw_path(self, x: Tensor, generator: Generator) -> Tensor:
        """Draw λ if the caller passes none.

        Args:
            x: ``[B, …]`` samples.
            generator: A CPU generator.

        Returns:
            ``[K, 1 or B]``, ascending in k, float64 on the CPU.
        """
        rows = len(x) if self.per_pair else 1
        return draw_path(self.k, self.alpha, None, rows, self.sampler, generator)

    @abstractmethod
    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *args: Any, **kwargs: Any) -> PairPlan:
        """Draw the geometry and return the plan.

        Args:
            x: ``[B, …]`` samples.
            partner: ``[B]`` indices on the CPU.
            lam: ``[K, 1 or B]`` shares of the partner, on the CPU.
            *args: Not used.
            **kwargs: ``generator``, and the keywords of the method.

        Returns:
            The plan.
        """

    def rows(self, x: Tensor, lam: Tensor) -> int:
        """Return how many geometries to draw.

        Args:
            x: ``[B, …]`` samples.
            lam: ``[K, 1 or B]``.

        Returns:
            B with ``per_pair`` or if ``lam`` has B columns, else 1.
        """
        return len(x) if self.per_pair else lam.shape[1]
