"""What the Co-Mixup benchmark compares with: the published loop around ``gco-wrapper``, and the objectives both are judged by.

Written from a description of the public code: α-β swap from label 0 for every output and sweep, half-half labels from the second
sweep on (a quarter to a parent, 1 to everything else), the threshold applied before A (``A (v ∘ p)``), one-hot tensors in torch.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from multimix.methods.comixup.method import BONUS, FLOOR, CoMixup, Groups


class Scores(NamedTuple):
    """Means over the parts: what the sweeps work on (with A and τ), and what the reference code reports (without)."""

    worked_on: float
    reported: float


def public_outputs(groups: Groups, rules: CoMixup, k: int = 0) -> Tensor:
    """``[B, N, m]``: the weight of every input of a part at every block of its outputs, by the published loop."""
    pairs = zip(groups.edges[:-1], groups.edges[1:], strict=True)
    most = groups.affinity.shape[1]
    found = [public_part(groups, rules, k, p, low, high) for p, (low, high) in enumerate(pairs)]
    return torch.cat([torch.nn.functional.pad(part, (0, most - part.shape[2])) for part in found])


def public_part(groups: Groups, rules: CoMixup, k: int, p: int, low: int, high: int) -> Tensor:
    """One part: sweeps over its outputs, ``[m, N, m]``."""
    m, rows, columns = high - low, *groups.saliency.shape[1:]
    blocks = rows * columns
    beta, gamma, eta, tau = (rules.beta / blocks, rules.gamma / blocks, rules.eta / blocks, rules.tau * blocks)
    unary = -groups.saliency[low:high].reshape(m, blocks).T - eta * torch.log(groups.prior[k, low:high] + FLOOR)
    affinity = groups.affinity[p, :m, :m]
    shown = torch.nn.functional.one_hot(groups.start[low:high].reshape(m, blocks), m).double()
    edges = grid_edges(rows, columns)
    weight = np.full(len(edges[0]), beta)
    total = shown.sum((0, 1))
    apart = torch.zeros(m, m, dtype=torch.float64)
    before = math.inf
    for sweep in range(rules.sweeps):
        for j in range(m):
            total = total - shown[j].sum(0)
            over = (affinity @ total > tau).double()
            cost = unary + 2 * gamma * (affinity @ (over * total)) + gamma * apart[j]
            parents = parents_of(shown[j]) if sweep > 0 else []
            shown[j] = swap_labels(cost, parents, edges, weight)
            total = total + shown[j].sum(0)
        if sweep == rules.sweeps - 2 and rules.resolve:
            apart = to_keep_apart(shown)
        value = part_scores(shown, unary, affinity, rules, rows, columns).reported
        if abs(value - before) / abs(value) < 1e-6:
            break
        before = value
    return shown


def swap_labels(cost: Tensor, parents: list[tuple[int, int]], edges: tuple[np.ndarray, np.ndarray], weight: np.ndarray) -> Tensor:
    """``[N, m]``: the weights of inputs at every block, by α-β swap from label 0."""
    import gco

    m = cost.shape[1]
    values = torch.eye(m + len(parents), m, dtype=torch.float64)
    near = 1 - np.eye(m + len(parents))
    columns = [cost]
    for e, (a, b) in enumerate(parents):
        values[m + e] = 0.5 * (values[a] + values[b])
        near[m + e, [a, b]] = near[[a, b], m + e] = 0.25
        columns.append((0.5 * (cost[:, a] + cost[:, b]) - BONUS)[:, None])
    unary = torch.cat(columns, 1).numpy()
    labels = gco.cut_general_graph(np.stack(edges, 1), weight, unary, near, n_iter=-1, algorithm="swap")
    return values[torch.from_numpy(np.asarray(labels)).long()]


def parents_of(shown: Tensor) -> list[tuple[int, int]]:
    """The pairs among the two or three inputs that an output shows most."""
    count = shown.sum(0)
    used = min(3, int((count > 0).sum()))
    top = sorted(count.sort(descending=True, stable=True).indices[:used].tolist())
    return [(a, b) for at, a in enumerate(top) for b in top[at + 1 :]]


def to_keep_apart(shown: Tensor) -> Tensor:
    """``[m, m]``: 1 where one of two outputs of the same inputs is asked to leave an input to the other."""
    used = shown.sum(1) > 0
    apart = torch.zeros(used.shape, dtype=torch.float64)
    for j in range(len(used)):
        for other in range(j + 1, len(used)):
            if torch.equal(used[j], used[other]) and int(used[j].sum()) > 1:
                inputs = used[j].nonzero().flatten()
                apart[j, inputs[0]] = 1
                apart[other, inputs[1]] = 1
    return apart


def grid_edges(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    number = np.arange(rows * columns).reshape(rows, columns)
    first = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    return first, np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])


def part_scores(shown: Tensor, unary: Tensor, affinity: Tensor, rules: CoMixup, rows: int, columns: int) -> Scores:
    """Both objectives of one part from its weights ``[m, N, m]``."""
    blocks = rows * columns
    first, second = grid_edges(rows, columns)
    value = float((shown * unary).sum()) + 0.5 * rules.beta / blocks * float((shown[:, first] - shown[:, second]).square().sum())
    count = shown.sum(1)
    others = (count.sum(0) - count) @ affinity.T
    over = others > rules.tau * blocks
    pushed = (others - rules.tau * blocks if rules.rule == "soft" else others) * over
    plain = float(count.sum(0).square().sum() - count.square().sum())
    return Scores(value + rules.gamma / blocks * float((count * pushed).sum()), value + rules.gamma / blocks * plain)


def scores(groups: Groups, rules: CoMixup, weights: Tensor, k: int = 0) -> Scores:
    """Both objectives, the mean of the parts, of ``weights [B, N, m]``."""
    rows, columns = groups.saliency.shape[1:]
    found = []
    for p, (low, high) in enumerate(zip(groups.edges[:-1], groups.edges[1:], strict=True)):
        m = high - low
        unary = -groups.saliency[low:high].reshape(m, -1).T - rules.eta / (rows * columns) * torch.log(
            groups.prior[k, low:high] + FLOOR
        )
        found.append(part_scores(weights[low:high, :, :m], unary, groups.affinity[p, :m, :m], rules, rows, columns))
    return Scores(*torch.tensor(found, dtype=torch.float64).mean(0).tolist())


def input_weights(groups: Groups, first: Tensor, second: Tensor) -> Tensor:
    """``[B, N, m]``: our result in the peer's form; ``first`` and ``second`` are ``[B, rows, columns]``."""
    low = torch.tensor(groups.edges[:-1]).repeat_interleave(torch.tensor(groups.edges).diff())[:, None]
    shown = [torch.nn.functional.one_hot(part.flatten(1) - low, groups.affinity.shape[1]).double() for part in (first, second)]
    return 0.5 * (shown[0] + shown[1])
