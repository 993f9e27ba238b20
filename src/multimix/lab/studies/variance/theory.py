"""The variance of multi-mix's gradient in theory: closed form for independent pairs, exact for permutations.

g̃ is the mean of g(pair, λ) over B pairs and K shares. For independent pairs its trace variance follows from three numbers:
V = Var[g], V_pairs = Var_pairs[E_λ g] and V_λ = Var_λ[E_pairs g]. Of the (K·B)² products of two terms, those of the same pair and
share contribute V, those of the same pair V_pairs, and those of the same share V_λ if the batch shares its λ.

Training draws a batch of B samples without replacement from N and mixes sample i with sample π(i), where π is a uniform
permutation. Two pairs of the batch then meet in one of seven ways, such as i→j and j→k. The number of products of each kind
is known: E‖g̃‖² = (p₀ + (B−1) p₁ + p₂ + 2(B−2)(p₃ + p₅) + p₄ + (B−2)(B−3) p₆) / B², with p the mean product of each kind.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....core.checks import check_whole

Z = 1.959964  # standard errors in half a 95 % interval

NO_COVARIANCE = ((0.0,) * 3,) * 3


class Estimate(NamedTuple):
    """A value with its 95 % interval ``value ± half``."""

    value: float
    half: float

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.value + self.half


class Range(NamedTuple):
    """A value with an asymmetric 95 % interval; ``high`` is infinite without an upper bound."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Components:
    """The three parts of the variance, as trace variances.

    Args:
        total: V, the variance over pairs and λ.
        pairs: V_pairs, the variance over pairs of the mean over λ.
        lam: V_λ, the variance over λ of the mean over pairs.
        covariance: 3×3 covariance of the three estimates; 0 for exact values.
    """

    total: float
    pairs: float
    lam: float
    covariance: Sequence[Sequence[float]] = NO_COVARIANCE

    def combined(self, weights: tuple[float, float, float]) -> Estimate:
        """Return the weighted sum of V, V_pairs and V_λ with its interval."""
        value = sum(weight * part for weight, part in zip(weights, (self.total, self.pairs, self.lam), strict=True))
        spread = sum(a * b * self.covariance[i][j] for i, a in enumerate(weights) for j, b in enumerate(weights))
        return Estimate(value, Z * math.sqrt(max(spread, 0.0)))

    @property
    def estimates(self) -> tuple[Estimate, Estimate, Estimate]:
        """V, V_pairs and V_λ with their intervals."""
        return self.combined((1, 0, 0)), self.combined((0, 1, 0)), self.combined((0, 0, 1))


def multimix_variance(parts: Components, *, k: int, batch: int, per_pair: bool = False) -> Estimate:
    """Return the variance of multi-mix with independent pairs (Proposition 1).

    (V + (K−1) V_pairs + (B−1) V_λ) / (K·B); with a λ per pair, without the last term.

    Args:
        parts: V, V_pairs and V_λ.
        k: Interpolations per pair.
        batch: Pairs, B.
        per_pair: Whether every pair has K values of λ of its own.
    """
    check_whole("k", k)
    check_whole("batch", batch)
    rows = k * batch
    return parts.combined((1 / rows, (k - 1) / rows, 0.0 if per_pair else (batch - 1) / rows))


def large_batch_variance(parts: Components, *, rows: int, per_pair: bool = False) -> Estimate:
    """Return the variance of mixup with many independent pairs: (V + (n−1) V_λ) / n, or V / n with a λ per pair.

    Args:
        parts: V, V_pairs and V_λ.
        rows: Pairs, n.
        per_pair: Whether every pair has a λ of its own.
    """
    return multimix_variance(parts, k=1, batch=rows, per_pair=per_pair)


def crossover(parts: Components) -> Range:
    """Return B_0 = V_pairs / V_λ with Fieller's interval for a ratio of two estimates (Proposition 2).

    From this batch size on, multi-mix (B, K) has the lower variance than mixup of K·B pairs with one λ, for every K > 1: both
    have the denominator K·B, and (K−1) V_pairs + (B−1) V_λ = (K·B−1) V_λ at B = B_0.

    Args:
        parts: V, V_pairs and V_λ.
    """
    (_, pairs, lam), shared = parts.estimates, parts.covariance[1][2]
    if lam.value <= 0:
        return Range(math.inf, max(pairs.low, 0.0) / lam.high if lam.high > 0 else math.inf, math.inf)
    value = max(pairs.value, 0.0) / lam.value
    if pairs.half == 0 and lam.half == 0:
        return Range(value, value, value)
    # Every B with (V_pairs − B V_λ)² ≤ Z² Var[V_pairs − B V_λ]: between the roots of a B² − 2 b B + c.
    a = lam.value**2 - lam.half**2
    b = pairs.value * lam.value - Z**2 * shared
    c = pairs.value**2 - pairs.half**2
    if b * b < a * c or (a <= 0 and c <= 0):
        return Range(value, 0.0, math.inf)  # neither part differs from 0 significantly: any B is possible
    root = math.sqrt(b * b - a * c)
    high = math.inf if a <= 0 else max((b + root) / a, value)
    low = c / (b + root) if a <= 0 else (b - root) / a
    return Range(value, min(max(low, 0.0), value), high)


class Ways(NamedTuple):
    """Mean products ⟨g_ab, g_cd⟩ over distinct samples i, j, k, l, for each way in which two pairs can meet."""

    same_self: float  # i→i with itself
    same: float  # i→j with itself
    self_self: float  # i→i and j→j
    self_other: float  # i→i and j→k
    back: float  # i→j and j→i
    chain: float  # i→j and j→k
    apart: float  # i→j and k→l

    def squared_norm(self, batch: int) -> float:
        """Return E‖g̃‖² over batches and permutations."""
        if batch == 1:
            return self.same_self  # the sample is its own partner
        total = self.same_self + (batch - 1) * self.same + self.self_self + self.back
        total += 2 * (batch - 2) * (self.self_other + self.chain) + (batch - 2) * (batch - 3) * self.apart
        return total / batch**2


class Means(NamedTuple):
    """Products of d, the mean gradient of samples paired with themselves, and o, that of all other pairs."""

    dd: float
    do: float
    oo: float

    def squared_norm(self, share: float) -> float:
        """Return ‖share · d + (1 − share) · o‖²."""
        return share**2 * self.dd + 2 * share * (1 - share) * self.do + (1 - share) ** 2 * self.oo


@dataclass(frozen=True)
class Enumeration:
    """Products of the gradients of all ordered pairs of N samples.

    Args:
        samples: N.
        shared: Products at one common λ, averaged over λ.
        averaged: Products of means over λ.
        shared_means: Products of means over pairs at one common λ, averaged over λ.
        averaged_means: Products of means over pairs and λ.
    """

    samples: int
    shared: Ways
    averaged: Ways
    shared_means: Means
    averaged_means: Means

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Enumeration":
        """Read what ``dataclasses.asdict`` and JSON made of an enumeration."""
        kinds = {"shared": Ways, "averaged": Ways, "shared_means": Means, "averaged_means": Means}
        return cls(stored["samples"], **{name: kind(*stored[name]) for name, kind in kinds.items()})

    @property
    def components(self) -> Components:
        """Exact V, V_pairs and V_λ for pairs drawn uniformly from all N², including samples paired with themselves."""
        n = self.samples
        mean = self.averaged_means.squared_norm(1 / n)
        total, pairs = ((ways.same_self + (n - 1) * ways.same) / n - mean for ways in (self.shared, self.averaged))
        return Components(total, pairs, self.shared_means.squared_norm(1 / n) - mean)

    def permutation_variance(self, *, k: int, batch: int, per_pair: bool = False) -> float:
        """Return Var[g̃] for a batch that is paired with a permutation of itself, as in training.

        Args:
            k: Independent values of λ, common to the batch or per pair.
            batch: Samples of the batch, at most N.
            per_pair: Whether every pair has K values of λ of its own.

        Raises:
            ValueError: If ``batch`` is larger than N.
        """
        check_whole("k", k)
        check_whole("batch", batch)
        if batch > self.samples:
            raise ValueError(f"batch must be at most the number of samples, {self.samples}, got {batch}")
        # One in K of the products of two terms has the same share on both sides.
        ways = Ways(*(a / k + b * (1 - 1 / k) for a, b in zip(self.shared, self.averaged, strict=True)))
        if per_pair:
            ways = self.averaged._replace(same_self=ways.same_self, same=ways.same)
        return ways.squared_norm(batch) - self.averaged_means.squared_norm(1 / batch)


def ways_of(own: Tensor, first: Tensor, second: Tensor, square: float, back: float) -> Ways:
    """Return the mean products of a table g_ij from its sums. Products of coinciding samples are subtracted.

    Args:
        own: ``[N, D]``, float64: g_ii.
        first: ``[N, D]``: Σ_j g_ij without i = j.
        second: ``[N, D]``: Σ_i g_ij without i = j.
        square: Σ⟨g_ij, g_ij⟩ without i = j.
        back: Σ⟨g_ij, g_ji⟩ without i = j.
    """
    n = len(own)
    sum_own, sum_other = own.sum(0), first.sum(0)
    same_self = _dot(own, own)
    self_self = _dot(sum_own, sum_own) - same_self
    self_other = _dot(sum_own, sum_other) - _dot(own, first + second)
    chain = _dot(second, first) - back
    apart = _dot(sum_other, sum_other) - _dot(first, first) - _dot(second, second) + square - back - 2 * chain
    two, three = n * (n - 1), n * (n - 1) * (n - 2)
    sums = (same_self, square, self_self, self_other, back, chain, apart)
    counts = (n, two, two, three, two, three, three * (n - 3))
    return Ways(*(total / count if count else 0.0 for total, count in zip(sums, counts, strict=True)))


def means_of(own: Tensor, first: Tensor) -> Means:
    """Return the products of the mean of ``own [N, D]`` and the mean of the other pairs, with sums ``first [N, D]``."""
    n = len(own)
    d, o = own.mean(0), first.sum(0) / max(n * (n - 1), 1)
    return Means(_dot(d, d), _dot(d, o), _dot(o, o))


def weighted(rows: Sequence[tuple[float, ...]], weight: Tensor) -> list[float]:
    """Return the weighted sum of rows, column by column."""
    total: list[float] = (torch.tensor(rows, dtype=torch.float64) * weight.reshape(-1, 1)).sum(0).tolist()
    return total


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum())
