"""The parts of the variance from gradients of a model: unbiased from sampled pairs, exact from every pair of a small data set.

Intervals are 95 %, by the delta method over independent units (replicates, pairs, groups of pairs). They cover the sampling, not
the choice of weights and data.
"""

import math

import torch
from scipy.special import roots_jacobi
from torch import Generator, Tensor, nn

from ....core.checks import check_whole
from ....core.sampling import sample_path, seeded
from ....methods import InputMixup, ManifoldMixup, Method, PairMethod
from .gradients import Gradients
from .theory import Components, Enumeration, Estimate, Means, Ways, Z, means_of, ways_of, weighted

MAX_PAIR_GRADIENTS = 4096  # gradients of single pairs in memory at once


def deviations(grad: Tensor) -> Tensor:
    """Return squared distances from the mean of ``grad [R, D]``, scaled so that their mean is the unbiased trace variance."""
    if len(grad) < 2:
        raise ValueError(f"replicates must be at least 2, got {len(grad)}")
    grad = grad.double()
    return (grad - grad.mean(0)).square().sum(1) * (len(grad) / (len(grad) - 1))


def trace_variance(grad: Tensor) -> Estimate:
    """Return the trace of the covariance matrix of the independent rows of ``grad [R, D]``."""
    return mean_estimate(deviations(grad))


def squared_norm(grad: Tensor) -> Estimate:
    """Return E‖g‖²: the trace variance plus ‖E g‖², which at fixed weights does not depend on K.

    Args:
        grad: ``[R, D]`` independent gradients.
    """
    return mean_estimate(grad.double().square().sum(1))


def mean_estimate(values: Tensor) -> Estimate:
    """Return the mean of independent values."""
    return Estimate(float(values.mean()), Z * float(values.std()) / math.sqrt(len(values)))


def paired_ratio(first: Tensor, second: Tensor) -> Estimate:
    """Return mean(first) / mean(second) of values from the same replicates."""
    ratio = float(first.mean() / second.mean())
    return Estimate(ratio, mean_estimate((first - ratio * second) / second.mean()).half)


def ratio(first: Estimate, second: Estimate) -> Estimate:
    """Return first / second of independent estimates."""
    value = first.value / second.value
    return Estimate(value, math.hypot(first.half, value * second.half) / abs(second.value))


def pair_parts(mean: Tensor, square: Tensor, draws: int) -> tuple[float, float, Tensor]:
    """Return V, V_pairs and the 2×2 covariance of these estimates.

    Products of two different shares of a pair estimate E_pairs‖E_λ g‖², products of two different pairs ‖E g‖²: no term is
    multiplied by itself.

    Args:
        mean: ``[M, D]`` mean gradient of each of M independent pairs over its shares.
        square: ``[M]`` mean squared norm of each pair's gradients.
        draws: Shares of each pair.
    """
    if draws < 2 or len(mean) < 2:
        raise ValueError(f"pairs and draws must be at least 2 each, got {len(mean)} and {draws}")
    mean, square, m = mean.double(), square.double(), len(mean)
    own = mean.square().sum(1)
    within = (draws * own - square) / (draws - 1)
    center = mean.mean(0)
    squared_mean = float((m * center.square().sum() - own.mean()) / (m - 1))
    pull = 2 * (mean @ center)
    covariance = torch.cov(torch.stack([square - pull, within - pull])) / m
    return float(square.mean()) - squared_mean, float(within.mean()) - squared_mean, covariance


def lam_part(mean: Tensor, weight: Tensor) -> tuple[float, float]:
    """Return V_λ without bias and the variance of this estimate by the jackknife over groups.

    Only products of two different groups count: a group's own noise, squared, would add (V − V_pairs − V_λ) / M for M pairs.

    Args:
        mean: ``[S, L, D]`` mean gradients of S independent groups of pairs at L common shares.
        weight: ``[L]`` weights of the shares.
    """
    groups = len(mean)
    if groups < 2:
        raise ValueError(f"groups must be at least 2, got {groups}")
    mean, weight = mean.double(), weight.double()
    centered = mean - torch.einsum("sld,l->sd", mean, weight).unsqueeze(1)
    scaled = (centered * weight.sqrt().reshape(-1, 1)).flatten(1)
    product = scaled @ scaled.T
    own, total = product.diagonal(), product.sum()
    value = float((total - own.sum()) / (groups * (groups - 1)))
    if groups == 2:
        return value, 0.0
    left = total - 2 * product.sum(1) + own - (own.sum() - own)
    without = left / ((groups - 1) * (groups - 2))
    return value, float((groups - 1) / groups * (without - without.mean()).square().sum())


def sampled_components(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    pairs: int = 4000,
    draws: int = 4,
    groups: int = 40,
    group: int = 200,
    nodes: int = 32,
    seed: int = 0,
) -> Components:
    """Estimate V, V_pairs and V_λ without bias from pairs drawn uniformly with replacement.

    Args:
        model: A module that maps a batch to logits, in evaluation mode.
        method: ``InputMixup``, or ``ManifoldMixup`` with one layer; its ``k`` does not matter.
        x: ``[N, …]`` samples.
        y: Their labels.
        pairs: Pairs for V and V_pairs.
        draws: Shares of each of these pairs.
        groups: Independent groups of pairs for V_λ.
        group: Pairs of a group.
        nodes: Quadrature shares for V_λ.
        seed: Seed of pairs and shares.
    """
    layer, alpha = check_shares(method)
    for name, size in (("pairs", pairs), ("draws", draws), ("groups", groups), ("group", group)):
        check_whole(name, size)
    grads, generator = Gradients(model, x, y), seeded(seed)
    total, of_pairs, covariance = pair_parts(*_single_pairs(grads, layer, alpha, pairs, draws, generator), draws)
    share, weight = beta_nodes(alpha, nodes)
    first, second = (torch.randint(len(x), (groups, group), generator=generator).repeat_interleave(nodes, 0) for _ in range(2))
    found = grads.of_pairs(first, second, share.repeat(groups).reshape(-1, 1, 1), layer)
    lam, lam_variance = lam_part(torch.unflatten(found, 0, (groups, -1)), weight)
    (a, b), (_, c) = covariance.tolist()
    return Components(total, of_pairs, lam, ((a, b, 0.0), (b, c, 0.0), (0.0, 0.0, lam_variance)))


def _single_pairs(
    grads: Gradients, layer: str | None, alpha: float, pairs: int, draws: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return mean gradients ``[M, D]`` and mean squared norms ``[M]`` of pairs over their shares."""
    means, squares = [], []
    for part in torch.split(torch.arange(pairs), max(1, MAX_PAIR_GRADIENTS // draws)):
        size = len(part)
        first, second = (
            torch.randint(len(grads.x), (size, 1), generator=generator).repeat_interleave(draws, 0) for _ in range(2)
        )
        lam = sample_path(draws, alpha, rows=size, generator=generator).T.reshape(-1, 1, 1)
        found = torch.unflatten(grads.of_pairs(first, second, lam, layer), 0, (size, -1)).double()
        means.append(found.mean(1))
        squares.append(found.square().sum(2).mean(1))
    return torch.cat(means), torch.cat(squares)


def beta_nodes(alpha: float, nodes: int) -> tuple[Tensor, Tensor]:
    """Return shares ``[L]``, ascending and symmetric about ½, and weights ``[L]`` of Gauss's quadrature for Beta(α, α)."""
    check_whole("nodes", nodes, 2)
    place, weight = (torch.from_numpy(part) for part in roots_jacobi(nodes, alpha - 1, alpha - 1))
    # Exact symmetry, without rounding: enumerate_pairs reads pairs in reverse off it.
    share, weight = 0.5 + (place - place.flip(0)) / 4, weight + weight.flip(0)
    return share, weight / weight.sum()


def check_shares(method: Method) -> tuple[str | None, float]:
    """Return layer and α of a method with one share per pair. Raise ValueError for boxes, fields and several layers."""
    check_pairs(method)
    if not isinstance(method, InputMixup | ManifoldMixup) or len(method.traits.mixes_at) != 1:
        raise ValueError(f"method must be InputMixup or ManifoldMixup with one layer, got {method!r}")
    return method.traits.mixes_at[0], method.alpha


def check_pairs(method: Method) -> PairMethod:
    """Return the method. Raise ValueError unless it mixes every batch along a path from a sample to its partner."""
    if not isinstance(method, PairMethod) or method.p != 1 or method.alpha == 0 or method.traits.needs:
        raise ValueError(f"method must mix pairs in every batch (p = 1, alpha above 0, no saliency), got {method!r}")
    return method


def enumerate_pairs(model: nn.Module, method: Method, x: Tensor, y: Tensor, *, nodes: int = 16) -> Enumeration:
    """Compute the gradients of every ordered pair of the N samples: exact but for the quadrature, N²·nodes/2 gradients.

    Args:
        model: A module that maps a batch to logits, in evaluation mode.
        method: ``InputMixup``, or ``ManifoldMixup`` with one layer; its ``k`` does not matter.
        x: ``[N, …]`` samples.
        y: Their labels.
        nodes: Quadrature shares.
    """
    layer, alpha = check_shares(method)
    grads = Gradients(model, x, y)
    share, weight = beta_nodes(alpha, nodes)
    every = torch.arange(len(x)).unsqueeze(1)
    own = grads.of_pairs(every, every, torch.full((len(x), 1, 1), 0.5), layer).double()
    sums = torch.zeros(len(x), nodes, grads.size, dtype=torch.float64)  # over partners
    square = back = averaged = 0.0
    pairs = torch.triu_indices(len(x), len(x), offset=1)
    for i, j in zip(*(torch.split(end, max(1, MAX_PAIR_GRADIENTS // nodes)) for end in pairs), strict=True):
        first, second = (end.unsqueeze(1).repeat_interleave(nodes, 0) for end in (i, j))
        found = grads.of_pairs(first, second, share.repeat(len(i)).reshape(-1, 1, 1), layer)
        g = torch.unflatten(found, 0, (len(i), -1)).double()
        # λ is the partner's share, so j→i at λ is i→j at 1 − λ: the same gradients with the nodes in reverse.
        reverse = g.flip(1)
        sums.index_add_(0, i, g).index_add_(0, j, reverse)
        square += 2 * float(torch.einsum("pld,pld,l->", g, g, weight))
        back += 2 * float(torch.einsum("pld,pld,l->", g, reverse, weight))
        averaged += 2 * float(torch.einsum("pld,l->pd", g, weight).square().sum())
    by_node = sums.transpose(0, 1)
    mean = torch.einsum("lnd,l->nd", by_node, weight)
    # square and back are means over λ already, so they are the same at every node.
    shared = [ways_of(own, to, fro, square, back) for to, fro in zip(by_node, by_node.flip(0), strict=True)]
    return Enumeration(
        samples=len(x),
        shared=Ways(*weighted(shared, weight)),
        averaged=ways_of(own, mean, mean, averaged, averaged),
        shared_means=Means(*weighted([means_of(own, to) for to in by_node], weight)),
        averaged_means=means_of(own, mean),
    )
