"""SAMix: against loops, whose gradients go where, the draws, and a block that learns."""

import math
import re

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn.functional import cross_entropy

import multimix as mm
import samix_oracle as slow
from batches import batch
from multimix.methods.samix.block import FixedBlock, MixBlock
from multimix.methods.samix.method import SAMix
from oracles import seeded

CHANNELS = 4
CLASSES = 3
LAM = [0.05, 0.3, 0.5, 0.8, 0.95]


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(2, CHANNELS, 3, stride=2, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU(),
            nn.Conv2d(CHANNELS, 5, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, CLASSES),
        )  # fmt: skip


def trained(block):
    return [value for value in block.parameters() if value.requires_grad]


def blocked(model, **options):
    """A block whose weights make a difference."""
    block = MixBlock(model, "2", CHANNELS, **options)
    with torch.no_grad():
        for value in trained(block):
            value.copy_(0.7 * torch.randn(value.shape, generator=seeded(1000 + value.numel())))
    return block


def inputs(batch=4, size=(7, 10), seed=0, **kwargs):
    return torch.randn(batch, 2, *size, generator=seeded(seed)).to(**kwargs)


def labels(batch=4):
    return torch.arange(batch) % CLASSES


@pytest.mark.parametrize("options", [{}, {"monotone": True}, {"margin": 0.0}, {"margin": 0.3}], ids=str)
@pytest.mark.parametrize("coin", [False, True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("lam", [[0.4], LAM], ids=["K = 1", "K = 5"])
def test_agrees_with_loops(options, coin, training, lam):
    x, partner = inputs(), torch.tensor([2, 1, 3, 0])
    block = blocked(network()).train(training)
    method = SAMix(block=block, k=len(lam), rescale_p=float(coin), **options)
    plan = method.plan(x, partner=partner, lam=lam, generator=seeded(3))
    mixed, masks = slow.path(block, x, block.features(x), partner.tolist(), lam, coin=coin, **options)
    torch.testing.assert_close(plan.mask[:, :, 0], torch.tensor(masks), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(plan.mix(x), torch.tensor(mixed).flatten(0, 1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(plan.mix(x)[1::4], x[1].expand(len(lam), *x.shape[1:]))  # its own partner
    if not (options.get("monotone") and len(lam) > 1) and coin:
        expected = torch.tensor(lam, dtype=torch.float64).unsqueeze(1).expand(-1, 4)
        torch.testing.assert_close(plan.mask.double().mean((2, 3, 4)), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("per_pair", [False, True])
def test_label_is_the_coefficient(per_pair):
    x, block = inputs(), blocked(network())
    lam = mm.random.sample_path(5, 2.0, rows=4 if per_pair else 1, generator=seeded(0))
    plan = SAMix(block=block, k=5, rescale_p=0.0, margin=0.0).plan(x, lam=lam, generator=seeded(0))
    assert torch.equal(plan.lam, lam.expand(5, 4))
    assert (plan.mask.double().mean((2, 3, 4)) - plan.lam).abs().max() > 0.05, "and that is not the mean of the mask"
    target = plan.mix_target(torch.arange(4), 4).reshape(5, 4, 4)
    own = torch.eye(4)
    for k in range(5):
        share = plan.lam[k].float().unsqueeze(1)
        torch.testing.assert_close(target[k], (1 - share) * own + share * own[plan.partner])
    dense = torch.rand(4, 3, 7, 10, generator=seeded(9))
    torch.testing.assert_close(plan.mix_target(dense), plan.mix(dense))


def test_margins_are_plain_mixup():
    x, block = inputs(), blocked(network())
    lam = [0.0, 0.0799, 0.0801, 0.9199, 0.9201, 1.0]
    plan = SAMix(block=block, k=6).plan(x, lam=lam, generator=seeded(0))
    even = (plan.mask == plan.mask[..., :1, :1]).all(4).all(3).all(2).all(1).tolist()
    assert even == [True, True, False, False, True, True]
    assert torch.equal(plan.mix(x)[:4], x)
    assert torch.equal(plan.mix(x)[-4:], x[plan.partner])
    torch.testing.assert_close(plan[1].mix(x), mm.InputMixup().plan(x, lam=lam[1:2], partner=plan.partner).mix(x))


@pytest.mark.parametrize("per_pair", [False, True])
def test_monotone_masks_nest(per_pair):
    x, block, ordered = inputs(batch=6), blocked(network()), []
    for seed in range(8):
        plans = [
            SAMix(block=block, k=5, per_pair=per_pair, monotone=monotone).plan(x, generator=seeded(seed))
            for monotone in (True, False)
        ]
        assert (plans[0].mask.diff(dim=0) >= 0).all()
        assert torch.equal(plans[0].mask, plans[1].mask.cummax(0).values)
        assert torch.equal(plans[0].lam, plans[1].lam)
        ordered.append(bool((plans[1].mask.diff(dim=0) >= 0).all()))
    assert not all(ordered), "without it there is no such promise"
    single = [SAMix(block=block, monotone=monotone).plan(x, generator=seeded(0)).mask for monotone in (True, False)]
    assert torch.equal(*single)


def test_steps_and_cut_plans():
    x, block, partner = inputs(), blocked(network()), torch.tensor([2, 1, 3, 0])
    whole = SAMix(block=block, k=5).plan(x, partner=partner, lam=LAM, generator=seeded(3))
    for k in range(5):
        single = SAMix(block=block).plan(x, partner=partner, lam=LAM[k : k + 1], generator=seeded(3))
        assert torch.equal(single.mask[0], whole.mask[k])
        assert torch.equal(whole[k].mix(x), single.mix(x))
        assert torch.equal(whole[k].lam, single.lam)
    assert torch.equal(torch.cat([part.mix(x) for part in whole.split(2)]), whole.mix(x))
    assert torch.equal(whole.to("cpu").mix(x), whole.mix(x))


def test_the_copy_runs_once_and_features_can_be_handed_in():
    x, block, rows = inputs(), blocked(network()), []
    block.encoder.copy.register_forward_hook(lambda module, args, result: rows.append(len(args[0])))
    plan = SAMix(block=block, k=5).plan(x, generator=seeded(0))
    assert rows == [4]
    z = block.features(x)
    rows.clear()
    given = SAMix(block=block, k=5).plan(x, features=z, generator=seeded(0))
    assert rows == []
    assert torch.equal(given.mask, plan.mask)
    mm.mixed_forward(network(), SAMix(block=block, k=5), x, labels(), generator=seeded(0)).loss()
    assert rows == [4, 4], "once for the features of both draws, once for the block's own loss"
    rows.clear()
    fixed = SAMix(block=block, k=5, train_block=False, clean_weight=0.0)
    mm.mixed_forward(network(), fixed, x, labels(), generator=seeded(0), features=z)
    assert rows == []


def test_laws():
    """λ ~ Beta(2, 2); a quarter of the batches, or of the pairs, has the mean λ exactly."""
    n, block = 1500, FixedBlock()
    x = torch.randn(n, 1, 4, 4, generator=seeded(0))
    plan = SAMix(block=block, per_pair=True, train_block=False, clean_weight=0.0).plan(x, generator=seeded(1))
    lam = plan.lam[0]
    assert stats.kstest(lam.numpy(), stats.beta(2, 2).cdf).pvalue > 1e-3
    inside = (lam > 0.08) & (lam < 0.92)
    exact = ((plan.mask[0].double().mean((1, 2, 3)) - lam).abs() < 1e-6)[inside].double()
    assert abs(float(exact.mean()) - 0.25) < 4.5 * math.sqrt(0.25 * 0.75 / len(exact))
    coins = []
    for seed in range(300):
        shared = SAMix(block=block, train_block=False, clean_weight=0.0).plan(x[:3], lam=[0.3, 0.7], generator=seeded(seed))
        same = (shared.mask.double().mean((2, 3, 4)) - shared.lam).abs() < 1e-6
        assert bool(same.all()) or not bool(same.all(1).any()), "one coin for the batch and the path"
        coins.append(bool(same.all()))
    assert abs(sum(coins) / 300 - 0.25) < 4.5 * math.sqrt(0.25 * 0.75 / 300)


def everything(model, block):
    copied = list(block.encoder.parameters())
    return list(model.parameters()), trained(block), copied


def test_block_loss_reaches_the_block_only():
    x, y, model = inputs().requires_grad_(), labels(), network()
    block = blocked(model)
    method = SAMix(block=block, k=5, clean_weight=0.0)
    told = method.inputs(batch(model, x, y))
    assert not told["features"].requires_grad
    assert set(told) == {"features", "block_loss"}
    told["block_loss"].backward()
    theirs, own, copied = everything(model, block)
    assert all(value.grad is not None and (value.grad != 0).any() for value in own if value is not block.key.bias)
    assert all(value.grad is None for value in (*theirs, *copied))
    assert x.grad is None


def test_encoder_loss_reaches_the_model_only():
    x, y, model = inputs(), labels(), network()
    block = blocked(model)
    mm.mixed_forward(model, SAMix(block=block, k=5, train_block=False), x, y, generator=seeded(0)).loss().backward()
    theirs, own, copied = everything(model, block)
    assert all(value.grad is not None for value in theirs)
    assert all(value.grad is None for value in (*own, *copied))


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("steps", [None, 2])
def test_one_backward_trains_both(k, steps):
    """The whole is mixed + clean + block's own, each with the gradient it has alone."""
    x, y, model = inputs(), labels(), network()
    block = blocked(model)
    model.eval()  # else chunks differ by batch norm
    method = SAMix(block=block, k=k, clean_weight=0.5)
    for part in mm.mixed_parts(model, method, x, y, steps=steps, generator=seeded(4)):
        part.loss().backward()
    theirs, own, copied = everything(model, block)
    found = [value.grad.clone() for value in (*theirs, *own)]
    assert all(value.grad is None for value in copied)
    generator = seeded(4)
    z = block.features(x)
    alone = method.block_loss(x, y, z, generator=generator)
    plan = method.plan(x, features=z, generator=generator)
    mixed = cross_entropy(model(plan.mix(x)), plan.mix_target(y, CLASSES))
    expected = torch.autograd.grad(mixed + 0.5 * cross_entropy(model(x), y), theirs)
    expected += torch.autograd.grad(alone, own)
    for grad, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(grad, wanted, atol=1e-6, rtol=1e-4)


def test_the_clean_loss_is_that_of_the_training():
    """Beside a mean over classes a whole cross-entropy would leave nothing of the mixed loss."""
    x, y, model = inputs(), labels(), network().eval()
    method = SAMix(block=blocked(model), k=2, clean_weight=0.5, train_block=False)
    plan = method.plan(x, generator=seeded(4))
    rows = 0.9 * torch.nn.functional.one_hot(y, CLASSES) + 0.1 / CLASSES
    mixed = mm.losses.softmax_bce(model(plan.mix(x)), 0.9 * plan.mix_target(y, CLASSES) + 0.1 / CLASSES)
    found = mm.mixed_forward(model, method, x, y, smoothing=0.1, generator=seeded(4)).loss(mm.losses.softmax_bce)
    torch.testing.assert_close(found, mixed + 0.5 * mm.losses.softmax_bce(model(x), rows))


def test_labels_that_are_no_classes_train_no_block():
    x, model = inputs(), network()
    many = torch.ones(4, CLASSES)
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    with pytest.raises(ValueError, match="SAMix.*sum to 1"):
        mm.mixed_forward(model, SAMix(block=blocked(model)), x, many).loss(bce)
    assert mm.mixed_forward(model, SAMix(block=blocked(model), train_block=False), x, many).loss(bce).isfinite()


def test_the_blocks_loss_is_not_lost_silently(monkeypatch):
    method = SAMix(block=blocked(network()), clean_weight=0.0)
    with pytest.raises(ValueError, match="SAMix.*mixed_forward"):
        mm.Mix(method, CLASSES)
    monkeypatch.setattr(mm.MixedOutput, "_has_warned", False)
    out = mm.mixed_forward(network(), method, inputs(), labels())
    assert out.logits.requires_grad
    with pytest.warns(UserWarning, match="SAMix.*loss"):
        del out


def test_block_loss_is_the_formula():
    x, y, model = inputs(), labels(), network()
    block = blocked(model)
    z = block.features(x)
    for options in ({}, {"per_pair": True}, {"mask_average": "batch", "mask_slack": 0.0, "mask_weight": 3.0}, {"eta": 0.5}):
        method = SAMix(block=block, **options)
        found = float(method.block_loss(x, y, z, generator=seeded(8)).detach())
        generator = seeded(8)
        partner = mm.random.random_partner(4, generator=generator).tolist()
        drawn = mm.random.sample_path(1, 2.0, rows=4 if "per_pair" in options else 1, generator=generator)
        rho = (1 - drawn[0]).expand(4).tolist()
        masks = slow.masks(block, z, partner, rho, (7, 10))
        m = torch.tensor(masks).unsqueeze(1)
        with torch.no_grad():
            logits = block.encoder.copy((1 - m) * x + m * x[partner])
        p = logits.log_softmax(1) if "eta" not in options else logits.sigmoid()
        total = 0.0
        for i in range(4):
            for c in range(CLASSES):
                t = rho[i] * float(y[i] == c) + (1 - rho[i]) * float(y[partner[i]] == c)
                if "eta" not in options:
                    total -= t * float(p[i, c])
                else:
                    weight = 1.0 if t > 0 else 0.5
                    total -= weight * (t * math.log(p[i, c]) + (1 - t) * math.log(1 - p[i, c]))
        area = slow.mask_loss(masks, rho, options.get("mask_slack", 0.1), 2.0, options.get("mask_average", "pair"))
        assert found == pytest.approx(total / 4 + options.get("mask_weight", 0.1) * area, abs=2e-5)


def test_draws_of_block_and_encoder_are_two_and_k_changes_neither_pairing():
    x, y, model, block = inputs(batch=32), labels(32), network(), None
    block, seen = blocked(model), []
    original = block.masks

    def spied(z, partner, rho, size, *, learning=False):
        seen.append((learning, partner.clone(), rho.clone()))
        return original(z, partner, rho, size, learning=learning)

    block.masks = spied
    for k in (1, 2, 5):
        mm.mixed_forward(model, SAMix(block=block, k=k), x, y, generator=seeded(6)).loss()
    assert [learning for learning, _, _ in seen] == [True, False] * 3
    for turn in (0, 1):
        assert torch.equal(seen[turn][1], seen[turn + 2][1])
        assert torch.equal(seen[turn][1], seen[turn + 4][1])
    assert torch.equal(seen[0][2], seen[4][2])
    assert not torch.equal(seen[0][1], seen[1][1])
    assert seen[0][2].shape == (1, 1)
    assert float(seen[0][2]) != float(seen[1][2])
    assert seen[5][2].shape == (5, 1)


def test_soft_labels_and_outputs():
    x, model = inputs(), network()
    block = blocked(model)
    hard = mm.mixed_forward(model.eval(), SAMix(block=block, k=2), x, labels(), generator=seeded(0)).loss()
    rows = torch.eye(CLASSES)[labels()]
    torch.testing.assert_close(mm.mixed_forward(model, SAMix(block=block, k=2), x, rows, generator=seeded(0)).loss(), hard)

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()

        def forward(self, x):
            return {"scores": self.body(x)}

    wrapped = Wrapped().eval()
    inside = MixBlock(wrapped, "body.2", CHANNELS)
    inside.load_state_dict({name.replace("copy.", "copy.body."): value for name, value in block.state_dict().items()})
    found = mm.mixed_forward(wrapped, SAMix(block=inside, k=2), x, labels(), output="scores", generator=seeded(0)).loss()
    again = mm.mixed_forward(model, SAMix(block=block, k=2), x, labels(), generator=seeded(0)).loss()
    torch.testing.assert_close(found, again)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precision(dtype):
    x, block = inputs(), blocked(network())
    plan = SAMix(block=block, k=3).plan(x.to(dtype), generator=seeded(0))
    assert plan.mix(x.to(dtype)).dtype == dtype
    assert plan.mask.dtype == torch.float32
    double = network().double()
    method = SAMix(block=blocked(double), k=2)
    loss = mm.mixed_forward(double, method, inputs(dtype=torch.float64), labels(), generator=seeded(0)).loss()
    assert loss.dtype == torch.float64
    loss.backward()


def test_batch_of_one_constant_images_and_untouched_inputs():
    model = network()
    block = blocked(model)
    x = torch.full((1, 2, 5, 3), 0.25)
    loss = mm.mixed_forward(model, SAMix(block=block, k=3), x, labels(1), generator=seeded(0)).loss()
    loss.backward()
    assert torch.isfinite(loss)
    plan = SAMix(block=block, k=3, derange=True).plan(x, generator=seeded(0))
    torch.testing.assert_close(plan.mix(x), x.repeat(3, 1, 1, 1))
    assert torch.equal(x, torch.full((1, 2, 5, 3), 0.25))
    state = torch.get_rng_state()
    mm.mixed_forward(model, SAMix(block=block, k=3), x, labels(1), generator=seeded(0)).loss()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_first_layer_that_works_in_place():
    model = nn.Sequential(nn.ReLU(inplace=True), *network())
    x = inputs()
    before = x.clone()
    mm.mixed_forward(model, SAMix(block=MixBlock(model, "3", CHANNELS), k=2), x, labels(), generator=seeded(0)).loss().backward()
    assert torch.equal(x, before)


def test_skipped_batches_train_no_block():
    x, y, model = inputs(), labels(), network().eval()
    block = blocked(model)
    for method in (SAMix(block=block, p=0.0), SAMix(block=block, alpha=0.0)):
        mm.mixed_forward(model, method, x, y).loss().backward()
        assert all(value.grad is None for value in block.parameters())


def test_a_fixed_block_serves_every_entry():
    x, y = inputs(), labels()
    method = SAMix(block=FixedBlock(), k=3, train_block=False, clean_weight=0.0)
    out = mm.mixed_forward(network(), method, x, y, generator=seeded(0))
    logits, target = out.logits, out.target
    assert logits.shape == target.shape == (12, CLASSES)
    mixed, _ = mm.Mix(method, num_classes=CLASSES, seed=0)(x, y)
    assert mixed.shape == (12, 2, 7, 10)
    for size in ((9,), (3, 4, 5)):
        z = torch.randn(3, 2, *size, generator=seeded(1))
        assert method.plan(z, generator=seeded(0)).mix(z).shape == (9, 2, *size)


def bars(batch, generator):
    """Class c: a bright bar in row 2c + 1 of a noisy image."""
    y = torch.randint(CLASSES, (batch,), generator=generator)
    x = 0.3 * torch.randn(batch, 2, 7, 10, generator=generator)
    x[torch.arange(batch), :, 2 * y + 1] += 1.5
    return x, y


@pytest.mark.parametrize("k", [1, 5])
def test_it_trains(k):
    """The loop of the card: the model gets good, the block's own loss falls, no NaN."""
    model, data, draws = network(), seeded(20), seeded(21)
    block = MixBlock(model, "2", CHANNELS, momentum=0.9, generator=seeded(22))
    method = SAMix(block=block, k=k)
    optimiser = torch.optim.Adam([*model.parameters(), *block.parameters()], lr=0.02)
    for _ in range(60):
        batch, label = bars(16, data)
        loss = mm.mixed_forward(model, method, batch, label, generator=draws).loss()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        block.update(model)
        assert torch.isfinite(loss)
    x, y = bars(64, seeded(30))
    accuracy = (model.eval()(x).argmax(1) == y).double().mean()
    assert accuracy > 0.8, f"chance is 1/3, got {accuracy:.2f}"
    plan = SAMix(block=block, rescale_p=0.0).plan(x, lam=[0.4], generator=seeded(0))
    assert plan.mask.flatten(2).std(2).mean() > 0.03, "even at first"
    fresh = MixBlock(model, "2", CHANNELS, generator=seeded(22))
    fresh.encoder.load_state_dict(block.encoder.state_dict())
    with torch.no_grad():
        untrained, trained = (
            sum(float(SAMix(block=b).block_loss(x, y, b.features(x), generator=seeded(seed))) for seed in range(10))
            for b in (fresh, block)
        )
    assert trained < untrained - 0.3


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"block": nn.Identity()}, TypeError, "block must"),
        ({"block": FixedBlock()}, ValueError, "train_block=False"),
        ({"margin": 0.6}, ValueError, "margin must"),
        ({"rescale_p": 1.5}, ValueError, "rescale_p must"),
        ({"clean_weight": -1.0}, ValueError, "clean_weight must"),
        ({"eta": math.nan}, ValueError, "eta must"),
        ({"mask_average": "all"}, ValueError, "mask_average"),
    ],
)
def test_options_that_make_no_sense(options, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        SAMix(**{"block": blocked(network()), **options})


def test_places_are_needed():
    for method in (SAMix(block=FixedBlock(), train_block=False), SAMix(block=blocked(network()))):
        with pytest.raises(ValueError, match="SAMix needs x of shape"):
            method.plan(torch.zeros(2, 3))


def test_errors_of_the_model_become_mixing_errors():
    x = torch.zeros(2, 3, 8, 8)
    for options in ({}, {"train_block": False}, {"train_block": False, "clean_weight": 0.0}):
        with pytest.raises(mm.MixingError, match="the model failed"):
            mm.mixed_forward(network(), SAMix(block=blocked(network()), **options), x, torch.tensor([0, 1]))
    with pytest.raises(mm.MixingError, match="the model failed"):
        SAMix(block=blocked(network())).plan(x)
    block = blocked(network())
    with pytest.raises(mm.MixingError, match="the model failed"):
        block.logits(x)
