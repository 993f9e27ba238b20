"""The small PointNet, and how one arm is trained on bodies and tested, as short as it can be."""

import pytest
import torch

from multimix.lab.data.shapes import KINDS, split
from multimix.lab.nets.pointnet import PointNet, initial_net
from multimix.lab.studies.digits.arms import Arm
from multimix.lab.studies.points import train as module
from multimix.lab.studies.points.train import PointSettings, arms, bodies_of, outcome, train
from multimix.methods import NoMix, SageMix
from multimix.sampling import seeded as seeded_by_parts
from oracles import seeded

BRIEF = PointSettings(per_kind=6, test_per_kind=20, points=24, batch=15, steps=50)


def test_the_net_does_not_see_the_order_of_points():
    net, x = initial_net(0), torch.randn(3, 12, 3, generator=seeded(0))
    assert net(x).shape == (3, len(KINDS))
    assert torch.equal(net(x), net(x[:, torch.randperm(12, generator=seeded(1))]))
    assert sum(p.numel() for p in PointNet().parameters()) == 8_645


def test_a_seed_is_one_start_and_leaves_the_global_state():
    state = torch.get_rng_state()
    first, again, other = (initial_net(seed).head[0].weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_arms_are_no_mixing_and_sagemix_at_every_k():
    found = arms((1, 5), PointSettings(sigma=0.7))
    assert [arm.label for arm in found] == ["none", "sagemix, K = 1", "sagemix, K = 5"]
    assert isinstance(found[0].method, NoMix)
    assert [arm.method for arm in found[1:]] == [SageMix(k=k, sigma=0.7, threads=1) for k in (1, 5)]


def test_every_arm_learns_and_says_what_it_was_trained_on():
    none, one, five = (outcome(arm, 3, BRIEF) for arm in arms((1, 5), BRIEF))
    assert all(found.error < 65 for found in (none, one, five))  # chance is 80
    assert len({found.error for found in (none, one, five)}) == 3
    assert [found.rows for found in (none, one, five)] == [750, 750, 3750]
    assert {(found.split, found.start) for found in (none, one, five)} == {(none.split, none.start)}
    assert none.split == split(6, 20, 24, seeded_by_parts(3, 0), noise=BRIEF.noise).digest()
    assert len({found.arm for found in (none, one, five)}) == 3
    assert all(found.cpu_seconds > 0 for found in (none, one, five))
    again = outcome(arms((1,), BRIEF)[1], 3, BRIEF)
    assert (again.error, again.nll, again.ece) == (one.error, one.nll, one.ece)
    other = outcome(arms((1,), BRIEF)[0], 4, BRIEF)
    assert (other.split != none.split, other.start != none.start) == (True, True)


def test_errors_are_counted(monkeypatch):
    class Always(PointNet):
        def forward(self, x):
            return torch.eye(5)[torch.zeros(len(x), dtype=torch.long)]

    monkeypatch.setattr(module, "initial_net", lambda seed: Always())
    monkeypatch.setattr(module, "train", lambda *args: 7)
    found = outcome(arms((), BRIEF)[0], 0, BRIEF)
    assert (found.error, found.train_error, found.rows) == (80, 80, 7)


def test_training_that_diverges_is_one_sentence(monkeypatch):
    def broken(net, *args):
        for parameter in net.parameters():
            parameter.data.fill_(float("nan"))
        return 0

    module._warm_up()
    monkeypatch.setattr(module, "train", broken)
    with pytest.raises(ValueError, match="sagemix, K = 1 diverged with seed 2: its logits are not finite"):
        outcome(arms((1,), BRIEF)[1], 2, BRIEF)


def test_training_sees_every_body_equally_often():
    seen = []

    class Watched(NoMix):
        def draw(self, x, **kwargs):
            seen.append(x)
            return super().draw(x, **kwargs)

    data = bodies_of(0, PointSettings(per_kind=3, test_per_kind=1, points=8))
    rows = train(initial_net(0), Arm("watched", None, Watched()), data, 0, PointSettings(steps=5, batch=10))
    assert rows == 40
    assert [len(x) for x in seen] == [10, 5, 10, 5, 10]
    for epoch in (seen[:2], seen[2:4]):
        assert sorted(torch.cat(epoch).tolist()) == sorted(data.x.tolist())


def test_a_split_is_named_by_all_it_holds():
    first, again = (split(1, 1, 6, seeded(0)) for _ in range(2))
    assert first.digest() == again.digest()
    for name, part in first._asdict().items():
        changed = part.clone()
        changed.flatten()[-1] += 1
        assert first._replace(**{name: changed}).digest() != first.digest()
