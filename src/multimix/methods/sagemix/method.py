"""SageMix (Lee et al., 2022): K clouds between two, in which salient parts of both keep their shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ...batch import Batch
from ...checks import check_finite, check_number, check_whole, checked_saliency
from ...logits import Output
from ...plan import PairPlan
from ...saliency import CleanLoss, clean_pass, root_mean_square
from ..base import PairMethod
from ..registry import register
from .assignment import Matching, matched_points
from .points import PointPlan, check_points, checked_order, drawn_points, kernel_shares, reordered, taken

SMALLEST_SIGMA = 1e-6


@register(
    "sagemix",
    layout="points",
    published={"theta": "alpha"},
    shared="point clouds: pair, saliency pass, assignment, anchors",
    order="shares of every point ordered",
)
@dataclass(frozen=True, kw_only=True)
class SageMix(PairMethod):
    """Point i of x̂_k lies on the way from p_i to p'_φ(i), clouds ``[B, N, 3]``; how far depends on where it is.

        m_i = λ_k κ'_i / ((1 − λ_k) κ_i + λ_k κ'_i),  κ_i = exp(−‖p_i − q‖² / 2σ²),  κ'_i = exp(−‖p'_φ(i) − q'‖² / 2σ²)

    φ assigns the points one to one at the least total distance (``assignment`` and ``eps``: see
    :func:`.assignment.matched_points`). The anchor q is a point of x drawn by saliency, q' one of x' drawn
    by saliency times its distance from q. ``sigma`` is in units of the clouds, which should fill the unit sphere: 0.3 was
    published for DGCNN, 2.0 for PointNet; ``math.inf`` mixes all points alike. The target follows the mean of m.

    Every pair has its own path, as published; with ``per_pair=False`` one serves the batch. Points in the plane, ``[B, N, 2]``,
    are mixed as well. ``plan`` needs ``saliency [B, N]``, one number per point (:func:`point_saliency`), and takes
    ``order [B, N]``: an assignment of your own, any permutation for every pair.
    """

    alpha: float = 0.2
    per_pair: bool = True
    sigma: float = 0.3
    assignment: Matching = "auto"
    eps: float = 0.002
    threads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.sigma, Real) or not self.sigma >= SMALLEST_SIGMA:
            raise ValueError(f"sigma must be at least {SMALLEST_SIGMA:g}, got {self.sigma!r}")
        check_number("eps", self.eps, above=0)
        check_whole("threads", self.threads, none=True)

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        if "saliency" in batch.given:
            return {}
        return {"saliency": point_saliency(batch.model, batch.x, batch.y, output=batch.output)}

    def build(
        self,
        x: Tensor,
        partner: Tensor,
        lam: Tensor,
        *,
        generator: Generator,
        saliency: Tensor,
        order: Tensor | None = None,
    ) -> PairPlan:
        check_points(x, "SageMix")
        salient = _checked_saliency(saliency, x).to("cpu", torch.float64)
        # Drawn before anything is solved, and for every pair, whether it needs them or not.
        uniform = torch.rand(2, len(x), dtype=torch.float64, generator=generator)
        points = x.detach().to("cpu", torch.float64)
        check_finite(points)
        order = self._order(points, partner) if order is None else checked_order(order, points)
        pair, salient_pair = reordered(points[partner], order), reordered(salient[partner], order)
        anchor = taken(points, drawn_points(salient, uniform[0]))
        anchor_pair = taken(pair, drawn_points(_far_and_salient(salient_pair, (pair - anchor).norm(dim=2)), uniform[1]))
        tilt = ((points - anchor).square().sum(2) - (pair - anchor_pair).square().sum(2)) / (2 * self.sigma**2)
        return PointPlan(partner=partner, size=points.shape[1:2], order=order, share=kernel_shares(lam, tilt))

    def _order(self, points: Tensor, partner: Tensor) -> Tensor:
        """``[B, N]``: which point of the partner goes with each point; a sample that is its own partner stays as it is."""
        order = torch.arange(points.shape[1]).repeat(len(points), 1)
        mixed = (partner != torch.arange(len(points))).nonzero().flatten()
        if len(mixed) > 0:
            order[mixed] = matched_points(
                points[mixed],
                points[partner[mixed]],
                rule=self.assignment,
                eps=self.eps,
                threads=self.threads,
            )
        return order


def point_saliency(
    model: nn.Module, x: Tensor, y: Tensor, *, loss: CleanLoss | None = None, output: Output | None = None
) -> Tensor:
    """``[B, N]``: how much the loss of each cloud ``x [B, N, d]`` depends on each of its points.

        S = sqrt(mean over coordinates of g²),  g = ∂ loss / ∂x

    :func:`multimix.input_saliency` with the mean over the last axis: the model, in evaluation mode, is left as it was.
    """
    check_points(x, "point_saliency")
    gradient = clean_pass(model, x, y, training=False, output=output, loss=loss).gradient
    return root_mean_square(gradient.transpose(1, 2))


def _far_and_salient(salient: Tensor, far: Tensor) -> Tensor:
    """``[B, N]``: saliency times distance; where one of them alone would leave nothing to draw from, the other."""
    salient = torch.where((salient > 0).any(1, keepdim=True), salient / salient.amax(1, keepdim=True), 1.0)
    both = salient * far
    return torch.where((both > 0).any(1, keepdim=True), both, salient)


def _checked_saliency(saliency: Tensor, x: Tensor) -> Tensor:
    if isinstance(saliency, Tensor) and saliency.shape == (len(x), x.shape[2]) != x.shape[:2]:
        raise ValueError(
            f"saliency must be [{len(x)}, {x.shape[1]}], one number per point, got {list(saliency.shape)}, one per coordinate: "
            "take it from multimix.methods.sagemix.method.point_saliency"
        )
    return checked_saliency(saliency, x.transpose(1, 2))
