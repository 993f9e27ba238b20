"""The path λ_1 < … < λ_K of a pair: K ordered shares of the partner, from Beta(α, α) or Beta(α, β). Nothing else samples Beta."""

import math
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral, Real
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from .generator import resolved

Sampler = Literal["iid", "stratified", "grid"]

# Keeps 0 < λ < 1 through a later cast to float32, which for α = 0.2 turns 1.65 % of the draws into exactly 1.
EDGE = 1e-6


def sample_path(
    k: int,
    alpha: float,
    *,
    beta: float | None = None,
    rows: int = 1,
    sampler: Sampler = "iid",
    generator: Generator | None = None,
) -> Tensor:
    """``lam [K, rows]`` in float64, ascending along the first axis, 0 < λ < 1; one column per pair, or one for the batch.

    ``iid`` sorts K independent Beta(α, α) draws, as the paper does. ``stratified`` draws once inside each of the K quantile
    strata [(k−1)/K, k/K): ordered by construction, and a step picked at random is still exactly Beta(α, α). ``grid`` draws
    nothing and has no law: λ_k = k/(K+1), whatever α. With α = 0 there is no mixing and every λ is 0. With ``beta`` the law is
    Beta(α, β), which ``stratified`` does not know.
    """
    check_path_options(k, alpha, sampler)
    if beta is not None:
        check_second(beta, sampler)
    if alpha == 0:
        return torch.zeros(k, rows, dtype=torch.float64, device="cpu")
    if sampler == "grid":
        return (torch.arange(1, k + 1, dtype=torch.float64, device="cpu") / (k + 1)).unsqueeze(1).expand(k, rows)
    generator = resolved(generator)
    if sampler == "iid":
        log_odds = _log_odds((k, rows), alpha, generator, beta)
        log_odds = log_odds.sort(dim=0).values if k > 1 else log_odds
    else:
        log_odds = _stratified_log_odds(k, rows, alpha, generator)
    return log_odds.sigmoid().clamp(EDGE, 1 - EDGE)


def check_path_options(k: int, alpha: float, sampler: str) -> None:
    """Raise one sentence unless K, α and the sampler are usable."""
    # Numbers of NumPy are numbers, too.
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k must be a whole number, at least 1, got {k!r}")
    if not isinstance(alpha, Real) or not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be finite and at least 0 (0 is no mixing), got {alpha!r}")
    if sampler not in get_args(Sampler):
        raise ValueError(f"no sampler {sampler!r}; there are {', '.join(get_args(Sampler))}")


def check_second(beta: float, sampler: str) -> None:
    """Raise one sentence unless Beta(α, ``beta``) can be drawn from by the sampler."""
    if not isinstance(beta, Real) or not 0 < beta < math.inf:
        raise ValueError(f"beta must be finite and above 0, or None for alpha, got {beta!r}")
    if sampler == "stratified":
        raise ValueError(f"sampler 'stratified' knows Beta(α, α) only, got beta={beta!r}")


def checked_path(lam: Tensor | Sequence[float], batch: int) -> Tensor:
    """A path handed in by the caller as float64 ``[K, 1 or B]``: never clamped, but it must be ordered and within [0, 1]."""
    lam = torch.as_tensor(lam, dtype=torch.float64, device="cpu")
    lam = lam.unsqueeze(1) if lam.ndim == 1 else lam
    if lam.ndim != 2 or len(lam) == 0 or lam.shape[1] not in (1, batch):
        raise ValueError(f"lam must have shape [K], [K, 1] or [K, {batch}], got {list(lam.shape)}")
    if not bool(((lam >= 0) & (lam <= 1)).all()):
        raise ValueError(f"lam must lie in 0 … 1, got {lam.flatten().tolist()}")
    if not bool((lam.diff(dim=0) >= 0).all()):
        raise ValueError(f"lam must ascend along the path, got {lam[:, 0].tolist()}")
    return lam


def _log_odds(shape: tuple[int, ...], alpha: float, generator: Generator, beta: float | None = None) -> Tensor:
    """log(λ / (1 − λ)) for λ ~ Beta(α, β), β = α if not given: the difference of a log-Gamma(α) and a log-Gamma(β) draw.

    Gamma(α) = Gamma(α + 1) · U^(1/α), taken in logs, so that nothing underflows however small α is.
    """
    both = torch.tensor([alpha, alpha if beta is None else beta], dtype=torch.float64, device="cpu")
    shapes = both.reshape(2, *[1] * len(shape)).expand(2, *shape)
    gamma = torch._standard_gamma(shapes + 1, generator=generator)
    uniform = torch.rand((2, *shape), dtype=torch.float64, generator=generator, device="cpu")
    log_gamma = gamma.log() + torch.log1p(-uniform) / shapes
    return log_gamma[0] - log_gamma[1]


def _stratified_log_odds(k: int, rows: int, alpha: float, generator: Generator) -> Tensor:
    """``[K, rows]``: Beta draws sorted into their strata, ``rows`` of each kept.

    Which stratum a draw falls into says nothing about where in it, so keeping the first few of each is exact and needs the
    quantile function at the K − 1 edges only.
    """
    edges = torch.tensor(_stratum_edges(k, alpha), dtype=torch.float64, device="cpu")
    drawn = torch.empty(0, dtype=torch.float64, device="cpu")
    stratum = torch.empty(0, dtype=torch.int64, device="cpu")
    count = torch.zeros(k, dtype=torch.int64, device="cpu")
    while int(count.min()) < rows:
        drawn = torch.cat([drawn, _log_odds((2 * k * rows + 8,), alpha, generator)])
        stratum = torch.bucketize(drawn, edges, right=True)
        count = torch.bincount(stratum, minlength=k)
    first = (count.cumsum(0) - count).unsqueeze(1)
    return drawn[stratum.argsort(stable=True)[first + torch.arange(rows, device="cpu")]]


@lru_cache(maxsize=64)
def _stratum_edges(k: int, alpha: float) -> tuple[float, ...]:
    below = [stratum_edge(j, k, alpha) for j in range(1, (k + 1) // 2)]
    return (*below, *([0.0] if k % 2 == 0 else []), *(-edge for edge in reversed(below)))


def stratum_edge(j: int, k: int, alpha: float) -> float:
    """The log-odds below which a Beta(α, α) variable falls with probability j/K."""
    if 2 * j == k:
        return 0.0
    if 2 * j > k:
        return -stratum_edge(k - j, k, alpha)
    low, high = -1.0, 0.0
    while _beta_cdf(low, alpha) > j / k:
        low *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if _beta_cdf(middle, alpha) > j / k else (middle, high)
    return (low + high) / 2


def _beta_cdf(log_odds: float, alpha: float) -> float:
    """P(λ ≤ x) for λ ~ Beta(α, α), x the sigmoid of ``log_odds`` ≤ 0.

    x^α (1−x)^α / (α B(α, α)) · Σ_n Π_{i<n} x (2α+i) / (α+1+i): positive terms only, quick because x ≤ ½.
    """
    log_rest = -math.log1p(math.exp(log_odds))
    log_x = log_odds + log_rest
    log_beta = 2 * math.lgamma(alpha) - math.lgamma(2 * alpha)
    x, total, term, n = math.exp(log_x), 1.0, 1.0, 0
    while term > 1e-17 * total:
        term *= x * (2 * alpha + n) / (alpha + 1 + n)
        total += term
        n += 1
    return math.exp(alpha * (log_x + log_rest) - math.log(alpha) - log_beta) * total
