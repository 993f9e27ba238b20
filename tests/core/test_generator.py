import pytest
import torch

import multimix as mm
from multimix.core.sampling import seeded


class DeviceGenerator(torch.Generator):
    """Stands for a generator on an accelerator, which a CPU build cannot make."""

    device = torch.device("cuda", 0)


def test_a_generator_on_an_accelerator_is_rejected():
    with pytest.raises(ValueError, match="generator must be on the CPU"):
        mm.InputMixup().plan(torch.zeros(2, 1), generator=DeviceGenerator())


def test_a_number_is_not_a_generator():
    with pytest.raises(TypeError, match="generator must be a torch.Generator"):
        mm.InputMixup().plan(torch.zeros(2, 1), generator=3)


def test_manual_seed_rewinds_the_draws_also_later_in_the_process():
    def draws(seed):
        torch.manual_seed(seed)
        return [float(mm.random.sample_path(1, 1.0)) for _ in range(3)]

    first, again, other = draws(1), draws(1), draws(2)
    assert first == again
    assert len({*first, *other}) == 6


@pytest.mark.parametrize("seed", [None, 0])
def test_reseeding_gives_a_mix_the_same_pairs_unless_it_has_a_seed_of_its_own(seed):
    mix, x, y = mm.Mix(mm.CutMix(k=2), 6, seed=seed), torch.rand(6, 1, 8, 8), torch.arange(6)

    def mixed():
        torch.manual_seed(0)
        return mix(x, y)[0]

    assert torch.equal(mixed(), mixed()) == (seed is None)


def test_a_call_moves_torchs_stream_by_one_number_whatever_it_draws_and_not_at_all_with_a_generator():
    x = torch.zeros(8, 1, 9, 9)

    def after(call):
        torch.manual_seed(3)
        call()
        return float(torch.rand(()))

    one = after(lambda: mm.random.random_partner(4))
    assert one != after(lambda: None)
    for method in (
        mm.CutMix(),
        mm.FMix(k=5, per_pair=True),
        mm.OneOf((mm.InputMixup(k=3, p=0.5), mm.CutMix())),
    ):
        assert after(lambda: method.plan(x)) == one  # noqa: B023
        assert after(lambda: method.plan(x, generator=seeded(1))) == after(lambda: None)  # noqa: B023


def test_ranks_that_are_seeded_alike_draw_differently_and_stay_alike_in_torchs_stream(monkeypatch):
    def draws(rank):
        monkeypatch.setenv("RANK", str(rank))
        torch.manual_seed(0)
        return float(mm.random.sample_path(1, 1.0)), float(torch.rand(()))

    first, second = draws(0), draws(1)
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_the_state_of_the_default_stream_can_be_saved_and_restored(tmp_path):
    x = torch.zeros(8, 1, 9, 9)
    torch.save(mm.random.random_state(), tmp_path / "state.pt")
    first = mm.FMix(k=3).plan(x)
    mm.FMix(k=3).plan(x)
    mm.random.set_random_state(torch.load(tmp_path / "state.pt", weights_only=True))
    again = mm.FMix(k=3).plan(x)
    assert torch.equal(first.mask, again.mask)
    assert torch.equal(first.partner, again.partner)
    with pytest.raises(ValueError, match="state must be"):
        mm.random.set_random_state(3)


def test_a_mix_without_a_seed_resumes_by_its_own_state():
    mix, x, y = mm.Mix(mm.CutMix(), 6), torch.rand(6, 1, 8, 8), torch.arange(6)
    state = mix.state_dict()
    assert torch.equal(state["generator"], mm.random.random_state()), "asking for the state draws nothing"
    first = mix(x, y)[0]
    mix.load_state_dict(state)
    assert torch.equal(mix(x, y)[0], first)


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
