"""AlignMixup (Venkataramanan et al., 2022): K points between two aligned feature maps."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor

from ..core.checks import can_inspect, check_number, check_share, check_whole, is_transformed
from ..core.devices import float32_or_better, full_precision
from ..core.mixing import mix, stacked
from ..core.plan import PairPlan, SharePlan, per_sample
from .base import Traits, checked_layers
from .path import PairMethod
from .registry import register

Direction = Literal["coin", "partner", "sample"]
MAX_PLACES = 1024
SYNC_ROUND = 20
"""Round after which convergence is read from a GPU, which forces its only sync."""
MIN_EXPONENT = -80.0
"""Exponents are clamped here: smaller terms are negligible, and denormal numbers are slow."""


@register(
    "alignmixup",
    aliases=("alignmix", "align_mixup"),
    shared="pair, layer, transport between places, direction",
    order="one segment in hidden space",
    # At the published ε of 0.1, float32 differs from the oracle in float64 by 6e-6.
    examples=({"layers": ("body",), "direction": "partner", "eps": 1.0, "rounds": 5},),
    exceptions={
        "partner at 1": "the path ends at the partner brought to the sample's places",
        "large samples": "a transport between thousands of places is rejected",
    },
)
@dataclass(frozen=True, kw_only=True)
class AlignMixup(PairMethod):
    """AlignMixup: Â_k = (1 − λ_k) A + λ_k Ã' at one hidden layer, drawn for each batch.

    Ã' is the partner's feature map, rearranged so that its places match similar places of the
    sample. Entropic optimal transport between the features computes the match, and no gradient
    flows through it. Use the method with :func:`multimix.mixed_forward`.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a direction for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        layers: Names of hidden layers from ``model.named_modules()``. One is drawn per batch.
        input_share: Probability that a batch is mixed at the input instead, without alignment.
        direction: ``partner`` moves the partner's places to the sample's. ``sample`` moves the
            sample's places to the partner's. ``coin`` draws one of the two.
        channel_axis: 1 for features ``[B, C, *places]``, −1 for tokens ``[B, places, C]``. None
            uses 1 and raises if the features may be tokens.
        eps: Weight ε of the entropy in the transport; smaller values give sharper matches. See
            :func:`transport_plan`.
        rounds: Maximum number of Sinkhorn rounds.
        tolerance: Stop the rounds once the potentials change by less than this.

    Example::

        method = AlignMixup(k=5, layers=("layer3", "layer4"))
        mixed_forward(model, method, x, y).loss().backward()
    """

    alpha: float = 2.0
    layers: tuple[str, ...]
    input_share: float = 0.5
    direction: Direction = "coin"
    channel_axis: Literal[1, -1, None] = None
    eps: float = 0.1
    rounds: int = 100
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "layers", checked_layers(self.layers))
        check_share("input_share", self.input_share)
        check_whole("rounds", self.rounds)
        check_number("eps", self.eps, above=0)
        check_number("tolerance", self.tolerance)

    @property
    def traits(self) -> Traits:
        hidden: tuple[str | None, ...] = self.layers if self.input_share < 1 else ()
        return super().traits._replace(mixes_at=(None, *hidden) if self.input_share > 0 else hidden)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        # Always make every draw, so that later draws do not depend on earlier outcomes.
        uniform = torch.rand((), generator=generator, dtype=torch.float64)
        layer = self.layers[int(torch.randint(len(self.layers), (), generator=generator))]
        rows = self.rows(x, lam)
        sample_moves = torch.rand(rows, generator=generator, dtype=torch.float64) < 0.5
        if float(uniform) < self.input_share:
            return SharePlan(partner=partner, share=lam, size=x.shape[2:])
        if self.direction != "coin":
            sample_moves = torch.full_like(sample_moves, self.direction == "sample")
        return AlignedPlan(
            partner=partner,
            share=lam,
            layer=layer,
            sample_moves=sample_moves,
            channel_axis=self.channel_axis,
            input_shape=x.shape,
            eps=self.eps,
            rounds=self.rounds,
            tolerance=self.tolerance,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AlignedPlan(SharePlan):
    """One share per sample, between a feature map and the aligned map of its partner.

    The alignment is computed while mixing. A sample that is its own partner does not change.

    Args:
        sample_moves: ``[1 or B]`` bools. True moves the sample's places to the partner's, False
            the partner's places to the sample's.
        channel_axis: As in :class:`AlignMixup`.
        input_shape: Shape of the model's input.
        eps: As in :func:`transport_plan`.
        rounds: As in :func:`transport_plan`.
        tolerance: As in :func:`transport_plan`.
    """

    sample_moves: Tensor
    channel_axis: int | None
    input_shape: torch.Size
    eps: float
    rounds: int
    tolerance: float
    shared: ClassVar[tuple[str, ...]] = ("partner", "sample_moves")

    def _mix(self, z: Tensor) -> Tensor:
        with full_precision(z):
            start, end = self.ends(z)
            return stacked(mix(start, end, per_sample(self.share, z)).unbind(0), z)

    def ends(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Compute both ends of the path of ``z``: A and A'Rᵀ, or A R and A'.

        R is n times the transport between the n places of A and A'.

        Args:
            z: ``[B, …]`` features.

        Returns:
            Two tensors like ``z``, in float32 or better.

        Raises:
            ValueError: If the channels may come last and ``channel_axis`` is None, or if there are
                too many places to align.
        """
        if self.channel_axis is None and looks_channels_last(z.shape, self.input_shape):
            raise ValueError(
                f"layer {self.layer!r} returns {list(z.shape)}: pass channel_axis=-1 if its "
                "channels come last, as in ViT and Swin, else channel_axis=1"
            )
        channels_last = self.channel_axis == -1 and z.ndim > 2
        maps = float32_or_better(z.movedim(-1, 1) if channels_last else z)
        columns = maps.reshape(len(z), maps.shape[1:2].numel(), -1)
        pair = columns[self.partner]
        moved = columns.shape[2] * self.transport(columns, pair).to(columns.dtype)
        is_fixed = self.partner == torch.arange(len(z), device=self.partner.device)
        sample_moves = (self.sample_moves & ~is_fixed)[:, None, None]
        pair_stays = (self.sample_moves | is_fixed)[:, None, None]
        start = torch.where(sample_moves, columns @ moved, columns).reshape(maps.shape)
        end = torch.where(pair_stays, pair, pair @ moved.transpose(1, 2)).reshape(maps.shape)
        return (start.movedim(1, -1), end.movedim(1, -1)) if channels_last else (start, end)

    def transport(self, columns: Tensor, pair: Tensor) -> Tensor:
        """Compute the transport between the places of two feature maps, without a graph.

        Args:
            columns: ``[B, C, n]`` features of the samples, one column per place.
            pair: ``[B, C, n]`` features of their partners.

        Returns:
            ``[B, n, n]``.

        Raises:
            ValueError: If there are more than ``MAX_PLACES`` places.
        """
        if columns.shape[2] > MAX_PLACES:
            raise ValueError(
                f"AlignMixup aligns at most {MAX_PLACES} places, got {columns.shape[2]} at layer "
                f"{self.layer!r}: choose a later layer, or pass channel_axis=-1 for tokens"
            )
        with torch.no_grad():
            cost = squared_distances(columns.detach().float(), pair.detach().float())
            return transport_plan(cost, self.eps, self.rounds, self.tolerance)


def looks_channels_last(features: torch.Size, inputs: torch.Size) -> bool:
    """Return whether features may be tokens ``[B, N, C]`` or square maps ``[B, H, W, C]``.

    Args:
        features: Shape of the features.
        inputs: Shape of the model's input.

    Returns:
        True if the channels may be the last axis.
    """
    if len(features) == 3:
        return len(inputs) != 3
    square = len(inputs) == 4 and inputs[2] == inputs[3]
    return square and len(features) == 4 and features[1] == features[2] != features[3]


def transport_plan(cost: Tensor, eps: float, rounds: int, tolerance: float) -> Tensor:
    """Solve entropic optimal transport between uniform distributions by Sinkhorn's algorithm.

    The result minimizes ⟨P, cost⟩ + ε Σ P (log P − 1) over all P ≥ 0 with row sums 1/n and column
    sums 1/m. Columns are normalized last, so their sums are exact up to rounding.

    Args:
        cost: ``[B, n, m]``.
        eps: Weight ε of the entropy.
        rounds: Maximum number of rounds; each updates the potentials of rows, then of columns.
        tolerance: Stop once the batch mean of Σ|Δu| is below it, where u is the rows' potential.

    Returns:
        ``P [B, n, m]``.
    """
    _, n, m = cost.shape
    by_row = cost / -eps
    by_column = by_row.transpose(1, 2).contiguous()  # both sums run over contiguous memory
    u, v = by_row.new_zeros(len(cost), n), by_row.new_zeros(len(cost), m)
    running = torch.ones((), dtype=torch.bool, device=cost.device)
    for round_number in range(1, rounds + 1):
        last_u, last_v = u, v
        u = -math.log(n) - _log_sums(by_row, v)
        v = -math.log(m) - _log_sums(by_column, u)
        close = (u - last_u).abs().sum(1).mean() * eps < tolerance
        if can_inspect(close):
            if bool(close):
                break
            continue
        # Reading ``close`` would force a sync: instead, rounds after convergence change nothing.
        u, v = torch.where(running, u, last_u), torch.where(running, v, last_v)
        running = running & ~close
        if round_number == SYNC_ROUND and not is_transformed(running) and not bool(running):
            break
    # A softmax instead of v: exp(u + v + log) of large potentials has errors of several percent.
    return (by_column + u.unsqueeze(1)).softmax(2).transpose(1, 2) / m


def _log_sums(logs: Tensor, potential: Tensor) -> Tensor:
    """Compute log Σ_j exp(logs[B, n, j] + potential[B, j]), ``[B, n]``."""
    exponents = logs + potential.unsqueeze(1)
    largest = exponents.amax(2)
    terms = exponents.sub_(largest.unsqueeze(2)).clamp_min_(MIN_EXPONENT).exp_()
    return largest + terms.sum(2).log_()


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Compute ‖a_i − b_j‖² between columns.

    Args:
        a: ``[B, C, n]``.
        b: ``[B, C, m]``.

    Returns:
        ``[B, n, m]``.
    """
    # Centered, because the squares of a large common offset would lose precision.
    center = a.mean(2, keepdim=True)
    a, b = a - center, b - center
    squares = a.square().sum(1).unsqueeze(2) + b.square().sum(1).unsqueeze(1)
    return torch.baddbmm(squares, a.transpose(1, 2), b, alpha=-2).relu_()
