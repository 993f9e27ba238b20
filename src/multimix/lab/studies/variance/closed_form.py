"""The variance of multi-mix's gradient by formula, for independent pairs; and the batch size of Proposition 2.

g̃ is the mean of g(pair, λ) over B pairs and K shares. Its trace variance follows from three numbers: V = Var[g],
V_pairs = Var_pairs[E_λ g] and V_λ = Var_λ[E_pairs g]. Of the (K·B)² products of two terms, those of the same pair and share
give V, of the same pair V_pairs, of the same share V_λ (if the batch shares it), and the rest nothing.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

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
    """``value``, or one sentence if it is not a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}")
    return value
