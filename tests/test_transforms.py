"""torch.func over a plan: vmap mixes a stack of batches as a loop does."""

import pytest
import torch

import multimix as mm
from multimix.testing import Case, cases, past, saliency
from oracles import seeded

CASES = [case for known in mm.registry.entries() for case in (cases(known) if known.mixes("images") else [Case(known, {})])]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vmap_over_mix(case):
    x = torch.rand((4, 3, 12, 10) if case.entry.mixes("images") else (4, 16, 3), generator=seeded(0))
    method = case.make(3)
    maps = saliency(x) if x.ndim == 4 else torch.rand(4, 16, generator=seeded(1))
    plan = method.plan(x, generator=seeded(0), **dict.fromkeys(method.traits.needs, maps), **past(method, x))
    stack = torch.stack([x, x.flip(0), x / 2])
    mixed = torch.func.vmap(plan.mix)(stack)
    inner = torch.func.vmap(plan.mix, in_dims=1)(stack.transpose(0, 1).contiguous())
    torch.testing.assert_close(inner, mixed)
    torch.testing.assert_close(mixed, torch.stack([plan.mix(z) for z in stack]), atol=1e-6, rtol=1e-6)


def test_gradients_of_every_sample():
    """vmap over grad, as for gradients of single batches."""
    plan = mm.CutMix(k=2).plan(torch.rand(4, 3, 8, 8, generator=seeded(0)), generator=seeded(0))
    stack = torch.rand(5, 4, 3, 8, 8, generator=seeded(1))

    def energy(z):
        return plan.mix(z).square().sum()

    expected = []
    for z in stack:
        z = z.clone().requires_grad_()
        energy(z).backward()
        expected.append(z.grad)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(energy))(stack), torch.stack(expected))
