"""Variances and their three parts from samples of gradients, without bias and with 95 % intervals.

Intervals are by the delta method over independent units (replicates, pairs, groups of pairs): a statistic's standard error is
that of the mean of its influence values. They cover the sampling, not the choice of weights and data.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .closed_form import Estimate, Z


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
