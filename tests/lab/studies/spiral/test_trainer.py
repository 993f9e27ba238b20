"""The batched trainer against one plain net, trained through the public interface with torch's own Adam."""

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

import multimix as mm
from multimix.lab.studies.spiral.data import MIXING, ORDER, START, spiral
from multimix.lab.studies.spiral.nets import SpiralNet, weights_of
from multimix.lab.studies.spiral.settings import ARMS, K1, K5, MIXED_LAYERS, NONE, SpiralSettings, method_of
from multimix.lab.studies.spiral.trainer import drawn, trained
from multimix.sampling import seeded

OTHER = {"slope": 0.3, "decay": 0.02, "alpha": 0.4, "rate": 0.003, "batch": 90, "turns": 1.5, "noise": 0.1, "flipped": 7}


def plainly_trained(method, settings, seed, dtype):
    """One net, one batch after the other; how many steps it took."""
    data, net, steps = spiral(settings, seed), SpiralNet(settings.slope, seeded(seed, START), dtype), 0
    x, target = data.x.to(dtype), one_hot(data.y, 2).to(dtype)
    adam = torch.optim.Adam(net.parameters(), lr=settings.rate, weight_decay=settings.decay)
    order, mixing = seeded(seed, ORDER), seeded(seed, MIXING)
    for _ in range(settings.epochs):
        for chosen in torch.randperm(settings.train, generator=order).split(settings.batch):
            logits, mixed = mm.mixed_logits(net, method, x[chosen], target[chosen], generator=mixing)
            adam.zero_grad()
            cross_entropy(logits, mixed).backward()
            adam.step()
            steps += 1
    return weights_of(net), steps


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
@pytest.mark.parametrize("options", [{}, OTHER], ids=["defaults", "others"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-3)])
def test_a_model_of_the_stack_is_trained_as_a_plain_net(arm, options, dtype, tolerance):
    settings = SpiralSettings(epochs=11, **options)
    method = method_of(arm, settings)
    seeds = [8, 0, 3]
    stacked = trained(method, settings, seeds, dtype=dtype)
    assert stacked.dtype == dtype
    for row, seed in zip(stacked, seeds, strict=True):
        plain, steps = plainly_trained(method, settings, seed, dtype)
        start = weights_of(SpiralNet(settings.slope, seeded(seed, START), dtype))
        assert steps >= 20
        assert float((plain - start).abs().max()) > 0.01
        torch.testing.assert_close(row, plain, rtol=0, atol=tolerance)


def test_the_three_methods_are_those_of_the_paper():
    settings = SpiralSettings()
    assert method_of(NONE, settings) == mm.NoMix()
    assert method_of(K1, settings) == mm.ManifoldMixup(k=1, alpha=1.0, layers=("layer1", "layer2"))
    assert method_of(K5, settings) == mm.ManifoldMixup(k=5, alpha=1.0, layers=("layer1", "layer2"))


def test_every_model_has_its_own_draws_and_both_layers_occur():
    settings, x = SpiralSettings(), torch.zeros(3, 2, 144)
    generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
    again = [torch.Generator().manual_seed(seed) for seed in range(3)]
    layers = set()
    for _ in range(10):
        draws = drawn(method_of(K5, settings), settings, x, generators)
        for place, generator in enumerate(again):
            plan = method_of(K5, settings).plan(x[place].T, generator=generator)
            layers.add(plan.layer)
            assert torch.equal(draws.partner[place, 0], plan.partner)
            assert torch.equal(draws.partner[place, 0][draws.inverse[place, 0]], torch.arange(144))
            assert torch.equal(draws.lam[place].flatten(), plan.share.flatten().float())
            slopes = (1.0, 0.1) if plan.layer == "layer1" else (0.1, 1.0)
            assert (float(draws.before[place]), float(draws.after[place])) == pytest.approx(slopes)
    assert layers == set(MIXED_LAYERS)
    assert drawn(method_of(NONE, settings), settings, x, generators) is None


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_a_seed_ends_at_the_same_bits_whoever_is_beside_it(arm):
    settings = SpiralSettings(epochs=40)
    method = method_of(arm, settings)
    whole = dict(zip(range(7), trained(method, settings, range(7)), strict=True))
    for group in ([4], [6, 2], [5, 1, 0]):
        for seed, row in zip(group, trained(method, settings, group), strict=True):
            assert torch.equal(row, whole[seed])


def test_ticks_count_epochs_and_the_global_stream_stays():
    before, ticks = torch.get_rng_state(), []
    trained(method_of(K5, SpiralSettings()), SpiralSettings(epochs=3), [1], tick=lambda: ticks.append(1))
    assert len(ticks) == 3
    assert torch.equal(torch.get_rng_state(), before)


def test_diverged_weights_are_refused():
    with pytest.raises(ValueError, match="training must end with finite weights, got NaN or infinity for seed 5"):
        trained(method_of(NONE, SpiralSettings()), SpiralSettings(epochs=4, rate=1e30), [5])
