"""SageMix (Lee et al., 2022): K clouds between two that keep the salient parts of both."""

import math
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Generator, Tensor, nn

from ...core.checks import check_number, check_whole, checked_saliency
from ...core.compiled import in_chunks, load_kernels
from ...core.devices import downloaded
from ...core.logits import Output
from ...core.mixing import mixed_batch
from ...core.plan import PairPlan
from ...core.saliency import CleanLoss, CleanPass, clean_pass, root_mean_square
from ..path import PairMethod
from ..registry import register

Array = np.ndarray[Any, Any]
Matching = Literal["auto", "exact", "auction"]

MAX_EXACT_POINTS = 512
"""Largest clouds that the rule ``auto`` matches exactly, for speed."""
FIRST_EPS, EPS_FACTOR = 0.05, 6.0
"""ε of the first phase of an auction, and the factor between successive phases."""
EXACT_EPS = 1e-4
"""ε of the auction that precedes exact augmentation; chosen for speed."""
MIN_EPS = 1e-9
"""Smallest ε: smaller bids could round to 0, and the auction would not terminate."""
MIN_SIGMA = 1e-6
INDEX_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@register(
    "sagemix",
    layout="points",
    published={"theta": "alpha"},
    shared="point clouds: pair, saliency pass, assignment, anchors",
    order="shares of every point ordered",
)
@dataclass(frozen=True, kw_only=True)
class SageMix(PairMethod):
    """SageMix: point i of x̂_k lies between p_i and p'_φ(i), for clouds ``[B, N, 3]``.

        m_i = λ_k κ'_i / ((1 − λ_k) κ_i + λ_k κ'_i)
        κ_i = exp(−‖p_i − q‖² / 2σ²),  κ'_i = exp(−‖p'_φ(i) − q'‖² / 2σ²)

    φ assigns the points one to one and minimizes the total distance. The anchor q is a point of x,
    drawn with probability proportional to saliency. The anchor q' is a point of x', drawn by
    saliency times distance from q. The target follows the mean of m.

    ``plan`` needs ``saliency [B, N]`` (:func:`point_saliency`) and accepts ``order [B, N]``, the
    permutation φ of every pair. Points in the plane, ``[B, N, 2]``, are also supported. The
    assignment needs numba (``multimix[solvers]``).

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path for every pair, as published, instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        sigma: Bandwidth σ of the kernel, for clouds scaled to the unit sphere. Published: 0.3 for
            DGCNN, 2.0 for PointNet. ``math.inf`` gives all points the share λ_k.
        assignment: ``exact``, ``auction`` (approximate), or ``auto``, which is exact for up to 512
            points: see :func:`matched_points`.
        eps: ε of the auction; smaller values give shorter total distances and take longer.
        threads: Maximum number of threads; None uses torch's number.

    Example::

        mixed_forward(model, SageMix(k=5, sigma=0.3), clouds, y).loss().backward()
    """

    alpha: float = 0.2
    per_pair: bool = True
    sigma: float = 0.3
    assignment: Matching = "auto"
    eps: float = 0.002
    threads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.sigma, Real) or not self.sigma >= MIN_SIGMA:
            raise ValueError(f"sigma must be at least {MIN_SIGMA:g}, got {self.sigma!r}")
        check_number("eps", self.eps, above=0)
        check_whole("threads", self.threads, none=True)

    def saliency_of(self, clean: CleanPass) -> Tensor:
        check_points(clean.gradient, "SageMix")
        return root_mean_square(clean.gradient.transpose(1, 2))

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
        on_host = downloaded(_checked_saliency(saliency, x), x)
        salient, points = (part.to(torch.float64) for part in on_host)
        # Draw for every pair, so that the random stream does not depend on the assignment.
        uniform = torch.rand(2, len(x), dtype=torch.float64, generator=generator)
        order = self._order(points, partner) if order is None else checked_order(order, points)
        pair, salient_pair = reordered(points[partner], order), reordered(salient[partner], order)
        anchor = taken(points, drawn_points(salient, uniform[0]))
        weight = _far_and_salient(salient_pair, (pair - anchor).norm(dim=2))
        anchor_pair = taken(pair, drawn_points(weight, uniform[1]))
        nearer = (points - anchor).square().sum(2) - (pair - anchor_pair).square().sum(2)
        share = kernel_shares(lam, nearer / (2 * self.sigma**2))
        return PointPlan(partner=partner, size=points.shape[1:2], order=order, share=share)

    def _order(self, points: Tensor, partner: Tensor) -> Tensor:
        """Match each point to a point of the partner, ``[B, N]``; the identity for fixed points."""
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
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    loss: CleanLoss | None = None,
    output: Output | None = None,
) -> Tensor:
    """Compute how strongly the loss of a cloud depends on each of its points.

        S = sqrt(mean over coordinates of g²),  g = ∂ loss / ∂x

    Args:
        model: Any module that maps clouds to logits. It runs in evaluation mode and is unchanged.
        x: ``[B, N, d]``.
        y: Labels.
        loss: Clean loss; cross-entropy by default.
        output: Selects the logits if the model returns more.

    Returns:
        ``[B, N]``.

    Raises:
        ValueError: If ``x`` does not hold clouds of points.
    """
    check_points(x, "point_saliency")
    gradient = clean_pass(model, x, y, training=False, output=output, loss=loss).gradient
    return root_mean_square(gradient.transpose(1, 2))


def _far_and_salient(salient: Tensor, far: Tensor) -> Tensor:
    """Compute saliency times distance, ``[B, N]``; a factor that is 0 everywhere is ignored."""
    is_salient = (salient > 0).any(1, keepdim=True)
    salient = torch.where(is_salient, salient / salient.amax(1, keepdim=True), 1.0)
    both = salient * far
    return torch.where((both > 0).any(1, keepdim=True), both, salient)


def _checked_saliency(saliency: Tensor, x: Tensor) -> Tensor:
    if isinstance(saliency, Tensor) and saliency.shape == (len(x), x.shape[2]) != x.shape[:2]:
        raise ValueError(
            f"saliency must be [{len(x)}, {x.shape[1]}], one number per point, got "
            f"{list(saliency.shape)}, one per coordinate: use "
            "multimix.methods.sagemix.method.point_saliency"
        )
    return checked_saliency(saliency, x.transpose(1, 2))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PointPlan(PairPlan):
    """Moves point i toward point ``order[i]`` of the partner, by the point's share.

    The same plan mixes normals or colors of the points, ``[B, N, …]``. A target per point has the
    shape ``[B, C, N]``.

    Args:
        order: ``[B, N]``, a permutation for every pair.
        share: ``[K, B, N]`` shares of the partner, float64.
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

    def _check_size(self, z: Tensor) -> None:
        if z.ndim < 2 or z.shape[1] != self.size[0]:
            raise ValueError(
                f"z has shape {list(z.shape)}, but the plan was made for {self.size[0]} points"
            )

    def _mix(self, z: Tensor) -> Tensor:
        # Treat every point as a sample whose partner is a point of another cloud.
        n = self.size[0]
        partner = (self.partner.unsqueeze(1) * n + self.order).flatten()
        weight = self.share.reshape(self.k, -1, *[1] * (z.ndim - 2))
        return mixed_batch(z.flatten(0, 1), partner, weight).view(-1, n, *z.shape[2:])

    def _mix_places(self, target: Tensor) -> Tensor:
        return self.mix(target.transpose(1, 2)).transpose(1, 2).contiguous()


def drawn_points(weight: Tensor, uniform: Tensor) -> Tensor:
    """Draw one point of each cloud with probability proportional to its weight.

    Args:
        weight: ``[B, N]`` float64, finite and at least 0. If all are 0, points are equally likely.
        uniform: ``[B]`` uniform numbers in [0, 1).

    Returns:
        ``[B]`` indices.
    """
    largest = weight.amax(1, keepdim=True)
    weight = torch.where(largest > 0, weight / largest, 1.0)  # avoids underflow
    summed = weight.cumsum(1)
    place = torch.searchsorted(summed, uniform.unsqueeze(1) * summed[:, -1:], right=True)
    return place.squeeze(1).clamp(max=weight.shape[1] - 1)


def taken(values: Tensor, point: Tensor) -> Tensor:
    """Select one point of each cloud.

    Args:
        values: ``[B, N, …]``.
        point: ``[B]`` indices.

    Returns:
        ``[B, 1, …]``.
    """
    return values[torch.arange(len(values)), point].unsqueeze(1)


def reordered(values: Tensor, order: Tensor) -> Tensor:
    """Reorder the points of each cloud.

    Args:
        values: ``[B, N, …]``.
        order: ``[B, N]`` indices.

    Returns:
        ``[B, N, …]``, with point ``order[i]`` at position i.
    """
    return values[torch.arange(len(values)).unsqueeze(1), order]


def kernel_shares(lam: Tensor, tilt: Tensor) -> Tensor:
    """Compute λκ' / ((1 − λ)κ + λκ') from logarithms, which do not underflow far from the anchors.

    Args:
        lam: ``[K, 1 or B]``.
        tilt: ``[B, N]``, log κ' − log κ.

    Returns:
        ``[K, B, N]`` shares of the partner.
    """
    return (lam.logit().unsqueeze(2) + tilt).sigmoid()


def check_points(x: Tensor, method: str) -> None:
    """Raise ValueError unless ``x`` holds clouds of points, ``[B, N, 3]`` or ``[B, N, 2]``."""
    shape = list(x.shape)
    if len(shape) == 3 and shape[2] in (2, 3):
        return
    hint = (
        "; x.transpose(1, 2) puts the points first"
        if len(shape) == 3 and shape[1] in (2, 3)
        else ""
    )
    raise ValueError(
        f"{method} needs clouds of points x of shape [B, N, 3] or [B, N, 2], got {shape}{hint}"
    )


def checked_order(order: Tensor, points: Tensor) -> Tensor:
    """Return ``order`` as int64 on the CPU; raise ValueError unless it holds permutations."""
    order = torch.as_tensor(order, device="cpu")
    shape, n = points.shape[:2], points.shape[1]
    if order.shape != shape or order.dtype not in INDEX_DTYPES:
        got = f"{order.dtype} {list(order.shape)}"
        raise ValueError(f"order must hold indices of shape {list(shape)}, got {got}")
    if not torch.equal(order.long().sort(1).values, torch.arange(n).expand(shape)):
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
    """Assign the points of two clouds one to one.

    Args:
        points: ``[B, N, d]``, d up to 3.
        points_pair: ``[B, N, d]``.
        rule: ``exact`` minimizes Σ_i ‖p_i − p'_order(i)‖. ``auction`` exceeds the minimum by at
            most N·ε·D, where D is the diagonal of the box around both clouds. ``auto`` is exact for
            up to 512 points.
        eps: ε of the auction.
        threads: Maximum number of threads; None uses torch's number.

    Returns:
        ``order [B, N]`` int64: point i is matched to point ``order[i]`` of ``points_pair``.

    Raises:
        ImportError: If numba is not installed.
        ValueError: If points are not finite.
    """
    first, second = _scaled(points, points_pair)
    pairs, _, n = first.shape
    exact = rule == "exact" or (rule == "auto" and n <= MAX_EXACT_POINTS)
    solver = load_kernels(f"{__package__}.kernel", "SageMix")
    place = leaf_order(second, solver.LEAF)
    tiles, boxes = leaf_tiles(second, place, solver.LEAF)
    phases = _phases(EXACT_EPS if exact else eps)
    price, order = np.zeros((pairs, n)), np.empty((pairs, n), np.int64)
    arrays = (first, second, place, tiles, boxes, phases, exact, price, order)
    in_chunks(partial(solver.match, *arrays), pairs, threads)
    return torch.from_numpy(order)


def leaf_order(points: Array, leaf: int) -> Array:
    """Order points such that each leaf of consecutive points is compact.

    Clouds are halved recursively along their longest side, in whole leaves.

    Args:
        points: ``[pairs, 3, N]``.
        leaf: Points per leaf.

    Returns:
        ``[pairs, N]`` indices.
    """
    pairs, _, n = points.shape
    order = np.tile(np.arange(n), (pairs, 1))
    segments = [(0, n)]
    while segments:
        begin, end = segments.pop()
        if end - begin <= leaf:
            continue
        part = order[:, begin:end].copy()
        along = np.take_along_axis(points, part[:, None], 2)
        longest = np.ptp(along, axis=2).argmax(1)
        middle = ((end - begin) // 2 + leaf - 1) // leaf * leaf
        halves = along[np.arange(pairs), longest].argpartition(middle, axis=1)
        order[:, begin:end] = np.take_along_axis(part, halves, 1)
        segments += [(begin, begin + middle), (begin + middle, end)]
    return order


def leaf_tiles(points: Array, place: Array, leaf: int) -> tuple[Array, Array]:
    """Arrange points in leaves and compute the bounds of the leaves.

    Args:
        points: ``[pairs, 3, N]``.
        place: ``[pairs, N]``, the result of :func:`leaf_order`.
        leaf: Points per leaf.

    Returns:
        ``[pairs, leaves, 4, leaf]``, coordinates and a price of 0 (all infinite where the last leaf
        is padded), and ``[pairs, 2, 3, leaves]``, lower and upper bounds of the leaves.
    """
    pairs, _, n = points.shape
    count = -(-n // leaf)
    tiles = np.full((pairs, 4, count * leaf), np.inf)
    tiles[:, :3, :n] = np.take_along_axis(points, place[:, None], 2)
    tiles[:, 3, :n] = 0
    tiles = tiles.reshape(pairs, 4, count, leaf)
    low = tiles[:, :3].min(3)
    high = np.where(np.isfinite(tiles[:, :3]), tiles[:, :3], -np.inf).max(3)
    return np.ascontiguousarray(tiles.swapaxes(1, 2)), np.stack([low, high], 1)


def _scaled(points: Tensor, points_pair: Tensor) -> tuple[Array, Array]:
    """Return both clouds as ``[B, 3, N]``, moved and scaled into one box of diagonal 1."""
    both = torch.stack([points.detach(), points_pair.detach()]).to("cpu", torch.float64)
    if not bool(torch.isfinite(both).all()):
        raise ValueError("points must be finite to be matched, got NaN or infinity")
    low = both.amin((0, 2), keepdim=True)
    diagonal = (both.amax((0, 2), keepdim=True) - low).norm(dim=3, keepdim=True)
    # Scaling avoids underflow in squared distances of very close points.
    both = (both - low) / diagonal.clamp(min=torch.finfo(torch.float64).tiny)
    both = torch.nn.functional.pad(both, (0, 3 - both.shape[3])).transpose(2, 3).contiguous()
    return both[0].numpy(), both[1].numpy()


def _phases(eps: float) -> Array:
    """Return the decreasing values of ε of an auction; the last is ``eps``."""
    last = max(eps, MIN_EPS)
    count = max(0, math.ceil(math.log(FIRST_EPS / last, EPS_FACTOR)))
    phases: Array = last * EPS_FACTOR ** np.arange(count, -1, -1.0)
    return phases
