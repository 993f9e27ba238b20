"""A part of a Co-Mixup batch at work, compiled: what its outputs show, what they cost, how they push each other apart."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compiled import inner

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Weights(NamedTuple):
    """The numbers of :class:`multimix.methods.comixup.solver.Rules`, per block where they are so."""

    beta: float
    gamma: float
    tau: float
    bonus: float
    tolerance: float
    sweeps: int
    rule: int
    """0 hard, 1 hard as in the reference code, 2 soft."""

    soft_labels: bool
    resolve: bool
    own_borders: bool
    fresh: bool
    descent: int
    scale: float


class Part(NamedTuple):
    """A part at work: m inputs, m outputs of N blocks, two inputs for each block (twice the same if it shows one)."""

    base: Floats
    """``[m, N]``: what input k costs at block i."""

    whole: Ints
    """``base`` as whole numbers."""

    affinity: Floats
    first: Ints
    second: Ints
    """``[m, N]`` each, by output."""

    tally: Ints
    """``[m, m]``: twice how often output j shows input k."""

    total: Ints
    reach: Floats
    """``[m, m]``: A c_j."""

    apart: Ints
    """``[m, m]``: 1 where output j is asked to leave input k to another."""

    parents: Ints
    """``[3, 2]``: of the labels that show two inputs."""

    push: Ints
    beside: Ints


@inner
def count_output(part: Part, j: int) -> None:
    """Count what output j shows, and add it to the total."""
    part.tally[j] = 0
    for i in range(part.first.shape[1]):
        part.tally[j, part.first[j, i]] += 1
        part.tally[j, part.second[j, i]] += 1
    m = len(part.total)
    part.reach[j] = 0.0
    for k in range(m):
        part.total[k] += part.tally[j, k]
        if part.tally[j, k] > 0:
            for other in range(m):
                part.reach[j, other] += part.affinity[other, k] * (0.5 * part.tally[j, k])


@inner
def take_output(part: Part, j: int) -> None:
    """Take output j out of the total."""
    for k in range(len(part.total)):
        part.total[k] -= part.tally[j, k]


@inner
def fill_push(part: Part, weights: Weights, j: int) -> None:
    """What input k costs output j at every block because the other outputs show it, or must be left to another."""
    m = len(part.total)
    shown = np.empty(m)
    for k in range(m):
        shown[k] = 0.0
        for other in range(m):
            shown[k] += part.affinity[k, other] * (0.5 * part.total[other])
    for k in range(m):
        pushed = 0.0
        if weights.rule == 1:
            for other in range(m):
                if shown[other] > weights.tau:
                    pushed += part.affinity[k, other] * (0.5 * part.total[other])
        elif shown[k] > weights.tau:
            pushed = shown[k] - weights.tau if weights.rule == 2 else shown[k]
        cost = 2 * weights.gamma * pushed + weights.gamma * part.apart[j, k]
        part.push[k] = np.int64(np.rint(cost * weights.scale))


@inner
def find_parents(part: Part, j: int) -> int:
    """The pairs of the two or three inputs that output j shows most, first those of lower index where they show alike."""
    top = np.full(3, -1)
    for k in range(len(part.total)):
        at = 0
        while at < 3 and top[at] >= 0 and part.tally[j, k] <= part.tally[j, top[at]]:
            at += 1
        if part.tally[j, k] == 0 or at == 3:
            continue
        for later in range(2, at, -1):
            top[later] = top[later - 1]
        top[at] = k
    top.sort()
    if top[1] < 0:
        return 0
    pairs = 0
    for a in range(3):
        for b in range(a + 1, 3):
            if top[a] >= 0:
                part.parents[pairs, 0], part.parents[pairs, 1] = top[a], top[b]
                pairs += 1
    return pairs


@inner
def keep_apart(part: Part) -> bool:
    """For outputs of the same two or more inputs: the first one gives up the first input, the other the second."""
    m = len(part.total)
    found = False
    for j in range(m):
        for other in range(j + 1, m):
            alike, first, second = True, -1, -1
            for k in range(m):
                used = part.tally[j, k] > 0
                alike &= used == (part.tally[other, k] > 0)
                if used and first < 0:
                    first = k
                elif used and second < 0:
                    second = k
            if alike and second >= 0:
                part.apart[j, first] = 1
                part.apart[other, second] = 1
                found = True
    return found


@inner
def pushed_together(part: Part, weights: Weights) -> float:
    """g Σ_j c_j · push(A p_j): what outputs cost because they show the same inputs."""
    m = len(part.total)
    value = 0.0
    whole = np.zeros(m)
    for j in range(m):
        for k in range(m):
            whole[k] += part.reach[j, k]
    for j in range(m):
        for k in range(m):
            if part.tally[j, k] == 0 and weights.rule != 1:
                continue
            others = whole[k] - part.reach[j, k]
            if others <= weights.tau:
                continue
            if weights.rule == 1:  # c_j · A (v ∘ p_j), and A is symmetric
                value += part.reach[j, k] * 0.5 * (part.total[k] - part.tally[j, k])
            else:
                value += 0.5 * part.tally[j, k] * (others - weights.tau if weights.rule == 2 else others)
    return weights.gamma * value


@inner
def output_cost(part: Part, weights: Weights, j: int) -> float:
    """Unary and smoothness of output j, and what it was asked to leave."""
    value = 0.0
    for i in range(part.base.shape[1]):
        a, b = part.first[j, i], part.second[j, i]
        value += 0.5 * (part.base[a, i] + part.base[b, i] + weights.gamma * (part.apart[j, a] + part.apart[j, b]))
        for d in (0, 2):
            near = part.beside[i, d]
            if near >= 0:
                c, e = part.first[j, near], part.second[j, near]
                same = (a == c) + (a == e) + (b == c) + (b == e)
                own = 2 + 2 * (a == b) + 2 + 2 * (c == e)
                value += 0.125 * weights.beta * (own - 2 * same)
    return value


@inner
def objective(part: Part, weights: Weights) -> float:
    """Unary, smoothness, and diversity without threshold and compatibility: what the reference code watches."""
    m = len(part.total)
    value, overlap = 0.0, 0
    for j in range(m):
        value += output_cost(part, weights, j)
        overlap += part.total[j] ** 2
        for k in range(m):
            overlap -= part.tally[j, k] ** 2
    return value + weights.gamma * 0.25 * overlap
