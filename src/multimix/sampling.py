"""Where draws come from when the caller gives no generator.

Every call without ``generator=`` takes one number from torch's CPU stream, whatever it then draws, and draws from a stream of its
own that this number and the distributed rank seed. So ``torch.manual_seed`` rewinds the draws, also in the middle of a process;
ranks that are seeded alike draw differently and stay alike in torch's stream; data-loader workers, which torch seeds, differ.
With a ``generator`` torch's stream is neither used nor moved.
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
from torch import Generator, Tensor

from .checks import check_choice, check_whole

RANKS_APART = 0x9E3779B97F4A7C15
NUMBER = torch.zeros((), dtype=torch.int64, device="cpu")
IS_DISTRIBUTED = torch.distributed.is_available()


def resolved(generator: torch.Generator | None, *, ranks_alike: bool = False) -> torch.Generator:
    """The generator to draw from: the given one, or a new one for this call, seeded from torch's CPU stream and the rank.

    With ``ranks_alike`` the rank has no influence: for the first weights of networks that all ranks train together.
    """
    if generator is None:
        drawn = torch.empty_like(NUMBER).random_()
        # No hash as for seeds that people choose: the number is random already, and ranks need only differ.
        return torch.Generator().manual_seed((int(drawn) + (0 if ranks_alike else RANKS_APART * rank())) % 2**63)
    if not hasattr(generator, "device"):
        raise TypeError(f"generator must be a torch.Generator, such as torch.Generator().manual_seed(0), got {generator!r}")
    if generator.device.type != "cpu":
        raise ValueError(
            f"generator must be on the CPU, where all draws are made before one transfer, got one on {generator.device}"
        )
    return generator


def seeded(*parts: int) -> torch.Generator:
    """A generator whose stream is a function of all ``parts``; near seeds give unrelated streams."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))


def rank() -> int:
    """This process's distributed rank: that of its group, or what torchrun says (spawned workers have no group), or 0."""
    if IS_DISTRIBUTED and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    said = os.environ.get("RANK", "0")
    return int(said) if said.isdecimal() else 0


def random_state() -> Tensor:
    """The state of all draws that are made without a generator, for checkpoints: that of torch's CPU stream."""
    return torch.get_rng_state()


def set_random_state(state: Tensor) -> None:
    """Go on from where :func:`random_state` was taken; torch's own draws on the CPU, such as those of dropout, do so, too."""
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.ndim != 1:
        got = f"{state.dtype} {list(state.shape)}" if isinstance(state, Tensor) else type(state).__name__
        raise ValueError(f"state must be what multimix.random_state() returned, got {got}")
    torch.set_rng_state(state.cpu())


def random_partner(batch: int, *, derange: bool = False, generator: Generator | None = None) -> Tensor:
    """``partner [B]``: a uniformly random permutation of the batch; sample ``i`` is mixed with sample ``partner[i]``.

    A permutation has one fixed point on average: that row is paired with itself and stays as it is. With ``derange`` the
    permutation is uniform among those without fixed points (a batch of one is still its own partner).
    """
    check_whole("batch", batch)
    return drawn_partner(batch, derange, resolved(generator))


def drawn_partner(batch: int, derange: bool, generator: Generator) -> Tensor:
    """:func:`random_partner` for options that have been checked."""
    partner = torch.randperm(batch, generator=generator, device="cpu")
    # Rejection keeps the law uniform; about e = 2.7 tries on average.
    while derange and batch > 1 and bool((partner == torch.arange(batch, device="cpu")).any()):
        partner = torch.randperm(batch, generator=generator, device="cpu")
    return partner


def checked_partner(partner: Tensor, batch: int) -> Tensor:
    """``partner`` as a CPU index tensor, or ValueError with what is wrong with it."""
    partner = _as_tensor("partner", "indices", partner)
    if partner.shape != (batch,) or not is_integer(partner):
        raise ValueError(f"partner must hold one index per sample, shape [{batch}], got {partner.dtype} {list(partner.shape)}")
    partner = partner.long()
    if int(partner.min()) < 0 or int(partner.max()) >= batch:
        raise ValueError(f"partner must index the batch, 0 to {batch - 1}, got {int(partner.min())} to {int(partner.max())}")
    return partner


Sampler = Literal["iid", "stratified", "antithetic", "grid"]

# Keeps 0 < λ < 1 through a later cast to float32, which for α = 0.2 turns 1.65 % of the draws into exactly 1.
EDGE = 1e-6
# What two steps of a path differ by at least: enough for float32, and a power of two, so that no other draw is rounded.
GAP = 2.0**-23


def sample_path(
    k: int,
    alpha: float,
    *,
    beta: float | None = None,
    rows: int = 1,
    sampler: Sampler = "iid",
    generator: Generator | None = None,
) -> Tensor:
    """``lam [K, rows]`` in float64, 0 < λ_1 < … < λ_K < 1, in float32, too; one column per pair, or one for the batch.

    ``iid`` sorts K independent Beta(α, α) draws, as the paper does. ``stratified`` draws once inside each of the K quantile
    strata [(k−1)/K, k/K): ordered by construction, and a step picked at random is still exactly Beta(α, α). ``antithetic`` takes
    every draw λ together with 1 − λ (an odd K has one draw without its mirror image), with the same law of a step picked at
    random. ``grid`` draws nothing and has no law: λ_k = k/(K+1), whatever α. With α = 0 there is no mixing and every λ is 0. With
    ``beta`` the law is Beta(α, β), which ``stratified`` and ``antithetic`` do not know.
    """
    check_path_options(k, alpha, sampler)
    check_whole("rows", rows)
    if beta is not None:
        check_second(beta, sampler)
    return drawn_path(k, alpha, beta, rows, sampler, generator)


def drawn_path(
    k: int, alpha: float, beta: float | None, rows: int, sampler: Sampler, generator: Generator | None = None
) -> Tensor:
    """:func:`sample_path` for options that have been checked."""
    if alpha == 0:
        return torch.zeros(k, rows, dtype=torch.float64, device="cpu")
    if sampler == "grid":
        return (torch.arange(1, k + 1, dtype=torch.float64, device="cpu") / (k + 1)).unsqueeze(1).expand(k, rows)
    generator = resolved(generator)
    if sampler == "iid" and rows == 1:
        return _one_path(k, alpha, alpha if beta is None else beta, generator)
    if sampler == "stratified":
        log_odds = _stratified_log_odds(k, rows, alpha, generator)
    else:
        mirrored = k // 2 if sampler == "antithetic" else 0
        log_odds = _log_odds((k - mirrored, rows), alpha, generator, beta)
        log_odds = torch.cat([log_odds, -log_odds[:mirrored]]) if mirrored else log_odds
        log_odds = log_odds.sort(dim=0).values if k > 1 else log_odds
    return _apart(log_odds.sigmoid())


def _apart(lam: Tensor) -> Tensor:
    """``lam [K, rows]``, ascending, with ties and what lies too near to 0 or 1 moved by as little as makes it strict."""
    if len(lam) == 1:
        return lam.clamp(EDGE, 1 - EDGE)
    offset = GAP * torch.arange(len(lam), dtype=lam.dtype, device="cpu").unsqueeze(1)
    return (lam - offset).clamp(EDGE, 1 - EDGE - float(offset[-1])).cummax(0).values + offset


def check_path_options(k: int, alpha: float, sampler: str) -> None:
    """Raise ValueError unless K, α and the sampler are usable."""
    check_whole("k", k)
    if not isinstance(alpha, Real) or not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be finite and at least 0 (0 is no mixing), got {alpha!r}")
    check_choice("sampler", sampler, get_args(Sampler))


def check_second(beta: float, sampler: str) -> None:
    """Raise ValueError unless Beta(α, ``beta``) can be drawn from by the sampler."""
    if not isinstance(beta, Real) or not 0 < beta < math.inf:
        raise ValueError(f"beta must be finite and above 0, or None for alpha, got {beta!r}")
    if sampler in ("stratified", "antithetic"):
        raise ValueError(f"sampler {sampler!r} knows Beta(α, α) only, got beta={beta!r}")


def checked_path(lam: Tensor | Sequence[float], batch: int) -> Tensor:
    """A path given by the caller as float64 ``[K, 1 or B]``: never clamped, but it must be ordered and within [0, 1]."""
    # A list is taken as it is written: in torch's own float32, 0.1 would be another number.
    lam = _as_tensor("lam", "real numbers", lam, None if hasattr(lam, "dtype") else torch.float64)
    if lam.is_complex():
        raise ValueError(f"lam must be real, got {lam.dtype}")
    lam = lam.to(torch.float64)
    lam = lam.unsqueeze(1) if lam.ndim == 1 else lam
    if lam.ndim != 2 or len(lam) == 0 or lam.shape[1] not in (1, batch):
        raise ValueError(f"lam must have shape [K], [K, 1] or [K, {batch}], got {list(lam.shape)}")
    if not bool(((lam >= 0) & (lam <= 1)).all()):
        raise ValueError(f"lam must lie in 0 … 1, got {lam.flatten().tolist()}")
    if not bool((lam.diff(dim=0) >= 0).all()):
        raise ValueError(f"lam must ascend along the path, got {lam[:, 0].tolist()}")
    return lam


def _as_tensor(name: str, what: str, values: Any, dtype: torch.dtype | None = None) -> Tensor:
    """``values`` as a tensor on the CPU: they may come as a list, an array or a tensor."""
    try:
        return torch.as_tensor(values, dtype=dtype, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a tensor or a list of {what}, got {values!r}") from None


def is_integer(values: Tensor) -> bool:
    """Whether ``values`` are whole numbers; True and False are none."""
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


# α + 1 and β + 1 as tensors, for the few kinds of paths that a process draws; a cache would make torch.compile warn.
_ABOVE: dict[tuple[int, float, float], Tensor] = {}
MOST_PATHS = 64


def _one_path(k: int, alpha: float, beta: float, generator: Generator) -> Tensor:
    """``[K, 1]``: sorted draws as :func:`_log_odds` makes them, in Python's numbers: calls of torch take longer than the work."""
    above = _ABOVE.get((k, alpha, beta))
    is_new = above is None
    if above is None:
        above = torch.from_numpy(np.array([alpha] * k + [beta] * k, np.float64) + 1)
    gamma = torch._standard_gamma(above, generator=generator).tolist()
    if is_new and len(_ABOVE) < MOST_PATHS:  # now that it has turned out to be a tensor with numbers
        _ABOVE[k, alpha, beta] = above
    uniform = torch.rand(2 * k, dtype=torch.float64, generator=generator, device="cpu").tolist()
    odds = []
    for i in range(k):
        own = math.log(gamma[i]) + math.log1p(-uniform[i]) / alpha
        other = math.log(gamma[k + i]) + math.log1p(-uniform[k + i]) / beta
        # Beyond ±40 λ is at an edge anyway, and the exponential might overflow.
        odds.append(math.exp(max(-40.0, min(own - other, 40.0))))
    odds.sort()
    lam, least, most = [], EDGE, 1 - EDGE - GAP * (k - 1)
    for i, ratio in enumerate(odds):  # :func:`_apart`
        least = max(least, min(ratio / (1 + ratio) - GAP * i, most))
        lam.append([least + GAP * i])
    return torch.from_numpy(np.array(lam))


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
