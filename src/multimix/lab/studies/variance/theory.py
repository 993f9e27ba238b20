"""The variance of multi-mix's gradient in theory: by the closed form for independent pairs, exactly for permutations of a batch.

g̃ is the mean of g(pair, λ) over B pairs and K shares. For independent pairs its trace variance follows from three numbers:
V = Var[g], V_pairs = Var_pairs[E_λ g] and V_λ = Var_λ[E_pairs g]. Of the (K·B)² products of two terms, those of the same pair and
share give V, of the same pair V_pairs, of the same share V_λ (if the batch shares it), and the rest nothing.

In training a batch of B samples is drawn without replacement from N, and sample i is mixed with sample π(i), π a uniform
permutation. Two of the B pairs then meet in one of seven ways, such as i→j and j→k, and each way has a known number of places in
the B² products: E‖g̃‖² = (p₀ + (B−1) p₁ + p₂ + 2(B−2)(p₃ + p₅) + p₄ + (B−2)(B−3) p₆) / B², with p the mean product of each way.
With N = B it is the variance over the permutations of one fixed batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Z = 1.959964  # of the 95 % interval

NO_COVARIANCE = ((0.0,) * 3,) * 3


class Estimate(NamedTuple):
    """``value ± half``, a 95 % interval."""

    value: float
    half: float

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half


class Range(NamedTuple):
    """A value and its 95 % interval where that is not symmetric; without an upper bound ``high`` is infinite."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Components:
    """V, V_pairs and V_λ, as trace variances, and the covariance of the three estimates (0 where they are exact)."""

    total: float
    pairs: float
    lam: float
    covariance: tuple[tuple[float, ...], ...] = NO_COVARIANCE

    def combined(self, weights: tuple[float, float, float]) -> Estimate:
        """The weighted sum of V, V_pairs and V_λ with its interval."""
        value = sum(weight * part for weight, part in zip(weights, (self.total, self.pairs, self.lam), strict=True))
        spread = sum(a * b * self.covariance[i][j] for i, a in enumerate(weights) for j, b in enumerate(weights))
        return Estimate(value, Z * math.sqrt(max(spread, 0.0)))

    @property
    def estimates(self) -> tuple[Estimate, Estimate, Estimate]:
        """V, V_pairs and V_λ with their intervals."""
        return self.combined((1, 0, 0)), self.combined((0, 1, 0)), self.combined((0, 0, 1))


def multimix_variance(parts: Components, *, k: int, batch: int, per_pair: bool = False) -> Estimate:
    """(V + (K−1) V_pairs + (B−1) V_λ) / (K·B) for K shares common to the batch; without the last term for shares per pair."""
    rows = check_size("k", k) * check_size("batch", batch)
    return parts.combined((1 / rows, (k - 1) / rows, 0.0 if per_pair else (batch - 1) / rows))


def large_batch_variance(parts: Components, *, rows: int, per_pair: bool = False) -> Estimate:
    """(V + (n−1) V_λ) / n for mixup of n pairs with one λ in common; V / n with a λ for each pair."""
    return multimix_variance(parts, k=1, batch=rows, per_pair=per_pair)


def crossover(parts: Components) -> Range:
    """B_0 = V_pairs / V_λ: from this batch size on, multi-mix (B, K) has the lower variance than mixup of K·B pairs with one λ.

    Both have K·B in the denominator, so they are equal where (K−1) V_pairs + (B−1) V_λ = (K·B−1) V_λ, that is
    (K−1) V_pairs = (K−1) B V_λ: at the same B for every K > 1. The interval is Fieller's, for a ratio of two estimates.
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
        return Range(value, 0.0, math.inf)  # neither part differs from 0 clearly enough: any B fits
    root = math.sqrt(b * b - a * c)
    if a <= 0:
        return Range(value, min(max(c / (b + root), 0.0), value), math.inf)
    return Range(value, max((b - root) / a, 0.0), max((b + root) / a, value))


def check_size(name: str, value: int) -> int:
    """``value``. Raise ValueError unless it is a whole number, at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}")
    return value


class Ways(NamedTuple):
    """Mean products ⟨g_ab, g_cd⟩ over distinct samples i, j, k, l, for each way in which two pairs can meet."""

    same_self: float  # i→i with itself
    same: float  # i→j with itself
    self_self: float  # i→i and j→j
    self_other: float  # i→i and j→k
    back: float  # i→j and j→i
    chain: float  # i→j and j→k
    apart: float  # i→j and k→l


class Means(NamedTuple):
    """Products of d, the mean gradient of samples paired with themselves, and o, of all other pairs."""

    dd: float
    do: float
    oo: float

    def squared_norm(self, share: float) -> float:
        """‖share · d + (1 − share) · o‖²."""
        return share**2 * self.dd + 2 * share * (1 - share) * self.do + (1 - share) ** 2 * self.oo


@dataclass(frozen=True)
class Enumeration:
    """All ordered pairs of N samples at all shares: products at one common λ (``shared``), and of means over λ (``averaged``)."""

    samples: int
    shared: Ways
    averaged: Ways
    shared_means: Means
    averaged_means: Means

    @property
    def components(self) -> Components:
        """V, V_pairs and V_λ, exactly, for pairs drawn uniformly from all N², samples paired with themselves included."""
        n = self.samples
        mean = self.averaged_means.squared_norm(1 / n)
        total, pairs = ((ways.same_self + (n - 1) * ways.same) / n - mean for ways in (self.shared, self.averaged))
        return Components(total, pairs, self.shared_means.squared_norm(1 / n) - mean)

    def permutation_variance(self, *, k: int, batch: int, per_pair: bool = False) -> float:
        """Var[g̃] for K independent shares, common to the batch or ``per_pair``, and a batch paired with its permutation."""
        check_size("k", k)
        if check_size("batch", batch) > self.samples:
            raise ValueError(f"batch must be at most the number of samples, {self.samples}, got {batch}")
        # One in K of the products of two terms has the same share on both sides.
        blended = Ways(*(a / k + b * (1 - 1 / k) for a, b in zip(self.shared, self.averaged, strict=True)))
        ways = self.averaged._replace(same_self=blended.same_self, same=blended.same) if per_pair else blended
        return expected_square(ways, batch) - self.averaged_means.squared_norm(1 / batch)


def expected_square(ways: Ways, batch: int) -> float:
    """E‖g̃‖² over batches and permutations."""
    met = ways.same_self + (batch - 1) * ways.same + ways.self_self + ways.back
    met += 2 * (batch - 2) * (ways.self_other + ways.chain) + (batch - 2) * (batch - 3) * ways.apart
    # A batch of one is its own partner, and none of the ways for two pairs exists.
    return (met if batch > 1 else ways.same_self) / batch**2


def ways_of(own: Tensor, first: Tensor, second: Tensor, square: float, back: float) -> Ways:
    """The mean products of a table g_ij from its sums, in float64.

    ``own [N, D]`` is g_ii; ``first`` and ``second [N, D]`` are Σ_j g_ij and Σ_i g_ij, ``square`` and ``back`` Σ⟨g_ij, g_ij⟩ and
    Σ⟨g_ij, g_ji⟩, all without i = j. What the sums hold too much, because samples coincide, is taken off again.
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
    """Products of the mean of ``own [N, D]`` and of the mean of the other pairs, whose sums over j are ``first [N, D]``."""
    n = len(own)
    d, o = own.mean(0), first.sum(0) / max(n * (n - 1), 1)
    return Means(_dot(d, d), _dot(d, o), _dot(o, o))


def weighted(rows: Sequence[tuple[float, ...]], weight: Tensor) -> list[float]:
    """The weighted sum of rows, place by place."""
    total: list[float] = (torch.tensor(rows, dtype=torch.float64) * weight.reshape(-1, 1)).sum(0).tolist()
    return total


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum())
