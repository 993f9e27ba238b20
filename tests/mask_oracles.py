"""Slow, independent solvers of the mask energy, and random energies of every kind: ordinary, full of ties, degenerate.

They take a ``CutProblem`` and read it as its docstring says, never through the library's own functions.
"""

from functools import cache

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from multimix.methods.puzzlemix.masks import CutTerms
from multimix.methods.puzzlemix.rof import CutProblem
from oracles import seeded

KINDS = ("generic", "ties", "zero saliency", "one block", "constant", "strong", "apart", "some apart")


def random_terms(kind: str, batch: int, rows: int, columns: int, seed: int) -> CutTerms:
    """Terms of the size that images and saliency give; ``ties`` are multiples of 1/8, ``apart`` has no weights."""
    generator = seeded(seed)

    def uniform(*shape):
        return torch.rand(shape, dtype=torch.float64, generator=generator)

    blocks = rows * columns
    saliency = (3 * uniform(2, batch, blocks)).exp()
    if kind == "zero saliency":
        saliency = torch.zeros_like(saliency)
    if kind == "one block":
        saliency = torch.eye(blocks, dtype=torch.float64)[(uniform(2, batch) * blocks).long()]
    if kind == "constant":
        saliency = torch.ones_like(saliency)
    saliency = saliency / saliency.sum(2, keepdim=True).clamp(min=1e-12)
    cost = (saliency[0] - saliency[1]).unflatten(1, (rows, columns))
    if kind == "zero saliency":
        cost = cost + 0.02 * (uniform(*cost.shape) - 0.5)  # what the borders alone would add
    size = {"strong": 20.0, "apart": 0.0}.get(kind, 0.2) / max(rows, columns)
    down, right = (size * (0.5 + uniform(batch, rows - a, columns - b)) for a, b in ((1, 0), (0, 1)))
    if kind == "constant":
        down, right = torch.full_like(down, size), torch.full_like(right, size)
    if kind == "some apart":
        down, right = (weight * (uniform(*weight.shape) < 0.5) for weight in (down, right))
    if kind == "ties":
        cost, down, right = ((8 * part * blocks).round() / 8 for part in (cost, down, right))
    return CutTerms(cost, down, right)


def random_problem(batch: int, rows: int, columns: int, labels: int, power: int, seed: int) -> CutProblem:
    """Small whole numbers: nearly every optimum is a tie. Five slopes in no order, two of them equal."""
    generator = seeded(seed)

    def whole(low, high, *shape):
        return torch.randint(low, high + 1, shape, generator=generator)

    steps = labels - 1
    base = whole(-4, 4, batch, 1, rows, columns) + whole(0, 2, batch, steps, rows, columns).cumsum(1)
    down, right = whole(0, 3, batch, rows - 1, columns), whole(0, 3, batch, rows, columns - 1)
    slope = torch.tensor([1, -3, 0, 5, 1])[:, None] + whole(0, 1, 1, batch)
    bend = [1] + [(gap + 1) ** power - 2 * gap**power + (gap - 1) ** power for gap in range(1, steps)]
    return CutProblem(base, down, right, slope, tuple(bend))


def coarse(problem: CutProblem, bits: int) -> CutProblem:
    """The problem with all numbers divided by 2^bits, rounded down: ``base`` still ascends."""
    base, down, right, slope = (part >> bits for part in problem[:4])
    return CutProblem(base, down, right, slope, problem.bend)


def loop_energy(problem: CutProblem, k: int, b: int, levels) -> int:
    """Block by block and border by border, with Python's own numbers."""
    unary, edges, apart = _tables(problem, k, b)
    flat = [int(level) for level in np.asarray(levels).ravel()]
    total = sum(int(unary[i][level]) for i, level in enumerate(flat))
    return total + sum(weight * apart[abs(flat[i] - flat[j])] for i, j, weight in edges)


def brute_force(problem: CutProblem, k: int, b: int) -> tuple[np.ndarray, int]:
    """Of all labellings, the blockwise minimum of those with the lowest energy, and that energy."""
    unary, edges, apart = _tables(problem, k, b)
    labellings = _labellings(len(unary), problem.steps + 1)
    total = np.zeros(labellings.shape[1], dtype=np.int64)
    for i, cost in enumerate(unary):
        total += cost[labellings[i]]
    for i, j, weight in edges:
        total += (weight * np.array(apart))[np.abs(labellings[i] - labellings[j])]
    best = labellings[:, total == total.min()]
    smallest = best.min(1)
    assert (best == smallest[:, None]).all(0).any(), "the minimum of the optima is no optimum: the energy is not submodular"
    return smallest.reshape(problem.base.shape[2:]), int(total.min())


def max_flow(problem: CutProblem, k: int, b: int) -> tuple[np.ndarray, int]:
    """The same by scipy's maximum flow, for problems whose numbers fit into 31 bits in sum.

    Variable x_{i,p} says v_i ≥ p. Any function of two levels is a constant, terms in one variable, and its mixed second
    differences times x_{i,p} x_{j,q}; these are at most 0 here, so −c·x·x' = −c·x + c·x(1 − x') makes each an arc. The order of
    the x_{i,p} is kept by arcs that nothing can cut. Source side = 1: what the residual graph reaches is the smallest optimum.
    """
    unary, edges, apart = _tables(problem, k, b)
    steps = problem.steps
    gain = np.array([[int(cost[p] - cost[p - 1]) for p in range(1, steps + 1)] for cost in unary])
    arcs = []
    for i, j, weight in edges:
        pair = [[weight * apart[abs(p - q)] for q in range(steps + 1)] for p in range(steps + 1)]
        for p in range(1, steps + 1):
            gain[i, p - 1] += pair[p][0] - pair[p - 1][0]
            gain[j, p - 1] += pair[0][p] - pair[0][p - 1]
            for q in range(1, steps + 1):
                mixed = pair[p][q] - pair[p - 1][q] - pair[p][q - 1] + pair[p - 1][q - 1]
                assert mixed <= 0
                gain[i, p - 1] += mixed
                arcs.append((i * steps + p - 1, j * steps + q - 1, -mixed))
    arcs += [(i * steps + p, i * steps + p - 1, 2**29) for i in range(len(unary)) for p in range(1, steps)]
    source, sink = gain.size, gain.size + 1
    gain = gain.ravel()
    arcs += [(source, n, -int(g)) if g < 0 else (n, sink, int(g)) for n, g in enumerate(gain)]
    assert np.abs(gain).sum() < 2**29, "the numbers are too large for scipy"
    start, end, capacity = np.array(arcs).T
    graph = coo_matrix((capacity, (start, end)), shape=(sink + 1, sink + 1)).tocsr().astype(np.int32)
    found = maximum_flow(graph, source, sink)
    residual = csr_matrix(graph - found.flow)
    residual.eliminate_zeros()
    reached = np.zeros(sink + 1, dtype=np.int64)
    reached[breadth_first_order(residual, source, return_predecessors=False)] = 1
    levels = reached[: gain.size].reshape(len(unary), steps).sum(1)
    return levels.reshape(problem.base.shape[2:]), int(found.flow_value + gain[gain < 0].sum())


@cache
def _labellings(blocks: int, labels: int) -> np.ndarray:
    """``[blocks, labels^blocks]``: every labelling is a column."""
    return np.indices((labels,) * blocks, dtype=np.int8).reshape(blocks, -1)


def _tables(problem: CutProblem, k: int, b: int):
    """What each level costs in each block, the borders as (block, block, weight), and D^q for every distance D."""
    _, steps, rows, columns = problem.base.shape
    raise_by = problem.base[b].flatten(1).T.numpy() - int(problem.slope[k, b])
    unary = np.concatenate([np.zeros((rows * columns, 1), dtype=np.int64), raise_by.cumsum(1)], axis=1)
    edges = [
        (r * columns + c, (r + 1) * columns + c, int(problem.down[b, r, c])) for r in range(rows - 1) for c in range(columns)
    ]
    edges += [
        (r * columns + c, r * columns + c + 1, int(problem.right[b, r, c])) for r in range(rows) for c in range(columns - 1)
    ]
    power = {0: 1, 2: 2, 14: 4}[problem.bend[1]] if steps > 1 else 1  # the second difference at 1 is 2^q − 2
    return unary, edges, [gap**power for gap in range(steps + 1)]
