"""The sampled parts of a model's variance against the enumeration of all its pairs."""

import pytest

from multimix import InputMixup, ManifoldMixup
from multimix.lab.studies.variance import crossover, enumerate_pairs, sampled_components


@pytest.mark.parametrize("method", [InputMixup(), ManifoldMixup(alpha=0.5, layers=("1",))], ids=lambda m: m.name)
def test_sampled_parts_agree_with_all_pairs(clusters, method):
    """Six intervals of 95 % at fixed seeds; each is widened by half, so that one in 300 misses by chance."""
    exact = enumerate_pairs(clusters[0], method, *clusters[1:], nodes=16).components
    found = sampled_components(clusters[0], method, *clusters[1:], pairs=4000, groups=100, group=20, nodes=16, seed=1)
    expected = (exact.total, exact.pairs, exact.lam)
    for estimate, truth in zip(found.estimates, expected, strict=True):
        assert abs(estimate.value - truth) < 1.5 * estimate.half < 0.3 * truth
    b_0 = crossover(found)
    assert b_0.low < exact.pairs / exact.lam < b_0.high


def test_the_same_seed_gives_the_same_numbers(clusters):
    few = {"pairs": 10, "groups": 3, "group": 4, "nodes": 3}
    first, again, other = (sampled_components(clusters[0], InputMixup(), *clusters[1:], **few, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.total != other.total


@pytest.mark.parametrize(("name", "value"), [("pairs", 0), ("draws", 0), ("groups", 0), ("group", 0)])
def test_sizes_are_checked(clusters, name, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value}"):
        sampled_components(clusters[0], InputMixup(), *clusters[1:], **{name: value})
