"""The mask network: against loops, its embedding, its losses, what it remembers and what it leaves alone."""

import re

import pytest
import torch
from torch import nn

import samix_oracle as slow
from multimix.methods.samix.block import FixedBlock, MixBlock, balanced_bce, embedded_share, mask_loss, rescaled
from oracles import seeded

CHANNELS = 6
RHO = torch.tensor([[0.85], [0.5], [0.2]], dtype=torch.float64)


def trained(block):
    return [value for value in block.parameters() if value.requires_grad]


def network(seed=0, channels=CHANNELS):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(2, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(channels, 4),
        )  # fmt: skip


def grown(block, seed=1, scale=0.7):
    """The block with weights and statistics that make a difference."""
    with torch.no_grad():
        for value in trained(block):
            value.copy_(scale * torch.randn(value.shape, generator=seeded(1000 * seed + value.numel())))
        block.norm.running_mean.copy_(torch.randn(len(block.norm.running_mean), generator=seeded(seed + 1)))
        block.norm.running_var.copy_(0.5 + torch.rand(len(block.norm.running_var), generator=seeded(seed + 2)))
    return block


def made(**options):
    return grown(MixBlock(network(), "2", CHANNELS, **options))


def features(batch=3, places=(3, 2), seed=0):
    return torch.randn(batch, CHANNELS, *places, generator=seeded(seed))


@pytest.mark.parametrize("kappa", [0.0, 0.25, 1.0, 50.0, None])
def test_embedding_rises_and_keeps_both_ends_and_the_middle(kappa):
    rho = torch.linspace(0, 1, 1001, dtype=torch.float64)
    found = embedded_share(rho, kappa)
    assert (found.diff() > 0).all()
    torch.testing.assert_close(found[[0, 500, 1000]], torch.tensor([0, 0.5, 1], dtype=torch.float64))
    torch.testing.assert_close(found + found.flip(0), torch.ones_like(found))
    expected = torch.tensor([slow.embedded(float(r), kappa) for r in rho], dtype=torch.float64)
    torch.testing.assert_close(found, expected)
    if kappa == 0.25:
        assert float(found[250]) > 0.25 + 0.05, "flatter around the middle than the identity"


@pytest.mark.parametrize("kappa", [0.25, None])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("batch", "places", "size"), [(3, (3, 2), (7, 5)), (1, (2, 2), (4, 6)), (2, (1, 1), (3, 3)), (1, (1, 1), (2, 3))], ids=str
)
def test_agrees_with_loops(kappa, training, batch, places, size):
    block, z = made(kappa=kappa).train(training), features(batch, places)
    partner = torch.arange(batch).roll(1)
    for k in (1, 3):
        found = block.masks(z, partner, RHO[:k], torch.Size(size))
        assert found.shape == (k, batch, 1, *size)
        assert found.dtype == torch.float32
        for step, rho in zip(found, RHO[:k, 0].tolist(), strict=True):
            expected = torch.tensor(slow.masks(block, z, partner.tolist(), [rho] * batch, size))
            torch.testing.assert_close(step[:, 0], expected, atol=2e-5, rtol=1e-4)
    own = torch.linspace(0.2, 0.9, batch, dtype=torch.float64)
    expected = torch.tensor(slow.masks(block, z, partner.tolist(), own.tolist(), size))
    torch.testing.assert_close(block.masks(z, partner, own[None], torch.Size(size))[0, :, 0], expected, atol=2e-5, rtol=1e-4)


def test_masks_differ_and_lie_between_0_and_1():
    block, partner = made(), torch.tensor([1, 2, 0])
    found = block.masks(features(), partner, RHO, torch.Size((7, 5)))
    assert (found.flatten(2).std(2) > 1e-3).all()
    assert (found[0] != found[1]).flatten(1).any(1).all()
    for scale in (1e-30, 1e4):
        extreme = grown(made(), scale=scale).masks(features() * scale, partner, RHO, torch.Size((7, 5)))
        assert torch.isfinite(extreme).all()
        assert (extreme > 0).all()
        assert (extreme < 1).all()


def test_a_step_does_not_depend_on_the_others_and_making_masks_leaves_no_trace():
    block, partner = made().train(), torch.tensor([1, 2, 0])
    before = {name: value.clone() for name, value in block.state_dict().items()}
    whole = block.masks(features(), partner, RHO, torch.Size((7, 5)))
    for k in range(3):
        assert torch.equal(block.masks(features(), partner, RHO[k : k + 1], torch.Size((7, 5)))[0], whole[k])
    assert not whole.requires_grad
    for name, value in block.state_dict().items():
        assert torch.equal(value, before[name])
    learning = block.masks(features(), partner, RHO[:1], torch.Size((7, 5)), learning=True)
    torch.testing.assert_close(learning[0], whole[0])
    assert learning.requires_grad
    assert not torch.equal(block.norm.running_mean, before["norm.running_mean"])


@pytest.mark.parametrize("size", [(13,), (1,), (4, 5, 3)], ids=str)
def test_signals_and_volumes(size):
    places = tuple(-(-side // 2) for side in size)
    block = made().eval()
    z = features(3, places)
    found = block.masks(z, torch.tensor([1, 2, 0]), RHO, torch.Size(size))
    assert found.shape == (3, 3, 1, *size)
    if len(size) == 1:
        flat = block.masks(z.unsqueeze(2), torch.tensor([1, 2, 0]), RHO, torch.Size((1, *size)))
        torch.testing.assert_close(found, flat.squeeze(3))


def test_first_weights():
    block = MixBlock(network(channels=64), "2", 64, generator=seeded(0))
    for linear in (block.query, block.key, block.value_in):
        count = linear.weight.numel()
        assert abs(float(linear.weight.detach().double().square().mean().sqrt()) - 0.01) < 4.5 * 0.01 / (2 * count) ** 0.5
    assert block.query.weight.shape == block.key.weight.shape == (32, 128, 1)
    assert not block.query.bias.any()
    assert block.value_in.bias is None
    assert block.value_out.bias is None
    model, state = network(channels=64), torch.get_rng_state()
    again = MixBlock(model, "2", 64, generator=seeded(0))
    assert torch.equal(torch.get_rng_state(), state)
    other = MixBlock(model, "2", 64)
    assert torch.equal(again.value_out.weight, block.value_out.weight)
    assert not torch.equal(other.value_out.weight, block.value_out.weight)


def test_weights_that_are_trained_are_not_the_copys():
    block = made()
    own = trained(block)
    assert len(own) == 8
    copied = {id(value) for value in block.encoder.parameters()}
    assert copied.isdisjoint(map(id, own))
    assert len(copied) + len(own) == len(list(block.parameters()))


def test_update_moves_the_copy_only():
    model = network()
    block = grown(MixBlock(model, "2", CHANNELS, momentum=0.75))
    with torch.no_grad():
        model[0].weight += 1
    own, before = [value.clone() for value in trained(block)], block.encoder.copy[0].weight.clone()
    block.update(model)
    torch.testing.assert_close(block.encoder.copy[0].weight, before + 0.25)
    assert all(torch.equal(a, b) for a, b in zip(own, trained(block), strict=True))


def test_state_dict_restores_everything(tmp_path):
    model = network()
    block = grown(MixBlock(model, "2", CHANNELS, momentum=0.5, last=0.9, steps=9)).train()
    x, partner = torch.randn(3, 2, 6, 4, generator=seeded(5)), torch.tensor([1, 2, 0])
    block.masks(block.features(x), partner, RHO[:1], x.shape[2:], learning=True)
    with torch.no_grad():
        model[0].weight += 1
    block.update(model)
    torch.save(block.state_dict(), tmp_path / "block.pt")
    other = MixBlock(network(seed=3), "2", CHANNELS, momentum=0.5, last=0.9, steps=9)
    other.load_state_dict(torch.load(tmp_path / "block.pt", weights_only=True))
    assert other.encoder._step() == block.encoder._step()
    for mode in (True, False):
        block.train(mode), other.train(mode)
        masks = [b.masks(b.features(x), partner, RHO, x.shape[2:]) for b in (block, other)]
        assert torch.equal(*masks)


@pytest.mark.parametrize("seed", range(4))
def test_rescaled_masks_have_the_mean_asked_for(seed):
    mask = torch.rand(3, 4, 1, 7, 5, generator=seeded(seed)) ** (0.2 + 2 * seed)
    rho = torch.linspace(0.1, 0.9, 12, dtype=torch.float64).reshape(3, 4)
    found = rescaled(mask, rho)
    torch.testing.assert_close((1 - found.double()).mean((2, 3, 4)), rho, atol=1e-7, rtol=0)
    assert (found >= 0).all()
    assert (found <= 1).all()
    for k in range(3):
        for i in range(4):
            expected = torch.tensor(slow.rescaled(mask[k, i, 0].double().tolist(), float(rho[k, i])))
            torch.testing.assert_close(found[k, i, 0], expected, atol=1e-6, rtol=1e-6)
    ends = torch.tensor([[0.0, 1.0]])
    for extreme in (torch.zeros(1, 2, 1, 3, 3), torch.ones(1, 2, 1, 3, 3)):
        assert torch.isfinite(rescaled(extreme, ends)).all()


@pytest.mark.parametrize("average", ["pair", "batch"])
def test_mask_loss_agrees_with_loops(average):
    mask = torch.rand(4, 1, 5, 3, generator=seeded(1)) ** 2
    for rho in (torch.tensor([0.9]), torch.tensor([0.62]), torch.tensor([0.1, 0.4, 0.7, 0.95])):
        found = mask_loss(mask, rho, slack=0.1, variance=2.0, average=average)
        expected = slow.mask_loss(mask[:, 0].tolist(), rho.expand(4).tolist(), 0.1, 2.0, average)
        assert float(found) == pytest.approx(expected, abs=1e-6)
    even = torch.full((2, 1, 3, 3), 0.3)
    assert float(mask_loss(even, torch.tensor([0.75]))) == pytest.approx(0, abs=1e-6)
    assert float(mask_loss(even, torch.tensor([0.5]))) == pytest.approx(0.1, abs=1e-6)
    halves = torch.tensor([0.0, 1.0]).reshape(1, 1, 2, 1)
    assert float(mask_loss(halves, torch.tensor([0.5]))) == pytest.approx(-0.5), "contrast is rewarded"


def test_balanced_bce():
    logits = torch.randn(3, 4, generator=seeded(0), dtype=torch.float64)
    target = torch.tensor([[0.3, 0.7, 0, 0], [0, 0, 1, 0], [0.5, 0, 0, 0.5]], dtype=torch.float64)
    for eta in (1.0, 0.5, 0.0):
        total = 0.0
        for row, wanted in zip(logits.sigmoid(), target, strict=True):
            for p, t in zip(row, wanted, strict=True):
                total -= float(t * p.log() + (1 - t) * (1 - p).log()) * (1 if t > 0 else eta)
        assert float(balanced_bce(logits, target, eta)) == pytest.approx(total / 3)


def test_precision_of_block_and_features():
    block, partner = made().train(), torch.tensor([1, 2, 0])
    single = block.masks(features(), partner, RHO, torch.Size((7, 5)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(block.masks(features(), partner, RHO, torch.Size((7, 5))), single)
    double = block.double().masks(features().double(), partner, RHO, torch.Size((7, 5)))
    assert double.dtype == torch.float32
    torch.testing.assert_close(double, single, atol=1e-5, rtol=1e-5)


def test_fixed_block_needs_nothing():
    block = FixedBlock()
    x = torch.randn(3, 2, 7, 5, generator=seeded(0))
    z = block.features(x)
    assert z.shape == (3, 1, 4, 3)
    found = block.masks(z, torch.tensor([1, 2, 0]), RHO, x.shape[2:])
    cells = z[1, 0].double()
    value = (2.0 * (cells - cells.mean()) * (2 - slow.embedded(0.85, 0.25))).tolist()
    expected = torch.tensor(slow.upsampled(value, (7, 5))).sigmoid()
    torch.testing.assert_close(found[0, 0, 0], expected, atol=1e-5, rtol=1e-5)
    assert list(block.parameters()) == []


def test_clear_sentences():
    block, partner, size = made(), torch.tensor([1, 2, 0]), torch.Size((7, 5))
    with pytest.raises(ValueError, match="kappa must"):
        MixBlock(network(), "2", CHANNELS, kappa=-1)
    with pytest.raises(ValueError, match="channels must"):
        MixBlock(network(), "2", 0)
    with pytest.raises(ValueError, match="channels.*layer '2'"):
        block.masks(torch.zeros(3, 4, 2, 2), partner, RHO, size)
    with pytest.raises(ValueError, match=re.escape("features must")):
        block.masks(torch.zeros(3, 6, 4), partner, RHO, size)
    with pytest.raises(ValueError, match="at most 4096 places, got 4225"):
        block.masks(torch.zeros(3, 6, 65, 65), partner, RHO, size)
    assert repr(block) == "MixBlock(layer='2', channels=6, kappa=0.25)"
