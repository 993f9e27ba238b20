"""The energy of masks in whole numbers, in which optima and ties are exact: what the solvers are given."""

from typing import NamedTuple

import torch
from torch import Tensor

MOST_MEMORY = 2**30  # bytes that a solver may take; they grow with the square of the number of labels


class CutProblem(NamedTuple):
    """The energy of :mod:`.masks` for B pairs and K λ in whole numbers (int64, CPU, contiguous).

    Raising block i from level p to p + 1 costs ``base[b, p, i] − slope[k, b]``; ``base [B, d, rows, columns]`` ascends in p.
    Two neighbours D levels apart pay ``down`` or ``right`` times D^q. In terms of levels that is a cut: for every level p that
    the one has reached and every level p' ≤ p that the other has not, ``bend[p − p']`` times the weight.
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
    """``[K, B]`` int64: the energy of ``levels [K, B, rows, columns]`` in the problem's whole numbers, 0 for a mask of 0."""
    levels, d = levels.to(torch.int64), problem.steps
    reached = levels.unsqueeze(2) > torch.arange(d, device=levels.device)[:, None, None]
    unary = ((problem.base - problem.slope[:, :, None, None, None]) * reached).flatten(2).sum(2)
    apart = torch.tensor([sum((gap - k) * problem.bend[k] for k in range(gap)) for gap in range(d + 1)], device=levels.device)
    down = (problem.down * apart[levels.diff(dim=2).abs()]).flatten(2).sum(2)
    right = (problem.right * apart[levels.diff(dim=3).abs()]).flatten(2).sum(2)
    return unary + down + right
