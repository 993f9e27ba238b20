"""Masks in torch on any device, for all pairs and all K at once, each with an optimality proof.

Taking node (p, i) of the level graph means "block i is above level p" and costs base − slope. For
neighbors i and j, the arc from (p, i) to (q, j), q ≤ p, costs bend[p − q] · weight if (p, i) is
taken and (q, j) is not. All nodes share the slope, so the cuts for all λ are thresholds of one
function (Hochbaum 2001; Chambolle and Darbon 2009)

    u = argmin ½‖u + base‖² + Σ_arcs capacity · max(u_a − u_b, 0),    (p, i) is taken ⇔ u > −slope.

The dual is a projection onto flows z within their capacities, with u = −base − div z. For any z,
Σ min(0, −slope − u) is a lower bound of the energy. A flow thus proves a mask or bounds its gap.
"""

from math import frexp
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.compiled import log

MAX_SOLVER_BYTES = 2**30
"""Memory limit of a solver; its use grows with the square of the number of labels."""
ITERATIONS_PER_PROOF = 25
ITERATIONS_PER_RESTART_CHECK = 5
MAX_ITERATIONS = 4000
BYTES = 110
"""Memory per pair, block and pair of levels."""
MAX_FLOW_BITS = 20
"""Maximum number of fractional bits when flows are rounded for a proof."""


class CutProblem(NamedTuple):
    """The energy of :mod:`.masks` for B pairs and K λ, in int64 on the CPU.

    Raising block i from level p to p + 1 costs ``base[b, p, i] − slope[k, b]``. Neighbors that are
    D levels apart cost their weight times D^q. As a cut, this cost is a sum of weight times
    ``bend[p − p']`` over levels p that one block has reached and p' ≤ p that the other has not.

    Args:
        base: ``[B, d, rows, columns]`` costs, ascending in the level.
        down: ``[B, rows − 1, columns]`` weights to the block below.
        right: ``[B, rows, columns − 1]`` weights to the block on the right.
        slope: ``[K, B]``, the part of the cost that depends on λ.
        bend: ``[d]``, second differences of D^q.
    """

    base: Tensor
    down: Tensor
    right: Tensor
    slope: Tensor
    bend: tuple[int, ...]

    @property
    def steps(self) -> int:
        """The number d of levels above 0."""
        return self.base.shape[1]


def problem_energy(problem: CutProblem, levels: Tensor) -> Tensor:
    """Compute the energy of masks; the energy of a zero mask is 0.

    Args:
        problem: The energies.
        levels: ``[K, B, rows, columns]``.

    Returns:
        ``[K, B]`` int64.
    """
    levels, d = levels.to(torch.int64), problem.steps
    reached = levels.unsqueeze(2) > torch.arange(d, device=levels.device)[:, None, None]
    unary = ((problem.base - problem.slope[:, :, None, None, None]) * reached).flatten(2).sum(2)
    gaps = [sum((gap - k) * problem.bend[k] for k in range(gap)) for gap in range(d + 1)]
    apart = torch.tensor(gaps, device=levels.device)
    down = (problem.down * apart[levels.diff(dim=2).abs()]).flatten(2).sum(2)
    right = (problem.right * apart[levels.diff(dim=3).abs()]).flatten(2).sum(2)
    return unary + down + right


class Certified(NamedTuple):
    """Masks with proofs, on the CPU.

    Flows are rounded to fixed-point numbers within their capacities, and bounds and energies are
    integers, so proofs do not depend on floating-point rounding. A gap below 1 proves that the
    energy is minimal. If every taken node exceeds its threshold by more than the gap, the mask is
    the smallest minimizer.

    Args:
        levels: ``[K, B, rows, columns]`` uint8.
        gap: ``[K, B]`` float64, energy minus lower bound, in the problem's integers.
        proven: ``[K, B]``, whether the mask is the smallest of all optimal ones.
    """

    levels: Tensor
    gap: Tensor
    proven: Tensor


def rof_levels(
    problem: CutProblem,
    *,
    device: torch.device | str | None = None,
    max_iterations: int = MAX_ITERATIONS,
) -> Certified:
    """Find the smallest optimal masks by accelerated projected gradient on the dual.

    Pairs are solved in groups that fit into one gigabyte. A pair is finished once its K masks are
    proven. The masks of a pair are thresholds of one function, so they nest in λ even if unproven.
    Without float64 (MPS), proofs are equally strict, but more masks stay unproven: those with a
    node closer to its threshold than 2·10⁻⁶ of the largest cost.

    Args:
        problem: The energies.
        device: Device to compute on; None uses the problem's device.
        max_iterations: Iterations before unproven masks are returned and logged.

    Returns:
        Masks, gaps and proofs.
    """
    device = problem.base.device if device is None else torch.device(device)
    batch, _, rows, columns = problem.base.shape
    result = Certified(
        problem.slope.new_zeros(len(problem.slope), batch, rows, columns, dtype=torch.uint8),
        torch.zeros_like(problem.slope, dtype=torch.float64),
        torch.zeros_like(problem.slope, dtype=torch.bool),
    )
    at_once = max(1, MAX_SOLVER_BYTES // (BYTES * problem.steps**2 * rows * columns))
    for start in range(0, batch, at_once):
        pairs = torch.arange(start, min(start + at_once, batch), device=problem.base.device)
        flow, done = _Flow(_pairs_of(problem, pairs), device), 0
        while len(pairs):
            iterations = min(ITERATIONS_PER_PROOF, max_iterations - done)
            flow.advance(iterations)
            done += iterations
            solved = flow.certified(_pairs_of(problem, pairs))
            for values, part in zip(result, solved, strict=True):
                values[:, pairs] = part
            if done >= max_iterations:
                break
            unproven = (~solved.proven.all(0)).nonzero().flatten()
            if len(unproven) < len(pairs):
                pairs = pairs[unproven]
                flow.keep(unproven.to(device))
    _report(problem, result, max_iterations)
    return result


class _Flow:
    """Flows of all pairs; the last axis is the pair.

    ``z[0]`` flows down and ``z[1]`` right. Their first axes are the levels p on the near side and q
    on the far side. A flow is at least 0 for q < p, at most 0 for q > p, where the arc points back,
    and has either sign for q = p.
    """

    def __init__(self, problem: CutProblem, device: torch.device) -> None:
        dtype = _float_of(device)
        self.low_table, self.high_table = _capacities(problem.bend)
        self.bits, self.unit = _fixed_point(problem, self.high_table - self.low_table)
        # On a flat region, u is a mean of at most numel integers. Nodes closer to the threshold
        # than half the smallest possible distance, or than rounding errors, are ties: not taken.
        rounding = 16 * torch.finfo(dtype).eps / self.unit
        self.tie = int(max(1 / (2 * problem.base[0].numel()), rounding) * 2**self.bits)
        arcs = max(1, int((self.high_table > self.low_table).sum(1).max()))
        self.step = 1 / (8 * arcs)  # 1/‖div‖²: a node has ``arcs`` arcs to each of its 4 neighbors
        self.data = _pairs_last(-problem.base, device, dtype) * self.unit
        weights = [
            _pairs_last(weight, device, dtype) * self.unit
            for weight in (problem.down, problem.right)
        ]
        self.low = [_arc_table(self.low_table, weight) for weight in weights]
        self.high = [_arc_table(self.high_table, weight) for weight in weights]
        self.z = [torch.zeros_like(high) for high in self.high]
        self.ahead = [torch.zeros_like(high) for high in self.high]
        self.pace = torch.ones(len(problem.base), device=device, dtype=dtype)

    def advance(self, iterations: int) -> None:
        """Run FISTA (Beck and Teboulle 2009), restarted where momentum points uphill.

        The restart rule follows O'Donoghue and Candès (2015).
        """
        spare = [torch.empty_like(z) for z in self.z]
        for count in range(1, iterations + 1):
            u = _minus_divergence(self.data, self.ahead)
            for axis, (ahead, new) in enumerate(zip(self.ahead, spare, strict=True)):
                near, far = _both_sides(u, axis)
                torch.sub(near.unsqueeze(1), far.unsqueeze(0), out=new)
                torch.add(ahead, new, alpha=self.step, out=new)
                torch.clamp(new, self.low[axis], self.high[axis], out=new)
            pace = (
                self.pace
                if count % ITERATIONS_PER_RESTART_CHECK
                else self.pace.masked_fill(self._uphill(spare), 1.0)
            )
            self.pace = (1 + (1 + 4 * pace * pace).sqrt()) / 2
            momentum = 1 + (pace - 1) / self.pace
            for z, ahead, new in zip(self.z, self.ahead, spare, strict=True):
                torch.lerp(z, new, momentum, out=ahead)
            self.z, spare = spare, self.z

    def keep(self, pairs: Tensor) -> None:
        """Drop all other pairs."""
        self.data, self.pace = self.data[..., pairs], self.pace[pairs]
        for part in (self.low, self.high, self.z, self.ahead):
            part[:] = [each[..., pairs] for each in part]

    def certified(self, problem: CutProblem) -> Certified:
        """Compute masks, gaps and proofs from the current flow."""
        device = self.data.device
        flows = []
        for axis, weight in enumerate((problem.down, problem.right)):
            weight = _pairs_last(weight, device, torch.int64) << self.bits
            low, high = _arc_table(self.low_table, weight), _arc_table(self.high_table, weight)
            z = (
                (self.z[axis] * (2.0**self.bits / self.unit))
                .round()
                .to(torch.int64)
                .clamp(low, high)
            )
            # Saturated arcs get their exact integer capacity, free of float rounding.
            z = torch.where(self.z[axis] >= self.high[axis], high, z)
            flows.append(torch.where(self.z[axis] <= self.low[axis], low, z))
        u = _minus_divergence(_pairs_last(-problem.base, device, torch.int64) << self.bits, flows)
        above = u + (problem.slope.to(device) << self.bits)[:, None, None, None]
        taken = above > self.tie
        levels = taken.sum(1, dtype=torch.uint8).movedim(-1, 1).cpu()
        bound = -above.clamp(min=0).flatten(1, -2).sum(1).cpu()
        margin = (
            above.masked_fill(~taken, torch.iinfo(torch.int64).max).flatten(1, -2).amin(1).cpu()
        )
        gap = (problem_energy(problem, levels) << self.bits) - bound
        return Certified(
            levels, gap.double() / 2.0**self.bits, (gap < 1 << self.bits) & (gap < margin)
        )

    def _uphill(self, flows: list[Tensor]) -> Tensor:
        """Return the pairs whose step from ``z`` to ``flows`` opposes the gradient at ``ahead``."""
        product = torch.zeros_like(self.pace)
        for z, ahead, new in zip(self.z, self.ahead, flows, strict=True):
            product += ((ahead - new) * (new - z)).flatten(0, -2).sum(0)
        return product > 0


def _capacities(bend: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Compute bounds of the flow between two levels, ``[d, d]``, in units of the edge weight."""
    levels = torch.arange(len(bend), device="cpu")
    apart = levels[:, None] - levels
    capacity = torch.tensor(bend, device="cpu")[apart.abs()]
    return -capacity * (apart <= 0), capacity * (apart >= 0)


def _fixed_point(problem: CutProblem, table: Tensor) -> tuple[int, float]:
    """Return fractional bits that keep sums below 2⁶², and the factor that scales costs to 1."""
    base, slope = problem.base.double().abs(), problem.slope.double().abs()
    total = base.flatten(1).sum(1).max() + base[0].numel() * slope.max()
    largest = base.max()
    for weight in (problem.down, problem.right):
        if weight.numel():
            total = total + 2 * table.sum() * weight.double().flatten(1).sum(1).max()
            largest = torch.maximum(largest, weight.max().double() * table.max())
    bits = min(MAX_FLOW_BITS, max(0, 62 - frexp(float(total))[1]))
    return bits, 2.0 ** -frexp(float(largest))[1]


def _arc_table(table: Tensor, weight: Tensor) -> Tensor:
    return table.to(weight)[:, :, None, None, None] * weight


def _both_sides(u: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return views of ``u [d, rows, columns, B]`` on both sides of every border across ``axis``."""
    length = u.shape[1 + axis] - 1
    return u.narrow(1 + axis, 0, length), u.narrow(1 + axis, 1, length)


def _minus_divergence(data: Tensor, flows: list[Tensor]) -> Tensor:
    """Compute ``data`` minus the net outflow of every node."""
    u = data.clone()
    for axis, z in enumerate(flows):
        near, far = _both_sides(u, axis)
        near -= z.sum(1)
        far += z.sum(0)
    return u


def _float_of(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on MPS, which lacks float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def _pairs_last(values: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return values.movedim(0, -1).to(device, dtype).contiguous()


def _pairs_of(problem: CutProblem, pairs: Tensor) -> CutProblem:
    base, down, right = (part[pairs] for part in problem[:3])
    return CutProblem(base, down, right, problem.slope[:, pairs], problem.bend)


def _report(problem: CutProblem, result: Certified, max_iterations: int) -> None:
    """Log how many masks are not proven, and the largest gap."""
    unproven = ~result.proven
    if not bool(unproven.any()):
        return
    bound = problem_energy(problem, result.levels).double() - result.gap
    log.warning(
        "%d of %d masks are not proven optimal after %d iterations; the largest gap to a lower "
        "bound is %.1e of that bound",
        int(unproven.sum()),
        unproven.numel(),
        max_iterations,
        float((result.gap / bound.abs().clamp(min=1))[unproven].max()),
    )
