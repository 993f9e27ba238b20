"""Monte Carlo: the variance of a training step's gradient at fixed weights, from batches drawn as in training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor, nn

from ....core.checks import check_choice, check_whole
from ....core.plan import Plan, SharePlan
from ....core.sampling import random_partner, sample_path, seeded
from ....methods import InputMixup, ManifoldMixup, Method, PairMethod
from .gradients import MAX_ROWS, Gradients
from .parts import check_pairs, deviations, mean_estimate, paired_ratio, squared_norm
from .theory import Estimate

Pairing = Literal["independent", "permutation"]


class MeasuredVariance(NamedTuple):
    """The variance at one K.

    Args:
        k: Interpolations per pair.
        variance: Trace variance.
        squared_norm: E‖g̃‖².
        printed: E‖g̃‖² − (E‖g̃‖)², as printed in the paper.
        ratio: Variance relative to the first K of the same draws; None if every K has draws of its own.
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
    """Measure the variance of the gradient of one step for every K.

    For ``InputMixup`` and ``ManifoldMixup`` with iid shares all K see the same pairs, and fewer shares are the first of the
    more; other methods and samplers are drawn anew for every K.

    Args:
        model: A module that maps a batch to logits, in evaluation mode.
        method: A method that mixes pairs in every batch. Its ``k`` does not matter.
        x: ``[N, …]`` samples that batches are drawn from.
        y: Their labels.
        ks: Values of K.
        batch: Pairs per batch, B.
        pairing: ``permutation`` pairs a batch, drawn without replacement, with itself, as training does; ``independent`` pairs
            are drawn with replacement, as the proofs assume.
        replicates: Independent batches.
        seed: Seed of all draws.

    Returns:
        One entry per K.
    """
    kind = check_pairs(method)
    check_choice("pairing", pairing, get_args(Pairing))
    if not ks:
        raise ValueError("ks must not be empty")
    for name, size in (*(("k", k) for k in ks), ("batch", batch), ("replicates", replicates)):
        check_whole(name, size)
    if pairing == "permutation" and batch > len(x):
        raise ValueError(f"batch must be at most the number of samples, {len(x)}, got {batch}")
    grads = Gradients(model, x, y)
    if kind.sampler != "iid" or not isinstance(kind, InputMixup | ManifoldMixup):
        alone = [grads_of_batches(grads, replace(kind, k=k), batch, pairing, replicates, seeded(seed, k)) for k in ks]
        return tuple(_measured(k, grad) for k, grad in zip(ks, alone, strict=True))
    steps = grads_of_batches(grads, replace(kind, k=max(ks)), batch, pairing, replicates, seeded(seed), by_step=True)
    running = torch.unflatten(steps, 0, (replicates, -1)).double().cumsum(1)
    first = deviations(running[:, ks[0] - 1] / ks[0])
    return tuple(_measured(k, running[:, k - 1] / k, first) for k in ks)


def grads_of_batches(
    grads: Gradients,
    method: PairMethod,
    batch: int,
    pairing: Pairing,
    replicates: int,
    generator: Generator,
    by_step: bool = False,
) -> Tensor:
    """Return the gradients of R batches ``[R, D]``, or of their K interpolations in random order ``[R·K, D]``."""
    found = []
    for part in torch.split(torch.arange(replicates), max(1, MAX_ROWS // (method.k * batch))):
        drawn = [_draw_batch(grads.x, method, batch, pairing, generator, by_step) for _ in part]
        plans = [step for _, plan in drawn for step in ([plan[k] for k in range(method.k)] if by_step else [plan])]
        rows = torch.stack([rows for rows, _ in drawn]).repeat_interleave(method.k if by_step else 1, 0)
        found.append(grads.of_plans(plans, rows, batch))
    return torch.cat(found)


def _draw_batch(
    x: Tensor, method: PairMethod, batch: int, pairing: Pairing, generator: Generator, shuffle: bool
) -> tuple[Tensor, Plan]:
    """Return indices of samples ``[n]`` and their plan, of which the first B pairs count."""
    if pairing == "permutation":
        rows = torch.randperm(len(x), generator=generator)[:batch]
        partner = random_partner(batch, derange=method.derange, generator=generator)
    else:
        # The second half of the rows are the partners of the first.
        rows = torch.randint(len(x), (2 * batch,), generator=generator)
        partner = torch.arange(2 * batch).roll(batch)
    lam = sample_path(method.k, method.alpha, rows=batch if method.per_pair else 1, sampler=method.sampler, generator=generator)
    if method.per_pair and pairing == "independent":
        lam = torch.cat([lam, lam], dim=1)
    plan = method.plan(x[rows], partner=partner, lam=lam, generator=generator)
    if shuffle:
        # A path is sorted: its first share is the smallest, not a Beta draw.
        assert isinstance(plan, SharePlan)
        order = torch.rand(plan.share.shape, generator=generator).argsort(0)
        plan = replace(plan, share=plan.share.gather(0, order))
    return rows, plan


def _measured(k: int, grad: Tensor, first: Tensor | None = None) -> MeasuredVariance:
    spread, norm = deviations(grad), squared_norm(grad)
    printed = norm.value - float(grad.double().norm(dim=1).mean()) ** 2
    return MeasuredVariance(k, mean_estimate(spread), norm, printed, None if first is None else paired_ratio(spread, first))
