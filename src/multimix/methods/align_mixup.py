"""AlignMixup (Venkataramanan et al., 2022): K points between a feature map and its partner, aligned by one transport."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor

from ..checks import can_inspect, check_number, check_share, check_whole, checked_result, is_transformed
from ..mixing import by_step, can_write_in_place, into, mix, rows_like
from ..plan import PairPlan, SharePlan
from ..precision import full_precision
from .base import PairMethod, Traits
from .registry import register

Direction = Literal["coin", "partner", "sample"]
MOST_PLACES = 1024
ASKED = 20  # the round after which an accelerator is asked whether more are needed


@register(
    "alignmixup",
    aliases=("alignmix", "align_mixup"),
    shared="pair, layer, transport between places, direction",
    order="one segment in hidden space",
    # At the published ε of 0.1 float32 is 6e-6 away from the tests' oracle in float64.
    examples=({"layers": ("body",), "direction": "partner", "eps": 1.0, "rounds": 5},),
    exceptions={
        "partner at 1": "the path ends at the partner brought to the sample's places",
        "large samples": "a transport between thousands of places is refused",
    },
    # Before the last of four stages: after it alignment comes to nothing, since average pooling follows.
    recipe={"layers": ("stage3",)},
    small={"layers": ("stage1", "stage2")},
)
@dataclass(frozen=True, kw_only=True)
class AlignMixup(PairMethod):
    """Âₖ = (1 − λ_k) A + λ_k Ã' at one of ``layers``: the places of the partner's feature map are first brought to those of the
    sample that resemble them, by entropic optimal transport of their features; or the sample's to the partner's.

    ``direction`` says which of the two is moved, ``coin`` draws it. With probability ``input_share`` a batch is mixed at the
    input instead, without alignment. Layers are named as for :class:`multimix.ManifoldMixup`, one drawn for each batch.
    ``channel_axis`` is 1 for features ``[B, C, *places]`` and −1 for tokens ``[B, places, C]``; left out it is 1, and features
    that look like tokens are refused. ``eps``, ``rounds`` and
    ``tolerance`` are those of :func:`multimix.methods.align_mixup.transport_plan`; the transport is a constant for gradients.
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
        names = tuple(self.layers) if isinstance(self.layers, Iterable) and not isinstance(self.layers, str) else ()
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(f"layers must be a tuple of hidden layers' names, such as ('layer3',), got {self.layers!r}")
        object.__setattr__(self, "layers", names)
        check_share("input_share", self.input_share)
        check_whole("rounds", self.rounds)
        check_number("eps", self.eps, above=0)
        check_number("tolerance", self.tolerance)

    @property
    def traits(self) -> Traits:
        hidden: tuple[str | None, ...] = self.layers if self.input_share < 1 else ()
        return self._traits._replace(mixes_at=(None, *hidden) if self.input_share > 0 else hidden)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        # All is drawn, whether it counts or not: the stream then does not depend on how one of the draws came out.
        at_input = float(torch.rand((), generator=generator, dtype=torch.float64)) < self.input_share
        layer = self.layers[int(torch.randint(len(self.layers), (), generator=generator))]
        sample_moves = torch.rand(self.rows(x, lam), generator=generator, dtype=torch.float64) < 0.5
        if at_input:
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
    """One share per sample, between a feature map and the aligned one of its partner; the alignment is found while mixing.

    ``sample_moves [1 or B]`` says for which pairs the sample's features are brought to the partner's places and not the other
    way round. A sample that is its own partner stays as it is.
    """

    sample_moves: Tensor
    channel_axis: int | None
    input_shape: torch.Size
    eps: float
    rounds: int
    tolerance: float
    shared: ClassVar[tuple[str, ...]] = ("partner", "sample_moves")

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        with full_precision(z):
            # What lies between finite ends is finite: they are a K-th of the numbers to look at.
            start, end = (checked_result(side, "AlignMixup") for side in self.ends(z))
            share = self.share.reshape(*self.share.shape, *[1] * (z.ndim - 1))
            if not can_write_in_place(z):
                return into(mix(start, end, share).flatten(0, 1).to(z.dtype), z, out)
            out = rows_like(z, self.k) if out is None else out
            torch.lerp(start, end, share.to(z.dtype), out=by_step(out, self.k))
            return out

    def ends(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Where the K steps of ``z [B, …]`` start and end, like z but in float32 or better: A and A'Rᵀ, or A R and A'."""
        if self.channel_axis is None and looks_channels_last(z.shape, self.input_shape):
            raise ValueError(
                f"layer {self.layer!r} puts out {list(z.shape)}: if its channels come last, as those of tokens in ViT and Swin "
                "do, say channel_axis=-1, else channel_axis=1"
            )
        last = self.channel_axis == -1 and z.ndim > 2
        places = (z.movedim(-1, 1) if last else z).to(torch.float64 if z.dtype == torch.float64 else torch.float32)
        own = places.reshape(len(z), places.shape[1:2].numel(), -1)
        pair = own[self.partner]
        fitted = own.shape[2] * self.transport(own, pair).to(own.dtype)
        moves, itself = self.sample_moves, self.partner == torch.arange(len(z), device=self.partner.device)
        start, end = own, pair
        look = can_inspect(moves)  # else both are computed: asking which one is needed would stall an accelerator
        if not look or bool(moves.any()):
            start = torch.where((moves & ~itself)[:, None, None], own @ fitted, own)
        if not look or not bool(moves.all()):
            end = torch.where((moves | itself)[:, None, None], pair, pair @ fitted.transpose(1, 2))
        start, end = start.reshape(places.shape), end.reshape(places.shape)
        return (start.movedim(1, -1), end.movedim(1, -1)) if last else (start, end)

    def transport(self, own: Tensor, pair: Tensor) -> Tensor:
        """``P [B, n, n]`` between the columns of ``own`` and ``pair [B, C, n]``, in float32 and detached."""
        if own.shape[2] > MOST_PLACES:
            raise ValueError(
                f"AlignMixup aligns at most {MOST_PLACES} places, got {own.shape[2]} at layer {self.layer!r}: name a later "
                "layer, or say channel_axis=-1 if its channels come last, as those of tokens do"
            )
        with torch.no_grad():
            cost = squared_distances(own.detach().float(), pair.detach().float())
            return transport_plan(cost, self.eps, self.rounds, self.tolerance)


def looks_channels_last(features: torch.Size, inputs: torch.Size) -> bool:
    """Whether features may be tokens ``[B, N, C]`` of inputs that are no signals, or maps ``[B, H, W, C]`` of square images."""
    if len(features) == 3:
        return len(inputs) != 3
    square = len(inputs) == 4 and inputs[2] == inputs[3]
    return square and len(features) == 4 and features[1] == features[2] != features[3]


def transport_plan(cost: Tensor, eps: float, rounds: int, tolerance: float) -> Tensor:
    """``P [B, n, m]``: of all P ≥ 0 with row sums 1/n and column sums 1/m nearly the one that minimises
    ⟨P, cost⟩ + ε Σ P (log P − 1).

    Sinkhorn's rounds, first the potential u of the rows, then v of the columns, from 0; at most ``rounds``, and no more once the
    mean over the batch of Σ|Δu| is below ``tolerance``. The columns were served last: their sums are exact up to rounding, those
    of the rows as good as the rounds made them.
    """
    _, n, m = cost.shape
    # In units of ε; a second copy, so that both sums run along memory.
    by_row = cost / -eps
    by_column = by_row.transpose(1, 2).contiguous()
    row_work, column_work = (None if is_transformed(part) else torch.empty_like(part) for part in (by_row, by_column))
    u, v = by_row.new_zeros(len(cost), n), by_row.new_zeros(len(cost), m)
    running = torch.ones((), dtype=torch.bool, device=cost.device)
    for done in range(1, rounds + 1):
        before, v_before = u, v
        u = -math.log(n) - _log_sums(by_row, v, row_work)
        v = -math.log(m) - _log_sums(by_column, u, column_work)
        close = (u - before).abs().sum(1).mean() * eps < tolerance
        if can_inspect(close):
            if bool(close):
                break
            continue
        # An accelerator is asked once. Rounds after the last one change nothing.
        u, v, running = torch.where(running, u, before), torch.where(running, v, v_before), running & ~close
        if done == ASKED and not is_transformed(running) and not bool(running):
            break
    # The last v, exactly: as the exponential of a sum of large numbers the sums of columns would be off by per cents.
    return (by_column + u.unsqueeze(1)).softmax(2).transpose(1, 2) / m


def _log_sums(logs: Tensor, potential: Tensor, work: Tensor | None) -> Tensor:
    """``[B, n]``: log Σ_j exp(logs[B, n, j] + potential[B, j]), in the memory of ``work`` if there is any."""
    work = torch.add(logs, potential.unsqueeze(1), out=work)
    top = work.amax(2)
    # Below e⁻⁸⁰ a term counts for nothing, but as a denormal number it would slow the rounds down, up to fourteen times.
    work.sub_(top.unsqueeze(2)).clamp_min_(-80.0).exp_()
    return top + work.sum(2).log_()


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """``[B, n, m]``: ‖a_i − b_j‖² between the columns of ``a [B, C, n]`` and ``b [B, C, m]``."""
    # About a common point near both, since the squares of a large shared offset would drown the differences.
    middle = a.mean(2, keepdim=True)
    a, b = a - middle, b - middle
    squares = a.square().sum(1).unsqueeze(2) + b.square().sum(1).unsqueeze(1)
    return torch.baddbmm(squares, a.transpose(1, 2), b, alpha=-2).relu_()
