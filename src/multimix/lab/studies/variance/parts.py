"""The parts of the variance from gradients of a model: unbiased from sampled pairs, or exact from every pair of a small data set.

Intervals are 95 %, by the delta method over independent units (replicates, pairs, groups of pairs): a statistic's standard error
is that of the mean of its influence values. They cover the sampling, not the choice of weights and data.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from scipy.special import roots_jacobi
from torch import Generator, Tensor, nn

from ....core.sampling import sample_path, seeded
from ....methods import InputMixup, ManifoldMixup, Method, PairMethod
from .gradients import Gradients, leading
from .theory import Components, Enumeration, Estimate, Means, Ways, Z, check_size, means_of, ways_of, weighted


class PairParts(NamedTuple):
    """V and V_pairs, and the 2×2 covariance of the two estimates."""

    total: float
    pairs: float
    covariance: Tensor


class LamPart(NamedTuple):
    """V_λ without bias and its variance; ``plug_in`` is the naive value from all pairs, ``plug_in_group`` from one group's."""

    value: float
    variance: float
    plug_in: float
    plug_in_group: float


def deviations(grad: Tensor) -> Tensor:
    """``[R]``: squared distances from the mean of ``grad [R, D]``, scaled so that their mean is the unbiased trace variance."""
    if len(grad) < 2:
        raise ValueError(f"a variance needs at least 2 replicates, got {len(grad)}")
    grad = grad.double()
    return (grad - grad.mean(0)).square().sum(1) * (len(grad) / (len(grad) - 1))


def trace_variance(grad: Tensor) -> Estimate:
    """The trace of the covariance matrix of the R independent rows of ``grad [R, D]``."""
    return mean_estimate(deviations(grad))


def squared_norm(grad: Tensor) -> Estimate:
    """E‖g‖², the surrogate: the trace variance plus ‖E g‖², which at fixed weights does not depend on K."""
    return mean_estimate(grad.double().square().sum(1))


def mean_estimate(values: Tensor) -> Estimate:
    """The mean of independent values."""
    return Estimate(float(values.mean()), Z * float(values.std()) / math.sqrt(len(values)))


def paired_ratio(first: Tensor, second: Tensor) -> Estimate:
    """mean(first) / mean(second) of values that come from the same replicates."""
    ratio = float(first.mean() / second.mean())
    return Estimate(ratio, mean_estimate((first - ratio * second) / second.mean()).half)


def ratio(first: Estimate, second: Estimate) -> Estimate:
    """first / second of independent estimates."""
    value = first.value / second.value
    return Estimate(value, math.hypot(first.half, value * second.half) / abs(second.value))


def pair_parts(mean: Tensor, square: Tensor, draws: int) -> PairParts:
    """V and V_pairs from M independent pairs, each with ``draws`` ≥ 2 shares of its own.

    ``mean [M, D]`` is a pair's mean gradient over its shares, ``square [M]`` its mean squared norm. Products of two different
    shares of a pair estimate E_pairs‖E_λ g‖², products of two different pairs ‖E g‖²: no term is multiplied with itself.
    """
    if draws < 2 or len(mean) < 2:
        raise ValueError(f"pairs and draws must be at least 2 each, got {len(mean)} and {draws}")
    mean, square = mean.double(), square.double()
    own = mean.square().sum(1)
    within = (draws * own - square) / (draws - 1)
    centre = mean.mean(0)
    m = len(mean)
    whole = float((m * centre.square().sum() - own.mean()) / (m - 1))
    pull = 2 * (mean @ centre)
    influence = torch.stack([square - pull, within - pull])
    return PairParts(float(square.mean()) - whole, float(within.mean()) - whole, torch.cov(influence) / m)


def lam_part(mean: Tensor, weight: Tensor) -> LamPart:
    """V_λ from ``mean [S, L, D]``: mean gradients of S independent groups of pairs at L common shares with ``weight [L]``.

    Only products of two different groups count (two groups are the independent halves), since a group's own noise, multiplied
    with itself, is what inflates the plug-in by (V − V_pairs − V_λ) / M for M pairs. The variance is the jackknife's over groups.
    """
    groups = len(mean)
    if groups < 2:
        raise ValueError(f"groups must be at least 2, got {groups}")
    mean, weight = mean.double(), weight.double()
    centred = mean - torch.einsum("sld,l->sd", mean, weight).unsqueeze(1)
    scaled = (centred * weight.sqrt().reshape(-1, 1)).flatten(1)
    product = scaled @ scaled.T
    own, everything = product.diagonal(), product.sum()
    value = float((everything - own.sum()) / (groups * (groups - 1)))
    variance = 0.0
    if groups > 2:
        left = everything - 2 * product.sum(1) + own - (own.sum() - own)
        without = left / ((groups - 1) * (groups - 2))
        variance = float((groups - 1) / groups * (without - without.mean()).square().sum())
    return LamPart(value, variance, float(everything) / groups**2, float(own.mean()))


# Gradients of single pairs that are held at once.
BLOCK = 4096


@dataclass(frozen=True)
class SampledParts:
    """Estimated parts, and the naive V_λ beside them: ``plug_in`` from ``pairs``, ``plug_in_group`` from ``group`` pairs."""

    components: Components
    plug_in: float
    plug_in_group: float
    pairs: int
    group: int


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
) -> SampledParts:
    """V, V_pairs and V_λ without bias, each with an interval, from pairs drawn uniformly with replacement.

    V and V_pairs take ``pairs`` pairs with ``draws`` shares each. V_λ takes ``groups`` independent groups of ``group`` pairs, all
    at ``nodes`` quadrature shares, and multiplies only different groups with each other.
    """
    layer, alpha = check_shares(method)
    for name, size in (("pairs", pairs), ("draws", draws), ("groups", groups), ("group", group)):
        check_size(name, size)
    grads, generator = Gradients(model, x, y), seeded(seed)
    of_pairs = _of_single_pairs(grads, layer, alpha, pairs, draws, generator)
    of_lam = _of_groups(grads, layer, alpha, groups, group, nodes, generator)
    (a, b), (_, c) = of_pairs.covariance.tolist()
    covariance = ((a, b, 0.0), (b, c, 0.0), (0.0, 0.0, of_lam.variance))
    parts = Components(of_pairs.total, of_pairs.pairs, of_lam.value, covariance)
    return SampledParts(parts, of_lam.plug_in, of_lam.plug_in_group, groups * group, group)


def _of_single_pairs(
    grads: Gradients, layer: str | None, alpha: float, pairs: int, draws: int, generator: Generator
) -> PairParts:
    means, squares = [], []
    most = max(1, BLOCK // draws)
    for size in [most] * (pairs // most) + [pairs % most] * (pairs % most > 0):
        own, other = (torch.randint(len(grads.x), (size, 1), generator=generator) for _ in range(2))
        lam = sample_path(draws, alpha, rows=size, generator=generator).T.reshape(-1, 1, 1)
        found = grads.of_pairs(own.repeat_interleave(draws, 0), other.repeat_interleave(draws, 0), lam, layer)
        found = leading(found, size).double()
        means.append(found.mean(1))
        squares.append(found.square().sum(2).mean(1))
    return pair_parts(torch.cat(means), torch.cat(squares), draws)


def _of_groups(
    grads: Gradients, layer: str | None, alpha: float, groups: int, group: int, nodes: int, generator: Generator
) -> LamPart:
    share, weight = beta_nodes(alpha, nodes)
    own, other = (torch.randint(len(grads.x), (groups, group), generator=generator) for _ in range(2))
    lam = share.repeat(groups).reshape(-1, 1, 1)
    found = grads.of_pairs(own.repeat_interleave(nodes, 0), other.repeat_interleave(nodes, 0), lam, layer)
    return lam_part(leading(found, groups), weight)


def beta_nodes(alpha: float, nodes: int) -> tuple[Tensor, Tensor]:
    """``share [L]``, ascending and symmetric about ½, and ``weight [L]``, sum 1: Gauss's quadrature for Beta(α, α)."""
    if check_size("nodes", nodes) < 2:
        raise ValueError(f"nodes must be at least 2, got {nodes}")
    place, weight = (torch.from_numpy(part) for part in roots_jacobi(nodes, alpha - 1, alpha - 1))
    # Exactly symmetric, which rounding would spoil and pairs taken in reverse rely on.
    share, weight = 0.5 + (place - place.flip(0)) / 4, weight + weight.flip(0)
    return share, weight / weight.sum()


def check_shares(method: Method) -> tuple[str | None, float]:
    """The layer and α of a method for which V, V_pairs and V_λ are defined. Raise ValueError if they are not.

    g may depend on the pair and its share alone: no box, no field, and always the same layer.
    """
    check_pairs(method)
    if not isinstance(method, InputMixup | ManifoldMixup) or len(method.traits.mixes_at) != 1:
        raise ValueError(
            f"method must be InputMixup or ManifoldMixup with one layer, where pair and λ decide all, got {method!r}"
        )
    return method.traits.mixes_at[0], method.alpha


def check_pairs(method: Method) -> PairMethod:
    """The method. Raise ValueError unless it mixes every batch along a path from a sample to its partner."""
    if not isinstance(method, PairMethod) or method.p != 1 or method.alpha == 0 or method.traits.needs:
        raise ValueError(
            f"method must mix pairs in every batch, with p = 1, alpha above 0 and nothing else needed, got {method!r}"
        )
    return method


def sampled_from(stored: dict[str, Any]) -> SampledParts:
    """What ``asdict`` and JSON made of sampled parts, read back."""
    parts = stored["components"]
    covariance = tuple(tuple(row) for row in parts["covariance"])
    return SampledParts(**stored | {"components": Components(**parts | {"covariance": covariance})})


def enumerate_pairs(model: nn.Module, method: Method, x: Tensor, y: Tensor, *, nodes: int = 16) -> Enumeration:
    """Every ordered pair of the N samples at ``nodes`` quadrature shares: exact but for the quadrature, N²·nodes/2 gradients."""
    layer, alpha = check_shares(method)
    grads = Gradients(model, x, y)
    share, weight = beta_nodes(alpha, nodes)
    everyone = torch.arange(len(x)).unsqueeze(1)
    own = grads.of_pairs(everyone, everyone, torch.full((len(x), 1, 1), 0.5), layer).double()
    first = torch.zeros(len(x), nodes, grads.size, dtype=torch.float64)
    square = back = averaged = 0.0
    pairs = torch.triu_indices(len(x), len(x), offset=1)
    for i, j in zip(*(torch.split(end, max(1, BLOCK // nodes)) for end in pairs), strict=True):
        of_i, of_j = (end.unsqueeze(1).repeat_interleave(nodes, 0) for end in (i, j))
        lam = share.repeat(len(i)).reshape(-1, 1, 1)
        g = leading(grads.of_pairs(of_i, of_j, lam, layer), len(i)).double()
        # λ is the partner's share, so j→i at λ is i→j at 1 − λ: the same gradients, the nodes in reverse.
        turned = g.flip(1)
        first.index_add_(0, i, g).index_add_(0, j, turned)
        square += 2 * float(torch.einsum("pld,pld,l->", g, g, weight))
        back += 2 * float(torch.einsum("pld,pld,l->", g, turned, weight))
        averaged += 2 * float(torch.einsum("pld,l->pd", g, weight).square().sum())
    return _enumeration(own, first.transpose(0, 1), weight, square, back, averaged)


def _enumeration(own: Tensor, first: Tensor, weight: Tensor, square: float, back: float, averaged: float) -> Enumeration:
    """From the gradients ``own [N, D]`` of samples with themselves, the sums over partners ``first [L, N, D]``, and products."""
    mean = torch.einsum("lnd,l->nd", first, weight)
    # The products are means over λ already, and enter every node alike.
    shared = [ways_of(own, to, fro, square, back) for to, fro in zip(first, first.flip(0), strict=True)]
    return Enumeration(
        samples=len(own),
        shared=Ways(*weighted(shared, weight)),
        averaged=ways_of(own, mean, mean, averaged, averaged),
        shared_means=Means(*weighted([means_of(own, to) for to in first], weight)),
        averaged_means=means_of(own, mean),
    )


def enumeration_from(stored: dict[str, Any]) -> Enumeration:
    """What ``asdict`` and JSON made of an enumeration, read back."""
    kinds = {"shared": Ways, "averaged": Ways, "shared_means": Means, "averaged_means": Means}
    # asdict keeps named tuples as they are, and JSON makes lists of them.
    return Enumeration(samples=stored["samples"], **{name: kind(*stored[name]) for name, kind in kinds.items()})
