"""The masks of Puzzle Mix: costs of blocks and borders, and all K levels by one cut per pair.

A mask gives every block one of L = d + 1 levels v ∈ {0 … d}; v/d is the partner's share there. The
mask minimizes

    E(v) = Σ_i [ v_i/d · cost_i − η/N · (v_i · logit λ + log C(d, v_i)) ]
         + Σ_(ij) w_ij |v_i − v_j|^q / d^q

over the grid of N blocks. cost_i is the saliency lost by showing the partner in block i, w_ij is
the weight of the edge between neighbors, and q is 1, 2 or 4. The binomial prior makes λ enter only
as one slope, shared by all blocks and levels.
"""

from collections.abc import Sequence
from math import comb, log, sqrt
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...core.checks import can_inspect, check_choice
from ...core.compiled import has_numba, in_chunks, load_kernels
from ...core.devices import downloaded
from ...geometry.grid import block_means, cut_finer
from .rof import MAX_SOLVER_BYTES, CutProblem, rof_levels

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
LabelCost = Literal["l1", "l2", "l4"]
Backend = Literal["auto", "torch"]
OutOfRange = Literal["refuse", "clamp"]

SCALE = 2.0**36
"""Costs are rounded to multiples of 2⁻³⁶, so that optima, ties and their order in λ are exact."""
MAX_ENERGY = 2.0**62
MIN_SHARE = 1e-7
"""Minimum distance of λ from 0 and 1, where the slope would be infinite."""
PIXEL_TOLERANCE = 1e-3
"""Allowed rounding error of pixels after normalization is undone."""


class CutTerms(NamedTuple):
    """The terms that do not depend on λ, in float64.

    Args:
        cost: ``[B, rows, columns]`` cost of showing the partner.
        down: ``[B, rows − 1, columns]`` weights to the block below, at least 0.
        right: ``[B, rows, columns − 1]`` weights to the block on the right, at least 0.
    """

    cost: Tensor
    down: Tensor
    right: Tensor


def slack_of(x: Tensor) -> float:
    """Return how far rounding may move pixels of x outside their range."""
    return PIXEL_TOLERANCE + torch.finfo(x.dtype).eps


def cut_terms(
    x: Tensor,
    partner: Tensor,
    saliency: Tensor,
    *,
    beta: float = 1.2,
    gamma: float = 0.5,
    neighborhood: int = 4,
    std: float | Sequence[float] | None = None,
    out_of_range: OutOfRange = "refuse",
) -> CutTerms:
    """Compute costs and weights of a batch.

    Let b = β / (16 √N), and let D be the mean color difference, times ``std``, of two blocks across
    their border. Showing the partner costs the saliency that it hides plus bγ/2 times the color
    differences that it adds. An edge has the weight
    b (1 + γ/2 (D(x, x') + D(x', x) − D(x, x) − D(x', x'))).

    Args:
        x: ``[B, C, H, W]``.
        partner: ``[B]`` indices.
        saliency: ``[B, rows, columns]``, each block's share of the sample's saliency.
        beta: Weight β of smoothness.
        gamma: Weight γ of color differences.
        neighborhood: Places next to a border over which colors are averaged. A block with less
            than twice as many places per side is averaged as a whole.
        std: Standard deviation that ``x`` was normalized with. None expects pixels in [0, 1].
        out_of_range: Weights may be negative if γ times the range of ``std · x`` exceeds 1. In this
            case, ``refuse`` raises an error and ``clamp`` sets negative weights to 0.

    Returns:
        The terms, on the CPU.

    Raises:
        ValueError: If pixels are out of range.
    """
    seen = downloaded(*seen_colors(x, saliency.shape[1:], neighborhood), saliency)
    return terms_of(x, partner, *seen, beta=beta, gamma=gamma, std=std, out_of_range=out_of_range)


def seen_colors(x: Tensor, grid: Sequence[int], neighborhood: int) -> tuple[Tensor, Tensor]:
    """Return mean colors in cells of about ``neighborhood`` places, and the bounds of x."""
    x = x.detach()
    cells = [
        cut_finer(side, count, neighborhood) for side, count in zip(x.shape[2:], grid, strict=True)
    ]
    # Bounds of pixels do not depend on the grid. On a GPU, channel bounds save a second transfer.
    bounds = x.aminmax() if can_inspect(x) else (x.amin((0, 2, 3)), x.amax((0, 2, 3)))
    return block_means(x.float(), (cells[0], cells[1])), torch.stack(list(bounds)).reshape(2, -1)


def terms_of(
    x: Tensor,
    partner: Tensor,
    color: Tensor,
    bounds: Tensor,
    saliency: Tensor,
    *,
    beta: float,
    gamma: float,
    std: float | Sequence[float] | None,
    out_of_range: OutOfRange,
) -> CutTerms:
    """Compute :func:`cut_terms` from the results of :func:`seen_colors`, on the CPU."""
    rows, columns = saliency.shape[1:]
    deviation = torch.as_tensor(1.0 if std is None else std, dtype=torch.float32, device="cpu")
    if out_of_range == "refuse":
        _check_range(x.detach(), bounds, gamma, deviation, normalized=std is not None)
    color, saliency = color * deviation.reshape(-1, 1, 1), saliency.to(torch.float64)
    b = beta / (16 * sqrt(rows * columns))
    cost = saliency - saliency[partner]
    weights = []
    for axis in (2, 3):
        color, cost = (color, cost) if axis == 2 else (color.transpose(2, 3), cost.transpose(1, 2))
        blocks = cost.shape[1]
        deep = color.shape[2] // blocks
        before, after = color[:, :, deep - 1 : -1 : deep], color[:, :, deep::deep]
        across = cost.shape[2]
        same = _difference(before, after, across)
        own_pair = _difference(before, after[partner], across)
        pair_own = _difference(before[partner], after, across)
        pair_pair = same[partner]
        weights.append(b * (1 + gamma / 2 * (own_pair + pair_own - same - pair_pair)))
        cost = cost.clone()
        # The first block of an edge is before the border, the second after it.
        cost[:, :-1] += b * gamma / 2 * (pair_own + pair_pair - own_pair - same)
        cost[:, 1:] += b * gamma / 2 * (own_pair + pair_pair - pair_own - same)
    return CutTerms(
        cost.transpose(1, 2), weights[0].clamp(min=0), weights[1].transpose(1, 2).clamp(min=0)
    )


def _difference(before: Tensor, after: Tensor, blocks: int) -> Tensor:
    """``[B, borders, blocks]``: the mean of |before − after| over channels and cells."""
    apart = (before - after).abs().mean(1)
    cells = apart.shape[2] // blocks
    return apart.reshape(*apart.shape[:2], blocks, cells).mean(-1).to(torch.float64)


def _check_range(x: Tensor, bounds: Tensor, gamma: float, std: Tensor, *, normalized: bool) -> None:
    low, high = float(bounds[0].min()), float(bounds[1].max())
    slack = slack_of(x)
    if not normalized and not -slack <= low <= high <= 1 + slack:
        raise ValueError(
            f"x must be pixels in 0 … 1, got {low:.4g} … {high:.4g}: pass std= if x is normalized, "
            "or out_of_range='clamp' for values without bounds"
        )
    widest = float(((bounds[1] - bounds[0]).float() * std).max())
    if gamma * widest > 1 + slack and can_inspect(x):
        widest = float(
            ((x.amax((0, 2, 3)) - x.amin((0, 2, 3))).float() * std).max()
        )  # channel by channel, which is slower
    if gamma * widest > 1 + slack:
        raise ValueError(
            f"gamma times the range of the pixels must be at most 1, got {gamma:g} · {widest:.4g}: "
            "std · x + mean should be pixels in 0 … 1; lower gamma or pass out_of_range='clamp'"
        )


def quantized(terms: CutTerms, lam: Tensor, labels: int, eta: float, cost: LabelCost) -> CutProblem:
    """Add the prior of λ and round to integers.

    Base and slope are rounded separately, so that masks nest.

    Args:
        terms: Costs and weights.
        lam: ``[K, 1 or B]``.
        labels: Number of levels of a mask.
        eta: Weight of the prior.
        cost: Power of the smoothness term.

    Returns:
        The problem in integers.

    Raises:
        ValueError: If energies do not fit 64 bits.
    """
    d, power = labels - 1, int(cost[1])
    weight = eta / terms.cost[0].numel() * SCALE
    # NumPy calls are cheaper than torch calls on arrays this small.
    costs, down, right, shares = (
        part.cpu().numpy() for part in (*terms, lam.detach().to(torch.float64))
    )
    shares = shares.clip(MIN_SHARE, 1 - MIN_SHARE)
    prior = np.array([log(comb(d, p + 1)) - log(comb(d, p)) for p in range(d)]) * weight
    base = costs[:, None] * (SCALE / d) - prior[:, None, None]
    down, right = down * (SCALE / d**power), right * (SCALE / d**power)
    slope = np.broadcast_to(np.log(shares / (1 - shares)) * weight, (len(shares), len(costs)))
    _check_size(base, slope, down, right, d**power)
    rounded = [
        np.rint(part).astype(np.int64, order="C")
        for part in (base, down.clip(0), right.clip(0), slope)
    ]
    bend = (1, *((gap + 1) ** power - 2 * gap**power + (gap - 1) ** power for gap in range(1, d)))
    base_, down_, right_, slope_ = map(torch.from_numpy, rounded)
    return CutProblem(base_, down_, right_, slope_, bend)


def _check_size(base: Array, slope: Array, down: Array, right: Array, steepest: int) -> None:
    """Raise ValueError unless every sum that the solvers compute fits 64 bits."""
    largest = np.abs(base).sum((1, 2, 3)) + base[0].size * np.abs(slope).max(0)
    largest = (
        largest + 2 * steepest * (np.abs(down).sum((1, 2)) + np.abs(right).sum((1, 2)))
    ).max()
    if not largest < MAX_ENERGY:
        raise ValueError(
            f"the mask energy is too large to be solved exactly, got {largest / SCALE:.3g}: "
            "check that x and saliency are finite and that beta and eta are not huge"
        )


MAX_BLOCKS = 32
"""Maximum number of blocks per side: a row must fit into half a 64-bit word of the kernel."""
MAX_ROOM_BYTES = 1 << 24
"""Memory for the arcs of the pairs that a thread prepares at once."""
MIN_NODES_PER_THREAD = 20_000
"""Minimum work per thread; smaller tasks cost more to start than they save."""


def solve_masks(
    terms: CutTerms,
    lam: Tensor,
    *,
    labels: int = 3,
    eta: float = 0.2,
    cost: LabelCost = "l2",
    threads: int | None = None,
    backend: Backend = "auto",
    device: torch.device | None = None,
) -> Tensor:
    """Find the smallest mask that minimizes the energy, for every λ.

    Levels never decrease with λ. λ = 0 gives level 0 everywhere, λ = 1 gives ``labels`` − 1. A mask
    depends only on λ and on the terms of its pair.

    Args:
        terms: Costs and weights.
        lam: ``[K, 1 or B]``, in any order.
        labels: Number of levels of a mask.
        eta: Weight of the prior.
        cost: Power of the smoothness term: ``l1``, ``l2`` or ``l4``.
        threads: Maximum number of threads; None uses torch's number.
        backend: ``auto`` uses the compiled solver if numba is installed. ``torch`` uses
            :func:`multimix.methods.puzzlemix.rof.rof_levels`, whose memory does not grow with the
            square of the grid.
        device: Device of the torch solver; None uses the terms' device.

    Returns:
        ``[K, B, rows, columns]`` uint8 levels.

    Raises:
        ValueError: If an option is invalid or the problem is too large.
    """
    check_choice("cost", cost, get_args(LabelCost))
    check_choice("backend", backend, get_args(Backend))
    check_labels_option(labels, cost)
    if max(terms.cost.shape[1:]) > MAX_BLOCKS:
        got = list(terms.cost.shape[1:])
        raise ValueError(f"blocks must be at most {MAX_BLOCKS} per side, got a grid of {got}")
    problem = quantized(terms, lam, labels, eta, cost)
    if backend == "torch" or not has_numba():
        levels = rof_levels(problem, device=device or terms.cost.device).levels
    else:
        levels = problem_levels(problem, threads=threads)
    share = np.broadcast_to(lam.detach().cpu().numpy(), levels.shape[:2])
    levels.numpy()[share <= 0] = 0
    levels.numpy()[share >= 1] = labels - 1
    return levels


def check_labels_option(labels: int, cost: LabelCost) -> None:
    """Raise ValueError unless masks can have ``labels`` levels with this cost."""
    # With l4, a step costs d⁻⁴ times the weight: rounding is too coarse for more labels.
    max_labels = 32 if cost == "l4" else 256
    if not isinstance(labels, int) or not 2 <= labels <= max_labels:
        raise ValueError(
            f"labels must be an integer in 2 … {max_labels} with cost={cost!r}, got {labels!r}"
        )


def problem_levels(problem: CutProblem, *, threads: int | None = None) -> Tensor:
    """Solve a problem in integers by minimum cuts, on the CPU.

    Args:
        problem: The energies.
        threads: Maximum number of threads; None uses torch's number.

    Returns:
        ``[K, B, rows, columns]`` uint8: the smallest minimizers.

    Raises:
        ImportError: If numba is not installed.
        ValueError: If a thread would need more than a gigabyte.
    """
    solver = load_kernels(f"{__package__}.graphcut_kernel", "The minimum cut of PuzzleMix")
    batch, steps, rows, columns = problem.base.shape
    blocks, words = rows * columns, -(-rows * columns // 64)
    layer_words = (steps * blocks + 2) * steps * (words + 2)
    room_words = steps * steps * 4 * (blocks + words)
    memory = 8 * (layer_words + room_words)
    if memory > MAX_SOLVER_BYTES:
        raise ValueError(
            f"labels={steps + 1} on {rows} × {columns} blocks need {memory / 2**30:.1f} GB for "
            f"each thread, more than {MAX_SOLVER_BYTES / 2**30:g}: use fewer labels or blocks, or "
            "backend='torch'"
        )
    base, down, right = (part.numpy() for part in problem[:3])
    slope = np.ascontiguousarray(problem.slope.numpy().T)
    order = np.argsort(-slope, axis=1, kind="stable")
    reached = np.empty((batch, slope.shape[1], steps * words), np.uint64)
    gap = np.subtract.outer(np.arange(steps), np.arange(steps))
    capacity = np.triu(np.array(problem.bend)[abs(gap)])
    crossed = steps > 1 and problem.bend[1] > 0
    pairs_at_once = max(1, MAX_ROOM_BYTES // (8 * room_words))

    def solve(start: int, stop: int) -> None:
        layers, asking = np.zeros(layer_words, np.uint64), np.zeros(steps * words, np.uint64)
        for low in range(start, stop, pairs_at_once):
            pairs = slice(low, min(low + pairs_at_once, stop))
            room = _arc_capacities(down[pairs], right[pairs], capacity)
            solver.cut_pairs(
                base[pairs].reshape(-1, steps * blocks).copy(),
                slope[pairs],
                order[pairs],
                room.reshape(len(room), -1),
                np.ascontiguousarray(_as_words(room > 0).swapaxes(-1, -2)).reshape(len(room), -1),
                layers,
                asking,
                reached[pairs],
                steps,
                columns,
                crossed,
            )

    in_chunks(solve, batch, threads, max(1, MIN_NODES_PER_THREAD // (steps * blocks)))
    in_bytes = reached.view(np.uint8).reshape(batch, -1, steps, 8 * words)
    bits = np.unpackbits(in_bytes, axis=3, count=blocks, bitorder="little")
    levels = bits.sum(2, dtype=np.uint8).reshape(batch, -1, rows, columns)
    return torch.from_numpy(np.ascontiguousarray(levels.swapaxes(0, 1)))


def _arc_capacities(down: Ints, right: Ints, capacity: Ints) -> Ints:
    """``[B, steps, steps, 4, N]``: from a level to the same or a higher level of each neighbor."""
    batch, rows, columns = len(down), right.shape[1], down.shape[2]
    room = np.zeros((batch, *capacity.shape, 4, rows, columns), np.int64)
    room[..., 0, :, :-1] = room[..., 1, :, 1:] = right[:, None, None] * capacity[..., None, None]
    room[..., 2, :-1, :] = room[..., 3, 1:, :] = down[:, None, None] * capacity[..., None, None]
    return room.reshape(*room.shape[:4], -1)


def _as_words(flags: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """``[…, N]`` as bits of ``[…, words]``, lowest first."""
    packed = np.packbits(flags, axis=-1, bitorder="little")
    in_bytes = np.zeros((*flags.shape[:-1], 8 * -(-flags.shape[-1] // 64)), np.uint8)
    in_bytes[..., : packed.shape[-1]] = packed
    return in_bytes.view(np.uint64)
