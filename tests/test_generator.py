import pytest
import torch

import multimix as mm
from multimix.sampling import resolved, seeded


class ElsewhereGenerator:
    """Stands for a generator on an accelerator, which a CPU build cannot make."""

    device = torch.device("cuda", 0)


def test_a_generator_elsewhere_is_refused():
    with pytest.raises(ValueError, match="generator must be on the CPU, .* got one on cuda:0"):
        mm.InputMixup().plan(torch.zeros(2, 1), generator=ElsewhereGenerator())


def test_a_number_is_no_generator():
    with pytest.raises(TypeError, match=r"generator must be a torch.Generator, .* got 3"):
        mm.InputMixup().plan(torch.zeros(2, 1), generator=3)


def test_manual_seed_makes_a_run_repeatable_without_being_moved():
    def draws(seed):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        lam = [float(mm.sample_path(1, 1.0)) for _ in range(3)]
        assert torch.equal(torch.get_rng_state(), state)
        return lam

    first, other, again = draws(1), draws(2), draws(1)
    assert first == again
    assert len({*first, *other}) == 6


def test_the_global_stream_has_no_influence():
    torch.manual_seed(3)
    resolved(None).manual_seed(0)
    first = float(mm.sample_path(1, 1.0))
    resolved(None).manual_seed(0)
    torch.rand(17)
    assert float(mm.sample_path(1, 1.0)) == first


def test_near_seeds_give_unrelated_streams():
    draws = {float(torch.rand((), generator=seeded(a, b))) for a in range(10) for b in range(10)}
    assert len(draws) == 100


def test_state_can_be_saved_and_restored():
    generator = torch.Generator().manual_seed(5)
    x = torch.zeros(8, 1, 9, 9)
    mm.FMix(k=3).plan(x, generator=generator)
    state = generator.get_state()
    first = mm.FMix(k=3).plan(x, generator=generator)
    generator.set_state(state)
    again = mm.FMix(k=3).plan(x, generator=generator)
    assert torch.equal(first.mask, again.mask)
    assert torch.equal(first.partner, again.partner)
