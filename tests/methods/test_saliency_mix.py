"""SaliencyMix: boxes at the partner's peak, equal to the slow loops, and what its card promises."""

import math

import pytest
import torch
from torch import nn

import box_family_oracles as slow
import multimix as mm
from multimix.methods.saliency_mix import SaliencyMix, fine_saliency, peaks
from oracles import seeded

FITS, GRIDS = ["clip", "shift"], ["continuous", "integer"]


def images(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed))


def one_hot_maps(places, size):
    maps = torch.zeros(len(places), *size)
    for i, place in enumerate(places):
        maps[(i, *place)] = 1.0
    return maps


@pytest.mark.parametrize("box", FITS)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("shape", [(5, 3, 7, 11), (1, 1, 6, 5), (3, 2, 13), (2, 1, 3, 4, 5)], ids=str)
def test_equal_to_the_slow_loop(box, grid, reference, shape):
    x = images(*shape)
    partner = torch.randperm(shape[0], generator=seeded(1))
    lam = [0.0, 0.02, 0.31, 0.65, 0.97]
    method = SaliencyMix(k=5, box=box, grid=grid, reference=reference)
    mixed = method.plan(x, partner=partner, lam=lam).mix(x).unflatten(0, (5, shape[0]))
    maps = [slow.fine_saliency(image) for image in x]
    for k, share in enumerate(lam):
        expected = slow.saliency_mix(x, partner.tolist(), share, maps=maps, box=box, grid=grid, reference=reference)
        assert torch.equal(mixed[k], expected)
        assert torch.equal(
            SaliencyMix(box=box, grid=grid, reference=reference).plan(x, partner=partner, lam=[share]).mix(x), expected
        )


@pytest.mark.parametrize("box", FITS)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("size", [(8, 11), (5, 3), (9,), (3, 4, 5)], ids=str)
def test_the_peak_is_inside_every_box_that_is_not_empty(box, grid, size):
    """Every place of the image in turn is the peak, the corners too."""
    everywhere = [tuple(int(i) for i in torch.unravel_index(torch.tensor(n), size)) for n in range(math.prod(size))]
    maps = one_hot_maps(everywhere, size)
    x = images(len(maps), 1, *size)
    partner = torch.randperm(len(x), generator=seeded(2))
    plan = SaliencyMix(k=9, box=box, grid=grid).plan(x, saliency=maps, partner=partner, lam=torch.linspace(0, 1, 9))
    at_peak = (plan.mask * maps[partner].unsqueeze(1)).flatten(2).sum(2)
    assert torch.equal(at_peak, (plan.lam > 0).float())
    assert (plan.mask.diff(dim=0) >= 0).all()
    assert (plan.lam[-1] > 0).all()


def test_box_follows_the_partner_and_not_the_sample():
    size, places = (16, 12), [(2, 3), (13, 9), (7, 6)]
    x, maps = images(3, 1, *size), one_hot_maps(places, size)
    partner = torch.tensor([1, 2, 0])
    plan = SaliencyMix(saliency_from="gradient").plan(x, saliency=maps, partner=partner, lam=[0.1])
    center = (plan.low + plan.high)[0].double() / 2
    assert center.tolist() == [[float(p) for p in places[j]] for j in partner]
    batch_wide = SaliencyMix(reference=True).plan(x, saliency=maps, partner=partner, lam=[0.1])
    assert batch_wide.low.shape[1] == 1
    assert ((batch_wide.low + batch_wide.high)[0, 0] / 2).tolist() == [13.0, 9.0]


def test_permuting_the_batch_permutes_the_boxes():
    x, order = images(8, 3, 20, 15), torch.randperm(8, generator=seeded(3))
    partner = torch.randperm(8, generator=seeded(4))
    rank = order.argsort()
    plain = SaliencyMix(k=3).plan(x, partner=partner, lam=[0.1, 0.4, 0.8])
    moved = SaliencyMix(k=3).plan(x[order], partner=rank[partner[order]], lam=[0.1, 0.4, 0.8])
    assert torch.equal(moved.low, plain.low[:, order])
    assert torch.equal(moved.high, plain.high[:, order])
    assert torch.equal(moved.mix(x[order]).unflatten(0, (3, 8)), plain.mix(x).unflatten(0, (3, 8))[:, order])


def test_a_constant_image_has_its_peak_in_the_middle():
    x = torch.full((2, 3, 10, 6), 0.37)
    plan = SaliencyMix(k=3).plan(x, lam=[0.0, 0.2, 0.5], generator=seeded(0))
    assert torch.isfinite(plan.mix(x)).all()
    assert ((plan.low + plan.high)[1:].double() / 2 == torch.tensor([5.0, 3.0])).all()


def test_where_saliency_comes_from():
    x = images(4, 3, 12, 10)
    partner, seen = torch.tensor([1, 0, 3, 2]), []

    def darkest(images):
        seen.append(images)
        return (images.amax() - images).mean(1)

    plan = SaliencyMix(saliency_from=darkest).plan(x, partner=partner, lam=[0.2])
    expected = SaliencyMix(saliency_from="gradient").plan(x, saliency=(x.amax() - x).mean(1), partner=partner, lam=[0.2])
    assert torch.equal(plan.low, expected.low)
    assert torch.equal(seen[0], x)
    handed = SaliencyMix(saliency_from=darkest).plan(x, saliency=fine_saliency(x), partner=partner, lam=[0.2])
    assert torch.equal(handed.low, SaliencyMix().plan(x, partner=partner, lam=[0.2]).low)
    assert SaliencyMix().traits.needs == ()
    assert SaliencyMix(saliency_from="gradient").traits.needs == ("saliency",)


def test_gradient_asks_the_model_and_fine_does_not():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))
            self.rows = []

        def forward(self, z):
            self.rows.append(len(z))
            return z[:, :, 2, 3] + self.weight

    x, y, model = images(4, 3, 6, 5), torch.tensor([0, 1, 2, 0]), Counting()
    mm.mixed_forward(model, SaliencyMix(k=2), x, y, generator=seeded(0))
    assert model.rows == [8]
    model.rows.clear()
    method = SaliencyMix(k=2, saliency_from="gradient", box="shift")
    out = mm.mixed_forward(model, method, x, y, lam=[0.3, 0.6], generator=seeded(0))
    logits, target = out.logits, out.target
    assert model.rows == [4, 8]
    # The one place the model looks at is in every box, so all logits are the partner's.
    partner = method.plan(x, saliency=torch.ones(4, 6, 5), lam=[0.3, 0.6], generator=seeded(0)).partner
    assert torch.equal(logits, x[:, :, 2, 3][partner].repeat(2, 1))
    assert target.shape == (8, 3)


def test_normalisation_reaches_the_map():
    """Two channels that cancel each other until the scale is undone."""
    x = images(3, 3, 14, 14, seed=5)
    std = (0.01, 0.01, 3.0)
    plan = SaliencyMix(std=std, mean=[0.1, 0.2, 0.3]).plan(x, partner=torch.tensor([1, 2, 0]), lam=[0.2])
    center = peaks(fine_saliency(x, std=std))[plan.partner]
    assert all((plan.low[0, i] <= center[i]).all() and (center[i] < plan.high[0, i]).all() for i in range(3))
    assert not torch.equal(center, peaks(fine_saliency(x))[plan.partner])


def test_area_at_a_peak_in_the_middle_is_lam_up_to_rounding():
    """Nothing is clipped there, so λ̂ is the product of two even sides, whatever the draw."""
    x, maps = torch.zeros(1).expand(4000, 1, 32, 24), torch.zeros(1, 32, 24)
    maps[0, 16, 12] = 1
    plan = SaliencyMix(per_pair=True).plan(x, saliency=maps.expand(4000, 32, 24), generator=seeded(6))
    lam = mm.random.sample_path(1, 1.0, rows=4000, generator=_after_pairing(4000, 6))
    sides = [2 * ((side * lam.sqrt()).floor() / 2).floor() for side in (32, 24)]
    assert torch.equal(plan.lam, sides[0] * sides[1] / (32 * 24))
    # E of the product for λ ~ U(0, 1), by a fine sum over λ.
    fine = torch.linspace(0, 1, 200_001, dtype=torch.float64)[1:] - 2.5e-6
    area = torch.stack([2 * ((side * fine.sqrt()).floor() / 2).floor() for side in (32, 24)]).prod(0) / (32 * 24)
    assert float(plan.lam.mean()) == pytest.approx(float(area.mean()), abs=4.5 * float(area.std()) / math.sqrt(4000))


def _after_pairing(batch, seed):
    generator = seeded(seed)
    mm.random.random_partner(batch, generator=generator)
    return generator


def test_options_are_checked():
    for options, sentence in [
        ({"saliency_from": "fin"}, "saliency_from"),
        ({"std": (1.0, -1.0)}, "std must"),
        ({"mean": "a"}, "mean must"),
        ({"box": "clips"}, "box"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            SaliencyMix(**options)
    with pytest.raises(ValueError, match="SaliencyMix needs x of shape"):
        SaliencyMix().plan(torch.randn(3, 4))
    with pytest.raises(ValueError, match="saliency must"):
        SaliencyMix(saliency_from=lambda x: x.mean((1, 2))).plan(torch.randn(2, 1, 4, 4))
