"""The small PointNet, and the comparison with and without SageMix, as short as it can be."""

import pytest
import torch

from multimix.generator import seeded as seeded_by_parts
from multimix.lab.points.data import KINDS, split
from multimix.lab.points.demo import PointSettings, PointsResult, arms, demo, error, trained
from multimix.lab.points.net import PointNet, initial_net
from multimix.methods import NoMix
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


def test_the_demo_compares_three_arms_better_than_chance():
    ticks = []
    result = demo(BRIEF, seeds=(3,), tick=lambda: ticks.append(None))
    assert list(result.errors) == ["no mixing", "SageMix, K = 1", "SageMix, K = 5"] == list(arms(BRIEF))
    assert all(found < 65 for (found,) in result.errors.values())  # chance is 80
    assert len(set(result.errors.values())) == 3
    assert all(seconds > 0 for seconds in result.seconds.values())
    assert len(ticks) == 3
    data = split(BRIEF.per_kind, BRIEF.test_per_kind, BRIEF.points, seeded_by_parts(3, 0), noise=BRIEF.noise)
    again = trained(arms(BRIEF)["SageMix, K = 1"], data, 3, BRIEF)
    assert error(again, data) == result.errors["SageMix, K = 1"][0]


def test_errors_are_counted():
    data = split(1, 3, 8, seeded(0))

    class Always(PointNet):
        def forward(self, x):
            return torch.eye(5)[torch.zeros(len(x), dtype=torch.long)]

    assert error(Always(), data) == pytest.approx(80)
    for parameter in (broken := initial_net(0)).parameters():
        parameter.data.fill_(float("nan"))
    with pytest.raises(ValueError, match="training must end with finite logits"):
        error(broken, data)


def test_training_sees_every_body_equally_often():
    seen = []

    class Watched(NoMix):
        def draw(self, x, **kwargs):
            seen.append(x)
            return super().draw(x, **kwargs)

    data = split(3, 1, 8, seeded(0))
    trained(Watched(), data, 0, PointSettings(steps=5, batch=10))
    assert [len(x) for x in seen] == [10, 5, 10, 5, 10]
    for epoch in (seen[:2], seen[2:4]):
        assert sorted(torch.cat(epoch).tolist()) == sorted(data.x.tolist())


def test_sentences():
    result = PointsResult((0, 1), {"no mixing": (10.0, 20.0), "SageMix, K = 1": (8.0, 16.0)}, {})
    assert result.sentences() == [
        "no mixing: 15.0 % test error over 2 seeds",
        "SageMix, K = 1: 12.0 % test error over 2 seeds, -3.0 ± 12.7 points against no mixing",
    ]


def test_refused():
    with pytest.raises(ValueError, match="seeds must hold at least 1 seed, got none"):
        demo(BRIEF, seeds=())
