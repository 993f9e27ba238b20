"""The energy of masks in integers, which make optima and ties exact."""

from typing import NamedTuple

import torch
from torch import Tensor

MAX_SOLVER_BYTES = 2**30
"""Memory limit of a solver; its use grows with the square of the number of labels."""


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
