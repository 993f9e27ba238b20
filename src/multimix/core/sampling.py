"""Random pairs and λ paths, and the random stream they are drawn from.

Every call without ``generator=`` takes one number from torch's CPU stream and draws from a new
stream that this number and the distributed rank seed. So ``torch.manual_seed`` repeats the draws,
ranks with the same seed draw differently, and data-loader workers, which torch seeds, differ. With
a ``generator`` torch's stream is not used.
"""

import hashlib
import math
import os
from collections.abc import Sequence
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from .checks import check_choice, check_whole

RANK_OFFSET = 0x9E3779B97F4A7C15
IS_DISTRIBUTED = torch.distributed.is_available()

Array = NDArray[np.float64]
Sampler = Literal["iid", "stratified", "antithetic", "grid"]

MIN_LAM = 1e-6
"""Keeps 0 < λ < 1 in float32, which for α = 0.2 rounds 1.65 % of the draws to exactly 1."""
MIN_STEP = 2.0**-23
"""Minimum difference of two λ: enough for float32, and a power of two, so nothing is rounded."""


def make_generator(generator: Generator | None, *, same_on_all_ranks: bool = False) -> Generator:
    """Return ``generator``, or a new one seeded from torch's CPU stream and the rank.

    Args:
        generator: A CPU generator, or None.
        same_on_all_ranks: Ignore the rank, for initial weights of networks that ranks share.

    Returns:
        The generator to draw from.

    Raises:
        TypeError: If ``generator`` is not a torch.Generator.
        ValueError: If ``generator`` is not on the CPU.
    """
    if generator is None:
        seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        offset = 0 if same_on_all_ranks else RANK_OFFSET * rank()
        return torch.Generator().manual_seed((seed + offset) % 2**63)
    if not isinstance(generator, Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    if generator.device.type != "cpu":
        raise ValueError(f"generator must be on the CPU, got one on {generator.device}")
    return generator


def seeded(*parts: int) -> Generator:
    """Return a generator whose stream is a hash of ``parts``."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))


def rank() -> int:
    """Return the distributed rank: of the process group, from torchrun's environment, or 0."""
    if IS_DISTRIBUTED and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    value = os.environ.get("RANK", "0")
    return int(value) if value.isdecimal() else 0


def random_state() -> Tensor:
    """Return the state of torch's CPU stream, from which draws without a generator are seeded."""
    return torch.get_rng_state()


def set_random_state(state: Tensor) -> None:
    """Restore the state returned by :func:`random_state`.

    Args:
        state: A checkpointed state. It also resets torch's other CPU draws, such as dropout.

    Raises:
        ValueError: If ``state`` was not returned by :func:`random_state`.
    """
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.ndim != 1:
        got = list(state.shape) if isinstance(state, Tensor) else type(state).__name__
        raise ValueError(f"state must be a result of random_state(), got {got}")
    torch.set_rng_state(state.cpu())


def random_partner(
    batch: int, *, derange: bool = False, generator: Generator | None = None
) -> Tensor:
    """Draw a uniformly random permutation of the batch.

    Args:
        batch: Number of samples.
        derange: Draw among permutations without fixed points. Otherwise one sample on average is
            its own partner and stays unmixed.
        generator: A CPU generator.

    Returns:
        ``partner [B]``: sample ``i`` is mixed with sample ``partner[i]``.

    Raises:
        ValueError: If ``batch`` is not a positive integer.
    """
    check_whole("batch", batch)
    return draw_partner(batch, derange, make_generator(generator))


def draw_partner(batch: int, derange: bool, generator: Generator) -> Tensor:
    """Draw as :func:`random_partner`, for validated options."""
    partner = torch.randperm(batch, generator=generator, device="cpu")
    # Rejection keeps the law uniform; about e = 2.7 tries on average.
    while derange and batch > 1 and bool((partner == torch.arange(batch, device="cpu")).any()):
        partner = torch.randperm(batch, generator=generator, device="cpu")
    return partner


def checked_partner(partner: Tensor | Sequence[int], batch: int) -> Tensor:
    """Return the caller's ``partner`` as an int64 CPU tensor of shape ``[B]``, or raise."""
    partner = _as_tensor("partner", partner)
    if partner.shape != (batch,) or not is_integer(partner):
        got = f"{partner.dtype} {list(partner.shape)}"
        raise ValueError(f"partner must hold {batch} integer indices, got {got}")
    return partner.long()


def sample_path(
    k: int,
    alpha: float,
    *,
    beta: float | None = None,
    rows: int = 1,
    sampler: Sampler = "iid",
    generator: Generator | None = None,
) -> Tensor:
    """Draw ordered shares 0 < λ_1 < … < λ_K < 1.

    Args:
        k: Number of interpolations.
        alpha: Parameter of Beta(α, α). 0 means no mixing: every λ is 0.
        beta: Second parameter, for Beta(α, β). None is α.
        rows: Number of paths: one for the batch, or one per pair.
        sampler: ``iid`` sorts K independent draws, as in the paper. ``stratified`` draws once in
            each of the K quantile strata; a step picked at random is still Beta(α, α).
            ``antithetic`` uses every draw λ together with 1 − λ. ``grid`` is λ_k = k / (K + 1),
            without randomness. ``stratified`` and ``antithetic`` do not support ``beta``.
        generator: A CPU generator.

    Returns:
        ``lam [K, rows]`` in float64, strictly ascending even after conversion to float32.

    Raises:
        ValueError: If an option is invalid.
    """
    check_whole("k", k)
    check_alpha(alpha)
    check_choice("sampler", sampler, get_args(Sampler))
    check_whole("rows", rows)
    if beta is not None:
        check_beta(beta, sampler)
    return draw_path(k, alpha, beta, rows, sampler, make_generator(generator))


def draw_path(
    k: int, alpha: float, beta: float | None, rows: int, sampler: Sampler, generator: Generator
) -> Tensor:
    """Draw as :func:`sample_path`, for validated options."""
    if alpha == 0:
        return torch.zeros(k, rows, dtype=torch.float64, device="cpu")
    if sampler == "grid":
        steps = torch.arange(1, k + 1, dtype=torch.float64, device="cpu")
        return (steps / (k + 1)).unsqueeze(1).expand(k, rows)
    if sampler == "stratified":
        log_odds = _stratified_log_odds(k, rows, alpha, generator)
    else:
        mirrored = k // 2 if sampler == "antithetic" else 0
        log_odds = _log_odds((k - mirrored, rows), alpha, generator, beta)
        log_odds = np.sort(np.concatenate([log_odds, -log_odds[:mirrored]]), axis=0)
    lam = torch.from_numpy(log_odds).sigmoid().numpy()
    return torch.from_numpy(_separated(lam))


def _separated(lam: Array) -> Array:
    """Separate ties in ascending ``lam [K, rows]``, and keep values away from 0 and 1."""
    offset = MIN_STEP * np.arange(len(lam))[:, None]
    highest = 1 - MIN_LAM - MIN_STEP * (len(lam) - 1)
    separated: Array = np.maximum.accumulate((lam - offset).clip(MIN_LAM, highest)) + offset
    return separated


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless Beta(α, α) exists; 0 is no mixing."""
    if not isinstance(alpha, Real) or not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be finite and at least 0 (0 is no mixing), got {alpha!r}")


def check_beta(beta: float, sampler: str) -> None:
    """Raise ValueError unless ``sampler`` can draw from Beta(α, ``beta``)."""
    if not isinstance(beta, Real) or not 0 < beta < math.inf:
        raise ValueError(f"beta must be finite and above 0, or None for alpha, got {beta!r}")
    if sampler in ("stratified", "antithetic"):
        raise ValueError(f"sampler {sampler!r} supports Beta(α, α) only, got beta={beta!r}")


def checked_path(lam: Tensor | Sequence[float], batch: int) -> Tensor:
    """Return the caller's ascending ``lam`` as float64 ``[K, 1 or B]``, or raise."""
    # torch would store a list in float32, where 0.1 is another number.
    lam = _as_tensor("lam", lam, None if hasattr(lam, "dtype") else torch.float64)
    if lam.is_complex():
        raise ValueError(f"lam must be real, got {lam.dtype}")
    lam = lam.to(torch.float64)
    lam = lam.unsqueeze(1) if lam.ndim == 1 else lam
    if lam.ndim != 2 or len(lam) == 0 or lam.shape[1] not in (1, batch):
        raise ValueError(f"lam must have shape [K], [K, 1] or [K, {batch}], got {list(lam.shape)}")
    if not bool(((lam >= 0) & (lam <= 1)).all()):
        raise ValueError(f"lam must be in 0 … 1, got {lam.flatten().tolist()}")
    if not bool((lam.diff(dim=0) >= 0).all()):
        raise ValueError(f"lam must ascend along the path, got {lam[:, 0].tolist()}")
    return lam


def _as_tensor(name: str, values: Any, dtype: torch.dtype | None = None) -> Tensor:
    try:
        return torch.as_tensor(values, dtype=dtype, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a tensor or a list of numbers, got {values!r}") from None


def is_integer(values: Tensor) -> bool:
    """Whether the dtype of ``values`` is an integer type other than bool."""
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def _log_odds(
    shape: tuple[int, ...], alpha: float, generator: Generator, beta: float | None = None
) -> Array:
    """log(λ / (1 − λ)) for λ ~ Beta(α, β): a log-Gamma(α) minus a log-Gamma(β) draw.

    Gamma(α) = Gamma(α + 1) · U^(1/α) in logs, so that nothing underflows for small α.
    """
    shapes = np.empty((2, *shape))
    shapes[0], shapes[1] = alpha, alpha if beta is None else beta
    gamma = torch._standard_gamma(torch.from_numpy(shapes + 1), generator=generator)
    uniform = torch.rand((2, *shape), dtype=torch.float64, generator=generator, device="cpu")
    log_gamma = np.log(gamma.numpy()) + np.log1p(-uniform.numpy()) / shapes
    log_odds: Array = log_gamma[0] - log_gamma[1]
    return log_odds


def _stratified_log_odds(k: int, rows: int, alpha: float, generator: Generator) -> Array:
    """``[K, rows]``: Beta draws sorted into their strata, the first ``rows`` of each kept.

    The stratum of a draw is independent of its position inside it, so this is exact and needs the
    quantile function only at the K − 1 edges.
    """
    edges, draws = _stratum_edges(k, alpha), np.empty(0)
    stratum = count = np.zeros(k, np.int64)
    while count.min() < rows:
        draws = np.concatenate([draws, _log_odds((2 * k * rows + 8,), alpha, generator)])
        stratum = np.searchsorted(edges, draws, side="right")
        count = np.bincount(stratum, minlength=k)
    first = (count.cumsum() - count)[:, None]
    chosen: Array = draws[stratum.argsort(kind="stable")[first + np.arange(rows)]]
    return chosen


@lru_cache(maxsize=64)
def _stratum_edges(k: int, alpha: float) -> tuple[float, ...]:
    return tuple(stratum_edge(j, k, alpha) for j in range(1, k))


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
    """P(λ ≤ x) for λ ~ Beta(α, α), where x is the sigmoid of ``log_odds`` ≤ 0.

    x^α (1−x)^α / (α B(α, α)) · Σ_n Π_{i<n} x (2α+i) / (α+1+i), a series of positive terms.
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
