"""SageMix and its assignment once more, slowly: plain loops over pairs and points, Python's own numbers."""

import itertools
import math

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def distance(p, q):
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(p, q, strict=True)))


def total(points, points_pair, order):
    """The sum of distances of an assignment."""
    return math.fsum(distance(p, points_pair[j]) for p, j in zip(points, order, strict=True))


def cheapest_order(points, points_pair):
    """Every permutation tried; scipy for more than 7 points."""
    n = len(points)
    if n <= 7:
        return list(min(itertools.permutations(range(n)), key=lambda order: total(points, points_pair, order)))
    return linear_sum_assignment([[distance(p, q) for q in points_pair] for p in points])[1].tolist()


def drawn(weights, uniform):
    """The first point at which the running sum exceeds ``uniform`` times the whole."""
    if not any(weights):
        weights = [1.0] * len(weights)
    threshold, running = uniform * math.fsum(weights), 0.0
    for i, weight in enumerate(weights):
        running += weight
        if running > threshold:
            return i
    return len(weights) - 1


def anchors(points, pair, salient, salient_pair, uniform, uniform_pair):
    """q and q': by saliency, and by saliency times the distance from q."""
    q = points[drawn(salient, uniform)]
    salient_pair = salient_pair if any(salient_pair) else [1.0] * len(pair)
    far = [s * distance(p, q) for s, p in zip(salient_pair, pair, strict=True)]
    return q, pair[drawn(far if any(far) else salient_pair, uniform_pair)]


def sage_mix(x: Tensor, partner: list[int], lam, saliency: Tensor, uniform, sigma: float = 0.3):
    """Mixed clouds ``[K, B, N, d]`` and labels' shares ``[K, B]`` for ``lam[k][i]``, ``uniform[0 or 1][i]`` drawn."""
    clouds, salient = x.double().tolist(), saliency.double().tolist()
    mixed, shares = [], []
    for path in lam:
        mixed.append([])
        shares.append([])
        for i, j in enumerate(partner):
            order = list(range(len(clouds[i]))) if i == j else cheapest_order(clouds[i], clouds[j])
            pair = [clouds[j][a] for a in order]
            q, q_pair = anchors(clouds[i], pair, salient[i], [salient[j][a] for a in order], uniform[0][i], uniform[1][i])
            rho, cloud, weights = 1 - path[i], [], []
            for p, p_pair in zip(clouds[i], pair, strict=True):
                own = rho * math.exp(-(distance(p, q) ** 2) / (2 * sigma**2))
                other = (1 - rho) * math.exp(-(distance(p_pair, q_pair) ** 2) / (2 * sigma**2))
                weights.append(own / (own + other))
                cloud.append([weights[-1] * a + (1 - weights[-1]) * b for a, b in zip(p, p_pair, strict=True)])
            mixed[-1].append(cloud)
            shares[-1].append(math.fsum(1 - w for w in weights) / len(weights))
    return torch.tensor(mixed, dtype=torch.float64), torch.tensor(shares, dtype=torch.float64)


def numbers_drawn(batch: int, generator):
    """The two numbers per pair that the method draws after pair and path."""
    return torch.rand(2, batch, dtype=torch.float64, generator=generator).tolist()
