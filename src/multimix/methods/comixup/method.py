"""Co-Mixup (Kim et al., 2021) with K priors: parts of the batch mixed jointly, by saliency.

A part has m inputs and m outputs on a grid of N blocks. Output j shows at block i the mixture o_ji
of inputs, one of them or two half and half; c_j = Σ_i o_ji. With b = β/N, g = γ/N, t = τN,
compatibility A and the prior α the sweeps minimize

    Σ_ji o_ji · u_i + b/2 Σ_j Σ_{i~i'} ‖o_ji − o_ji'‖² + g Σ_j c_j · push(A p_j)
    p_j = Σ_{j' ≠ j} c_j'
    u_ki = −s_k(i) − η/N · log(α_k + 10⁻⁸)

where push(q) is q where it exceeds t and 0 elsewhere (``hard``), or the excess over t (``soft``).
Each output is solved given the others, with twice their push as a cost of each input: the gradient
if there were no threshold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from ...core.checks import check_number, check_share, check_whole, checked_saliency
from ...core.compiled import in_chunks, load_kernels
from ...core.devices import downloaded, full_precision, widest_float
from ...core.mixing import like, mix
from ...core.plan import Plan
from ...core.sampling import Sampler, check_alpha, draw_path
from ...geometry.grid import areas, as_plane, block_saliency, borders, grid_of, spread
from ..base import Method
from ..path import CleanLossMethod
from ..puzzlemix.method import Blocks, checked_blocks
from ..registry import register
from .board import new_board

FLOOR = 1e-8
"""Keeps the logarithm of the prior finite."""
BONUS = 5e-4
"""Two inputs half and half cost that much less than the mean of both."""
TOLERANCE = 1e-6
MAX_INPUTS = 200
"""Inputs of a part: labels of a block are stored in one byte."""
MAX_CACHED_PLACES = 1 << 17
"""Places whose window sums are computed at once on a CPU."""
MAX_FRACTION_BITS, MAX_COST_BITS = 36, 52
"""Costs are multiples of 2⁻³⁶, or coarser if sums would need more bits; 8 more are for a label."""


@register(
    "comixup",
    aliases=("co-mixup", "comix"),
    published={
        "mixup_alpha": "alpha",
        "m_part": "part",
        "m_block_num": "blocks",
        "m_beta": "beta",
        "m_gamma": "gamma",
        "m_eta": "eta",
        "m_thres": "tau",
        "m_thres_type": "rule",
        "m_omega": "omega",
        "lam_dist": "omega",
        "m_niter": "sweeps",
        "set_resolve": "resolve",
        "clean_lam": "clean_weight",
    },
    shared="saliency pass, compatibility, grid; parts of 20 samples mixed together",
    order="none: K priors along a path, no order of masks",
    # Grids small enough to be solved exactly, as the oracle of the tests does.
    examples=(
        {"part": 3, "blocks": (3,)},
        {"blocks": (2, (3, 2)), "rule": "soft"},
    ),
    exceptions={
        "volumes": "blocks lie in rows and columns: signals and images only",
        "order in k": "the prior is a weak wish and outputs push each other: no order",
        "pairing": "no pair is drawn; the partner is read off the weights",
    },
)
@dataclass(frozen=True, kw_only=True)
class CoMixup(CleanLossMethod):
    """Co-Mixup: every block of x̂_k shows the sample of its part that is salient there, or two.

    Consecutive parts of the batch are mixed jointly into as many outputs, which differ from each
    other. The objective is at the top of :mod:`multimix.methods.comixup.method`. The solver needs
    numba (``multimix[solvers]``).

    Args:
        k: Number of interpolations per part.
        p: Probability that a batch is mixed.
        alpha: Parameter of the Dirichlet prior of the inputs' weights.
        sampler: How the path of priors is drawn: see :func:`multimix.random.sample_path`.
        part: Samples mixed jointly.
        blocks: Blocks per side, or (rows, columns). Of several one is drawn for the batch.
        beta: Weight of smoothness.
        gamma: Weight of the diversity of outputs.
        eta: Weight of the prior.
        tau: Share of an image that other outputs may show of an input at no cost.
        omega: Weight of the distance between salient places in the compatibility of inputs.
        window: Side of the window that a salient place is searched with.
        stride: Step of that search.
        sweeps: Sweeps over all outputs, as published.
        descent: Further sweeps that only accept what lowers the objective. Published: 0.
        soft_labels: Whether a block may show two samples half and half.
        resolve: Whether outputs of the same samples are asked to differ.
        rule: ``hard`` or ``soft`` threshold of diversity.
        precedence: ``intended`` applies the threshold after compatibility, ``reference`` before it,
            as the authors' code does.
        borders: ``objective`` takes the objective's distance between half-half labels,
            ``reference`` that of the authors' code.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        clean_scale: Scale of that loss: see :class:`multimix.methods.path.CleanLossMethod`.
        threads: Maximum number of threads. None is torch's.
    """

    alpha: float = 2.0
    sampler: Sampler = "iid"
    part: int = 20
    blocks: tuple[Blocks, ...] = (4,)
    beta: float = 0.32
    gamma: float = 1.0
    eta: float = 0.05
    tau: float = 0.83
    omega: float = 0.001
    window: int = 8
    stride: int = 1
    sweeps: int = 4
    descent: int = 1
    soft_labels: bool = True
    resolve: bool = True
    rule: Literal["hard", "soft"] = "hard"
    precedence: Literal["intended", "reference"] = "intended"
    borders: Literal["objective", "reference"] = "objective"
    threads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha(self.alpha)
        object.__setattr__(self, "blocks", checked_blocks(self.blocks))
        check_share("omega", self.omega)
        for name in ("beta", "gamma", "eta", "tau"):
            check_number(name, getattr(self, name))
        for name in ("part", "window", "stride", "sweeps"):
            check_whole(name, getattr(self, name))
        check_whole("descent", self.descent, 0)
        check_whole("threads", self.threads, none=True)
        for name in ("soft_labels", "resolve"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.part > MAX_INPUTS:
            raise ValueError(f"part must be at most {MAX_INPUTS}, got {self.part}")

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        return None if self.alpha == 0 else super().choose(generator=generator)

    def draw(self, x: Tensor, *, generator: Generator, saliency: Tensor) -> Plan:
        if x.ndim not in (3, 4):
            raise ValueError(
                f"CoMixup needs x of shape [B, C, length] or [B, C, H, W], got {list(x.shape)}"
            )
        size = as_plane(x.shape[2:])
        salient = checked_saliency(saliency, x).reshape(len(x), *size)
        edges = (*range(0, len(x), self.part), len(x))
        # Before the path, so that K changes neither the grid nor where outputs begin.
        drawn = self.blocks[int(torch.randint(len(self.blocks), (), generator=generator))]
        rows, columns = (drawn, drawn) if isinstance(drawn, int) else drawn
        grid = min(rows, size[0]), min(columns, size[1])
        count = torch.tensor(edges).diff()
        inputs = count.repeat_interleave(count)[:, None, None]
        uniform = torch.rand(len(x), *grid, dtype=torch.float64, generator=generator)
        shares, place = downloaded(
            block_saliency(salient, grid),
            salient_places(salient, window=self.window, stride=self.stride),
        )
        groups = Groups(
            saliency=shares,
            prior=tilted_priors(
                self.k, self.alpha, edges, sampler=self.sampler, generator=generator
            ),
            affinity=affinities(place, edges, omega=self.omega),
            start=(uniform * inputs).long(),
            edges=edges,
        )
        first, second = self.solve(groups)
        return ordered_plan(first, second, edges, x.shape[2:])

    def solve(self, groups: "Groups") -> tuple[Tensor, Tensor]:
        """Solve all parts for all K priors. A part depends on its own inputs only.

        Each of the K steps starts from the drawn labels, so that all have one distribution.

        Args:
            groups: The parts.

        Returns:
            The two inputs that every block of every output shows half and half, first ≤ second and
            equal where it is one, as ``[K, B, rows, columns]`` indices into the batch.

        Raises:
            ImportError: If numba is not installed.
        """
        solver = load_kernels(f"{__package__}.kernel", "CoMixup")
        saliency = groups.saliency.detach().cpu().double()
        batch, rows, columns = saliency.shape
        edges, blocks, weights = groups.edges, rows * columns, self._weights(solver, groups)
        # Lines along the shorter side keep the front of the elimination short.
        turned, length = columns > rows, min(rows, columns)

        def numbered(grid: Tensor) -> NDArray[Any]:
            return (grid.mT if turned else grid).reshape(batch, -1).contiguous().numpy()

        salient, start = numbered(saliency), numbered(groups.start.long())
        affinity = groups.affinity.double().numpy()
        tilt = (-self.eta / blocks * (groups.prior.double() + FLOOR).log()).numpy()
        beside = neighbors(blocks // length, length)
        shown = np.empty((2, len(tilt), batch, blocks), np.int64)

        def solve_parts(begin: int, end: int) -> None:
            for p in range(begin, end):
                rows_of_part = slice(edges[p], edges[p + 1])
                m = edges[p + 1] - edges[p]
                part = solver.new_part(start[rows_of_part], affinity[p, :m, :m], beside)
                board = new_board(blocks, m)
                for k in range(len(tilt)):
                    part.first[:] = part.second[:] = start[rows_of_part]
                    part.base[:] = (tilt[k, rows_of_part, None] - salient[rows_of_part]).T
                    part.whole[:] = np.rint(part.base.T * weights.scale)
                    solver.solve_part(part, board, weights)
                    # Inputs are counted within the part.
                    shown[0, k, rows_of_part] = part.first + edges[p]
                    shown[1, k, rows_of_part] = part.second + edges[p]

        in_chunks(solve_parts, len(edges) - 1, self.threads)
        grids = torch.from_numpy(shown).view(2, -1, batch, blocks // length, length)
        first, second = (grids.mT if turned else grids).contiguous()
        return first, second

    def _weights(self, solver: Any, groups: "Groups") -> Any:
        """The kernel's numbers, always of the same types: others would be compiled anew."""
        blocks = groups.saliency[0].numel()
        gamma = self.gamma / blocks
        inputs = groups.affinity.shape[1]
        least = float(groups.prior.min()) + FLOOR
        pushed = gamma * (1 + 2 * inputs * blocks * float(groups.affinity.abs().max()))
        largest = 1 + self.eta * abs(math.log(least)) + pushed + 4 * self.beta + BONUS
        return solver.Weights(
            beta=self.beta / blocks,
            gamma=gamma,
            tau=float(self.tau * blocks),
            bonus=BONUS,
            tolerance=TOLERANCE,
            sweeps=int(self.sweeps),
            rule=2 if self.rule == "soft" else int(self.precedence == "reference"),
            soft_labels=self.soft_labels,
            resolve=self.resolve,
            own_borders=self.borders == "objective",
            descent=int(self.descent),
            scale=2.0
            ** min(MAX_FRACTION_BITS, MAX_COST_BITS - math.ceil(math.log2(largest * blocks))),
        )


class Groups(NamedTuple):
    """Parts of a batch: inputs ``edges[p] … edges[p + 1] − 1`` belong to part p.

    Args:
        saliency: ``[B, rows, columns]``, the share of each block in a sample's saliency.
        prior: ``[K, B]``, the weight of each input in its part.
        affinity: ``[parts, m, m]``, compatibility, 0 where a part is smaller.
        start: ``[B, rows, columns]``, the input, counted within the part, that each output shows
            before the first sweep.
        edges: Where parts begin, and the batch size.
    """

    saliency: Tensor
    prior: Tensor
    affinity: Tensor
    start: Tensor
    edges: tuple[int, ...]


def compatibility(
    saliency: Tensor, edges: tuple[int, ...], *, omega: float, window: int = 8, stride: int = 1
) -> Tensor:
    """Compute A = (1 − ω) I + ω m Δ / ΣΔ, Δ the L1 distances between most salient windows.

    Args:
        saliency: ``[B, H, W]``.
        edges: Where parts begin, and the batch size.
        omega: ω.
        window: Side of the windows, at most that of the maps.
        stride: Step between windows.

    Returns:
        ``[parts, m, m]``. Δ counts as 0 if all windows of a part coincide.
    """
    place = salient_places(saliency, window=window, stride=stride)
    return affinities(place.cpu(), edges, omega=omega)


def salient_places(saliency: Tensor, *, window: int, stride: int) -> Tensor:
    """``[B, 2]``: row and column of the most salient window of each map, the first of several."""
    tall, wide = (min(window, side) for side in saliency.shape[1:])
    exact = widest_float(saliency.device)
    # On a CPU a few maps at a time, whose sums stay in the cache.
    maps_at_once = len(saliency)
    if saliency.device.type == "cpu":
        maps_at_once = max(1, MAX_CACHED_PLACES // saliency[0].numel())
    places = []
    for maps in torch.split(saliency, maps_at_once):
        rows = window_sums(maps.to(exact), 1, tall)[:, ::stride]
        sums = window_sums(rows, 2, wide)[:, :, ::stride]
        peak = sums.flatten(1).argmax(1)
        places.append(torch.stack([peak // sums.shape[2], peak % sums.shape[2]], 1))
    return torch.cat(places)


def window_sums(values: Tensor, axis: int, length: int) -> Tensor:
    """Sum each ``length`` neighbors along an axis by doubling: equal windows have equal sums."""
    count = values.shape[axis] - length + 1
    sums, start, size = None, 0, 1
    while True:
        if length & size:
            piece = values.narrow(axis, start, count)
            sums = piece if sums is None else sums + piece
            start += size
        if sums is not None and start == length:
            return sums
        rest = values.shape[axis] - size
        values = values.narrow(axis, 0, rest) + values.narrow(axis, size, rest)
        size *= 2


def affinities(place: Tensor, edges: tuple[int, ...], *, omega: float) -> Tensor:
    """:func:`compatibility` of samples whose most salient windows are at ``place [B, 2]``."""
    sizes = [high - low for low, high in pairwise(edges)]
    result = torch.zeros(len(sizes), max(sizes), max(sizes), dtype=torch.float64)
    for p, (size, places) in enumerate(zip(sizes, torch.split(place.double(), sizes), strict=True)):
        apart = (places[:, None] - places[None]).abs().sum(2)
        total = float(apart.sum())
        result[p, :size, :size] = (1 - omega) * torch.eye(size, dtype=torch.float64)
        if total > 0:
            result[p, :size, :size] += omega * size * apart / total
    return result


@lru_cache(maxsize=64)
def neighbors(lines: int, length: int) -> NDArray[np.int64]:
    """``[lines · length, 4]``: the blocks after, before, below and above each, −1 for none."""
    number = np.pad(np.arange(lines * length).reshape(lines, length), 1, constant_values=-1)
    around = (number[1:-1, 2:], number[1:-1, :-2], number[2:, 1:-1], number[:-2, 1:-1])
    return np.ascontiguousarray(np.stack(around, 2).reshape(-1, 4))


def tilted_priors(
    k: int, alpha: float, edges: Sequence[int], *, sampler: Sampler, generator: Generator
) -> Tensor:
    """Draw K priors of every part along a path.

    Input i of the first half of a part is paired with input i of the second half. A pair's weight
    is drawn once and divided by a path λ_1 < … < λ_K: weights of the first half fall with k, those
    of the second half rise. The last input of an odd part has no pair. With K = 1 the weights are
    Dirichlet(α, …, α).

    Args:
        k: Number of priors.
        alpha: α.
        edges: Where parts begin, and the batch size.
        sampler: How the path is drawn.
        generator: Source of random numbers.

    Returns:
        ``[K, B]``, with sum 1 in every part.
    """
    halves = [(high - low) // 2 for low, high in pairwise(edges)]
    lam = draw_path(k, alpha, None, max(1, sum(halves)), sampler, generator)
    pair = _log_gamma(sum(halves), 2 * alpha, generator)
    single = _log_gamma(len(halves), alpha, generator)
    rows, at = [], 0
    for p, half in enumerate(halves):
        pairs = slice(at, at + half)
        log = [pair[pairs] + torch.log1p(-lam[:, pairs]), pair[pairs] + lam[:, pairs].log()]
        if edges[p + 1] - edges[p] > 2 * half:
            log.append(single[p].expand(k, 1))
        rows.append(torch.cat(log, 1).softmax(1))
        at += half
    return torch.cat(rows, 1)


def ordered_plan(
    first: Tensor, second: Tensor, edges: Sequence[int], size: torch.Size
) -> "GroupPlan":
    """Order the outputs of every part greedily, such that row i shows much of sample i."""
    batch = first.shape[1]
    plan = GroupPlan(partner=torch.arange(batch), first=first, second=second, size=size)
    shares = plan.weights.sum(0)
    order = torch.arange(batch)
    for low, high in pairwise(edges):
        free_rows, free_inputs = set(range(low, high)), set(range(low, high))
        by_share = shares[low:high, low:high].flatten().argsort(descending=True, stable=True)
        for place in by_share.tolist():
            row, sample = low + place // (high - low), low + place % (high - low)
            if row in free_rows and sample in free_inputs:
                free_rows.remove(row)
                free_inputs.remove(sample)
                order[sample] = row
    others = shares[order].fill_diagonal_(0)
    largest, partner = others.max(1)
    return GroupPlan(
        partner=partner.where(largest > 0, torch.arange(batch)),
        first=first[:, order],
        second=second[:, order],
        size=size,
    )


def _log_gamma(count: int, shape: float, generator: Generator) -> Tensor:
    """log of Gamma(a) = Gamma(a + 1) · U^(1/a), which does not underflow for small a."""
    shapes = torch.full((count,), shape + 1, dtype=torch.float64)
    gamma = torch._standard_gamma(shapes, generator=generator)
    uniform = torch.rand(count, dtype=torch.float64, generator=generator)
    return gamma.log() + torch.log1p(-uniform) / shape


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupPlan(Plan):
    """Block by block one sample, or two of them half and half.

    There is no pair: ``lam`` and ``mask`` are the share of all samples but the row's own, and the
    target follows ``weights``. ``partner`` is the other sample with the largest share over all K.

    Args:
        first: ``[K, B, rows, columns]`` indices into the batch.
        second: The same; equal to ``first`` where one sample is shown.
    """

    first: Tensor
    second: Tensor
    has_places = True

    @property
    def weights(self) -> Tensor:
        """``[K, B, B]``: the share of every sample (last axis) in every output; rows sum to 1."""
        device = self.first.device
        places = areas(as_plane(self.size), grid_of(self.first), device).to(widest_float(device))
        part = (places / (2 * self.size.numel())).flatten()
        shares = part.new_zeros(*self.first.shape[:2], len(self.partner))
        for shown in (self.first, self.second):
            shares.scatter_add_(2, shown.flatten(2), part.expand(*shown.shape[:2], -1))
        return shares

    @property
    def lam(self) -> Tensor:
        return (1 - self.weights.diagonal(dim1=1, dim2=2)).clamp(min=0)

    @property
    def mask(self) -> Tensor:
        row = torch.arange(len(self.partner), device=self.first.device)[:, None, None]
        others = 0.5 * ((self.first != row).float() + (self.second != row).float())
        return spread(others, as_plane(self.size)).reshape(*others.shape[:2], 1, *self.size)

    def _mix_target(self, target: Tensor) -> Tensor:
        exact = torch.promote_types(target.dtype, torch.float32)
        with full_precision(target):  # autocast would round the shares to eight bits
            mixed = self.weights.to(exact) @ target.to(exact).flatten(1)
        return mixed.to(target.dtype).reshape(-1, *target.shape[1:])

    def _mix(self, z: Tensor) -> Tensor:
        plane = z.reshape(*z.shape[:2], *as_plane(self.size))
        first, second = (shown.flatten(0, 1) for shown in (self.first, self.second))
        weight = 0.5 * (first != second)[..., None, None, None]
        sides = zip(plane.shape[2:], grid_of(first), strict=True)
        down, across = (list(pairwise(borders(side, count))) for side, count in sides)
        lines = []
        for r, (top, bottom) in enumerate(down):
            blocks = [plane[:, :, top:bottom, left:right] for left, right in across]
            mixed = [
                mix(block[first[:, r, c]], block[second[:, r, c]], weight[:, r, c])
                for c, block in enumerate(blocks)
            ]
            lines.append(torch.cat(mixed, 3))
        return like(torch.cat(lines, 2).reshape(-1, *z.shape[1:]), z)
