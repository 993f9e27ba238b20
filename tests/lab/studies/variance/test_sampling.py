"""The sampled parts of a model's variance against the enumeration of all its pairs."""

import json
from dataclasses import asdict

import pytest

from multimix import InputMixup, ManifoldMixup
from multimix.lab.studies.variance import crossover, enumerate_pairs, sampled_components
from multimix.lab.studies.variance.parts import sampled_from


@pytest.mark.parametrize("method", [InputMixup(), ManifoldMixup(alpha=0.5, layers=("1",))], ids=lambda m: m.name)
def test_sampled_parts_agree_with_all_pairs(clusters, method):
    """Six intervals of 95 % at fixed seeds; each is widened by half, so that one in 300 misses by chance."""
    exact = enumerate_pairs(clusters[0], method, *clusters[1:], nodes=16).components
    found = sampled_components(clusters[0], method, *clusters[1:], pairs=4000, groups=100, group=20, nodes=16, seed=1)
    expected = (exact.total, exact.pairs, exact.lam)
    for estimate, truth in zip(found.components.estimates, expected, strict=True):
        assert abs(estimate.value - truth) < 1.5 * estimate.half < 0.3 * truth
    b_0 = crossover(found.components)
    assert b_0.low < exact.pairs / exact.lam < b_0.high
    assert (found.pairs, found.group) == (2000, 20)
    rest = exact.total - exact.pairs - exact.lam
    assert rest / 20 > 0.3 * exact.lam
    assert found.plug_in_group == pytest.approx(exact.lam + rest / 20, rel=0.1)
    assert found.plug_in == pytest.approx(found.components.lam + rest / 2000, rel=0.02)


def test_the_same_seed_gives_the_same_numbers(clusters):
    few = {"pairs": 10, "groups": 3, "group": 4, "nodes": 3}
    first, again, other = (sampled_components(clusters[0], InputMixup(), *clusters[1:], **few, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.components.total != other.components.total
    assert sampled_from(json.loads(json.dumps(asdict(first)))) == first


@pytest.mark.parametrize(("name", "value"), [("pairs", 0), ("draws", 0), ("groups", 0), ("group", 0)])
def test_sizes_are_checked(clusters, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a whole number, at least 1, got {value}"):
        sampled_components(clusters[0], InputMixup(), *clusters[1:], **{name: value})
