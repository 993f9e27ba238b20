"""SageMix (Lee et al., 2022): K clouds between two, in which salient parts of both keep their shape."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Generator, Tensor, nn

from ...batch import Batch
from ...checks import check_choice, check_finite, check_number, check_whole, checked_saliency
from ...compiled import in_chunks, noticed
from ...devices import downloaded
from ...logits import Output
from ...mixing import mixed_batch
from ...plan import PairPlan
from ...saliency import CleanLoss, clean_pass, root_mean_square
from ..base import PairMethod
from ..registry import register

Array = np.ndarray[Any, Any]
Matching = Literal["auto", "exact", "auction"]

EXACT_UP_TO = 512  # points: about 3 ms a pair on one core; the auction at the default ε takes two fifths of it
FIRST, FALL = 0.05, 6.0  # ε of the first phase of an auction, and by how much it falls from phase to phase
LAST = 1e-4  # ε of the auction before exact augmentation: 1e-2 … 1e-5 all give the optimum, this one soonest
SMALLEST = 1e-9  # below it a bid could be lost in rounding, and the auction would never end
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

    φ assigns the points one to one at the least total distance (``assignment`` and ``eps``: see :func:`matched_points`).
    The anchor q is a point of x drawn by saliency, q' one of x' drawn by saliency times its distance from q. ``sigma`` is in
    units of the clouds, which should fill the unit sphere: 0.3 was published for DGCNN, 2.0 for PointNet; ``math.inf`` mixes all
    points alike. The target follows the mean of m.

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
        salient, points = (part.to(torch.float64) for part in downloaded(_checked_saliency(saliency, x), x))
        # Drawn before anything is solved, and for every pair, whether it needs them or not.
        uniform = torch.rand(2, len(x), dtype=torch.float64, generator=generator)
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PointPlan(PairPlan):
    """Point i moves towards point ``order[i]`` of the partner, by its own share of the way.

    ``order [B, N]`` is a permutation for every pair, shared by all K; ``share [K, B, N]`` is in float64. What belongs to the
    points and not to the cloud, such as normals or colours ``[B, N, …]``, can be mixed by the same plan. A target per point is
    ``[B, C, N]``, classes before places as everywhere.
    """

    order: Tensor
    share: Tensor
    has_places = True
    shared: ClassVar[tuple[str, ...]] = ("partner", "order")

    @property
    def lam(self) -> Tensor:
        return self.share.mean(2)

    @property
    def mask(self) -> Tensor:
        return self.share.float().unsqueeze(2)

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        n = self.size[0]
        if z.ndim < 2 or z.shape[1] != n:
            raise ValueError(f"z has shape {list(z.shape)}, the plan was made for {n} points, the second axis")
        # Every point is a sample here, whose partner lies in another cloud.
        partner = (self.partner.unsqueeze(1) * n + self.order).flatten()
        weight = self.share.reshape(self.k, -1, *[1] * (z.ndim - 2))
        rows = None if out is None or not out.is_contiguous() else out.flatten(0, 1)
        mixed = mixed_batch(z.flatten(0, 1), partner, weight, rows).view(-1, n, *z.shape[2:])
        return mixed if out is None else out if rows is not None else out.copy_(mixed)

    def _mix_places(self, target: Tensor) -> Tensor:
        return self.mix(target.transpose(1, 2)).transpose(1, 2).contiguous()


def drawn_points(weight: Tensor, uniform: Tensor) -> Tensor:
    """``[B]``: a point of each cloud, drawn with probability ∝ ``weight [B, N]`` by the numbers ``uniform [B]`` in [0, 1).

    Weights are float64, at least 0 and finite; where all are 0, every point is as likely as any other.
    """
    largest = weight.amax(1, keepdim=True)
    weight = torch.where(largest > 0, weight / largest, 1.0)  # sums of what a very sure model leaves would underflow
    summed = weight.cumsum(1)
    place = torch.searchsorted(summed, uniform.unsqueeze(1) * summed[:, -1:], right=True)
    return place.squeeze(1).clamp(max=weight.shape[1] - 1)


def taken(values: Tensor, point: Tensor) -> Tensor:
    """``[B, 1, …]``: one point of each cloud ``values [B, N, …]``."""
    return values[torch.arange(len(values)), point].unsqueeze(1)


def reordered(values: Tensor, order: Tensor) -> Tensor:
    """``[B, N, …]``: ``values`` with point ``order[i]`` at place i of each cloud."""
    return values[torch.arange(len(values)).unsqueeze(1), order]


def kernel_shares(lam: Tensor, tilt: Tensor) -> Tensor:
    """``[K, B, N]``: λκ' / ((1 − λ)κ + λκ') for ``lam [K, 1 or B]`` and ``tilt [B, N]`` = log κ' − log κ.

    In logarithms: however far a point is from both anchors, the share is exact, and it is 0 at λ = 0 and 1 at λ = 1.
    """
    return (lam.logit().unsqueeze(2) + tilt).sigmoid()


def check_points(x: Tensor, method: str) -> None:
    """Raise ValueError unless ``x`` holds clouds of points, ``[B, N, 3]`` or ``[B, N, 2]``."""
    shape = list(x.shape)
    if len(shape) == 3 and shape[2] in (2, 3):
        return
    hint = "; x.transpose(1, 2) puts the points first" if len(shape) == 3 and shape[1] in (2, 3) else ""
    raise ValueError(f"{method} needs clouds of points x of shape [B, N, 3] or [B, N, 2], got {shape}{hint}")


def checked_order(order: Tensor, points: Tensor) -> Tensor:
    """``order`` as an index on the CPU for clouds ``points [B, N, d]``, or ValueError with what is wrong with it."""
    order = torch.as_tensor(order, device="cpu")
    wanted, n = points.shape[:2], points.shape[1]
    if order.shape != wanted or order.is_floating_point() or order.is_complex() or order.dtype == torch.bool:
        raise ValueError(f"order must hold indices of shape {list(wanted)}, got {order.dtype} {list(order.shape)}")
    if not torch.equal(order.long().sort(1).values, torch.arange(n).expand(wanted)):
        raise ValueError(f"order must be a permutation of 0 … {n - 1} for every pair")
    return order.long()


def matched_points(
    points: Tensor,
    points_pair: Tensor,
    *,
    rule: Matching = "auto",
    eps: float = 0.002,
    threads: int | None = None,
) -> Tensor:
    """``order [B, N]`` int64: point i of cloud ``points [B, N, d]`` goes with point ``order[i]`` of ``points_pair [B, N, d]``.

    Always a permutation; d is 1, 2 or 3. ``exact`` minimises Σ_i ‖p_i − p'_order(i)‖. ``auction`` comes within N·ε·D of the
    least sum, D the diagonal of the smallest box with sides along the axes that holds both clouds; in practice far closer.
    ``auto`` is exact for up to 512 points.
    """
    check_choice("rule", rule, get_args(Matching))
    check_number("eps", eps, above=0)
    if points.shape != points_pair.shape or points.ndim != 3 or not 1 <= points.shape[2] <= 3 or points.numel() == 0:
        raise ValueError(f"clouds must both be [B, N, d] with d up to 3, got {list(points.shape)} and {list(points_pair.shape)}")
    first, second = _scaled(points, points_pair)
    pairs, _, n = first.shape
    exact = rule == "exact" or (rule == "auto" and n <= EXACT_UP_TO)
    order = np.empty((pairs, n), np.int64)
    from .kernel import match

    phases, price = _phases(LAST if exact else eps), np.zeros((pairs, n))
    with noticed(match, 10.0):
        in_chunks(lambda start, stop: match(first, second, phases, exact, price, order, start, stop), pairs, threads)
    return torch.from_numpy(order)


def _scaled(points: Tensor, points_pair: Tensor) -> tuple[Array, Array]:
    """Both clouds as ``[B, 3, N]``, moved and scaled into one box of diagonal 1, so that neither size nor place matters."""
    both = torch.stack([points.detach(), points_pair.detach()]).to("cpu", torch.float64)
    if not bool(torch.isfinite(both).all()):
        raise ValueError("points must be finite to be matched, got NaN or infinity")
    low = both.amin((0, 2), keepdim=True)
    diagonal = (both.amax((0, 2), keepdim=True) - low).norm(dim=3, keepdim=True)
    # All points in one place, or so close that squares would underflow without it.
    both = (both - low) / diagonal.clamp(min=torch.finfo(torch.float64).tiny)
    both = torch.nn.functional.pad(both, (0, 3 - both.shape[3])).transpose(2, 3).contiguous()
    return both[0].numpy(), both[1].numpy()


def _phases(eps: float) -> Array:
    """The falling ε of an auction, ``eps`` last."""
    last = max(eps, SMALLEST)
    count = max(0, math.ceil(math.log(FIRST / last, FALL)))
    phases: Array = last * FALL ** np.arange(count, -1, -1.0)
    return phases
