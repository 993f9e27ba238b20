"""Monte Carlo: the variance of a training step's gradient at fixed weights, batch by batch as training would draw them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor, nn

from ....core.checks import check_choice
from ....core.plan import Plan, SharePlan
from ....core.sampling import random_partner, sample_path, seeded
from ....methods import InputMixup, ManifoldMixup, Method, PairMethod
from .gradients import ROWS, Gradients
from .parts import check_pairs, deviations, mean_estimate, paired_ratio, squared_norm
from .theory import Estimate, check_size

Pairing = Literal["independent", "permutation"]


class MeasuredVariance(NamedTuple):
    """One K: trace variance, E‖g̃‖², the paper's printed E‖g̃‖² − (E‖g̃‖)², and the ratio to the first K of the same draws.

    Where every K has draws of its own there is no ``ratio``.
    """

    k: int
    variance: Estimate
    squared_norm: Estimate
    printed: float
    ratio: Estimate | None


def measure_variance(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    ks: Sequence[int] = (1, 3, 5, 7, 9),
    batch: int = 64,
    pairing: Pairing = "permutation",
    replicates: int = 1000,
    seed: int = 0,
) -> tuple[MeasuredVariance, ...]:
    """The variance of the gradient of one step for every K, from ``replicates`` independent batches.

    ``independent`` pairs are drawn with replacement, as the proofs assume; a ``permutation`` pairs a batch, drawn without
    replacement, with itself, as training does. λ per batch or per pair, the sampler, α and everything else is the method's own;
    its k does not matter. For InputMixup and ManifoldMixup with iid shares all K see the same pairs, and fewer shares are some of
    the more; other methods and samplers are drawn afresh for every K.
    """
    kind = check_pairs(method)
    check_choice("pairing", pairing, get_args(Pairing))
    if not ks:
        raise ValueError("ks must hold at least one K, got none")
    for k in ks:
        check_size("k", k)
    if pairing == "permutation" and batch > len(x):
        raise ValueError(f"batch must be at most the number of samples, {len(x)}, got {batch}")
    check_size("batch", batch)
    check_size("replicates", replicates)
    grads = Gradients(model, x, y)
    if kind.sampler != "iid" or not isinstance(kind, InputMixup | ManifoldMixup):
        alone = [grads_of_steps(grads, replace(kind, k=k), batch, pairing, replicates, seeded(seed, k), False) for k in ks]
        return tuple(_measured(k, grad) for k, grad in zip(ks, alone, strict=True))
    steps = grads_of_steps(grads, replace(kind, k=max(ks)), batch, pairing, replicates, seeded(seed), True)
    running = steps.double().cumsum(1)
    first = deviations(running[:, ks[0] - 1] / ks[0])
    return tuple(_measured(k, running[:, k - 1] / k, first) for k in ks)


def grads_of_steps(
    grads: Gradients, method: PairMethod, batch: int, pairing: Pairing, replicates: int, generator: Generator, by_step: bool
) -> Tensor:
    """``[R, D]``, or ``[R, K, D]`` by step: the gradients at K shares in random order, of which the first few are fewer draws."""
    found = []
    most = max(1, ROWS // (method.k * batch))
    for start in range(0, replicates, most):
        drawn = [_draw_batch(grads.x, method, batch, pairing, generator, by_step) for _ in range(min(most, replicates - start))]
        found.append(
            grads.of_plans([plan for _, plan in drawn], torch.stack([rows for rows, _ in drawn]), batch, by_step=by_step)
        )
    return torch.cat(found)


def _draw_batch(
    x: Tensor, method: PairMethod, batch: int, pairing: Pairing, generator: Generator, shuffle: bool
) -> tuple[Tensor, Plan]:
    """Indices of samples ``rows [n]`` and the plan for them, of which the first B pairs count."""
    if pairing == "permutation":
        rows = torch.randperm(len(x), generator=generator)[:batch]
        partner = random_partner(batch, derange=method.derange, generator=generator)
    else:
        # The second half of the rows holds the partners of the first.
        rows = torch.randint(len(x), (2 * batch,), generator=generator)
        partner = torch.arange(2 * batch).roll(batch)
    lam = sample_path(method.k, method.alpha, rows=batch if method.per_pair else 1, sampler=method.sampler, generator=generator)
    if method.per_pair and pairing == "independent":
        lam = torch.cat([lam, lam], dim=1)
    plan = method.plan(x[rows], partner=partner, lam=lam, generator=generator)
    if shuffle:
        # The first share of a sorted path is the smallest, and no Beta draw.
        assert isinstance(plan, SharePlan)
        order = torch.rand(plan.share.shape, generator=generator).argsort(0)
        plan = replace(plan, share=plan.share.gather(0, order))
    return rows, plan


def _measured(k: int, grad: Tensor, first: Tensor | None = None) -> MeasuredVariance:
    own, norm = deviations(grad), squared_norm(grad)
    printed = norm.value - float(grad.double().norm(dim=1).mean()) ** 2
    return MeasuredVariance(k, mean_estimate(own), norm, printed, None if first is None else paired_ratio(own, first))
