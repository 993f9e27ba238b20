"""The energy of masks in integers, in which optima and ties are exact."""

from typing import NamedTuple

import torch
from torch import Tensor

MAX_SOLVER_BYTES = 2**30
"""Memory of a solver, which grows with the square of the number of labels."""


class CutProblem(NamedTuple):
    """The energy of :mod:`.masks` for B pairs and K λ, in int64 on the CPU.

    Raising block i from level p to p + 1 costs ``base[b, p, i] − slope[k, b]``. Two neighbors D
    levels apart pay their weight times D^q. In terms of levels that is a cut: ``bend[p − p']``
    times the weight for every level p that one has reached and every p' ≤ p that the other has not.

    Args:
        base: ``[B, d, rows, columns]``, ascending in the level.
        down: ``[B, rows − 1, columns]``.
        right: ``[B, rows, columns − 1]``.
        slope: ``[K, B]``.
        bend: ``[d]``, second differences of D^q.
    """

    base: Tensor
    down: Tensor
    right: Tensor
    slope: Tensor
    bend: tuple[int, ...]

    @property
    def steps(self) -> int:
        """d, the number of levels above 0."""
        return self.base.shape[1]


def problem_energy(problem: CutProblem, levels: Tensor) -> Tensor:
    """Return ``[K, B]``: the energy of ``levels [K, B, rows, columns]``, 0 for a mask of 0."""
    levels, d = levels.to(torch.int64), problem.steps
    reached = levels.unsqueeze(2) > torch.arange(d, device=levels.device)[:, None, None]
    unary = ((problem.base - problem.slope[:, :, None, None, None]) * reached).flatten(2).sum(2)
    gaps = [sum((gap - k) * problem.bend[k] for k in range(gap)) for gap in range(d + 1)]
    apart = torch.tensor(gaps, device=levels.device)
    down = (problem.down * apart[levels.diff(dim=2).abs()]).flatten(2).sum(2)
    right = (problem.right * apart[levels.diff(dim=3).abs()]).flatten(2).sum(2)
    return unary + down + right
