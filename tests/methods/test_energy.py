"""The mask energy in whole numbers: the formula term by term, monotone in λ and in the level, never out of range."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mask_oracles import KINDS, loop_energy, random_problem, random_terms
from multimix.methods.puzzlemix.masks import MIN_SHARE, SCALE, CutTerms, quantized
from multimix.methods.puzzlemix.rof import CutProblem, problem_energy
from oracles import seeded

COSTS = ["l1", "l2", "l4"]


def formula(terms, b, lam, levels, labels, eta, power):
    """E(v) as the module's docstring has it, in floats, loop by loop."""
    d, (rows, columns) = labels - 1, levels.shape
    logit = math.log(lam / (1 - lam))
    total = 0.0
    for r in range(rows):
        for c in range(columns):
            v = int(levels[r, c])
            total += v / d * float(terms.cost[b, r, c])
            total -= eta / (rows * columns) * (v * logit + math.log(math.comb(d, v)))
            if r + 1 < rows:
                total += float(terms.down[b, r, c]) * (abs(v - int(levels[r + 1, c])) / d) ** power
            if c + 1 < columns:
                total += float(terms.right[b, r, c]) * (abs(v - int(levels[r, c + 1])) / d) ** power
    return total


def random_levels(*shape, labels, seed=0):
    return torch.randint(labels, shape, generator=seeded(seed)).to(torch.uint8)


@settings(max_examples=80)
@given(
    kind=st.sampled_from(KINDS),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    labels=st.integers(2, 6),
    cost=st.sampled_from(COSTS),
    eta=st.floats(0, 2),
    lam=st.lists(st.floats(MIN_SHARE, 1 - MIN_SHARE), min_size=1, max_size=3),
    seed=st.integers(0, 10**6),
)
def test_energy_is_the_formula_up_to_rounding(kind, rows, columns, labels, cost, eta, lam, seed):
    terms = random_terms(kind, 2, rows, columns, seed)
    problem = quantized(terms, torch.tensor(lam, dtype=torch.float64)[:, None], labels, eta, cost)
    levels = random_levels(len(lam), 2, rows, columns, labels=labels, seed=seed)
    energy = problem_energy(problem, levels)
    d, power = labels - 1, int(cost[1])
    # Each level of a block is rounded twice (base, slope), each border once and then multiplied.
    borders = rows * (columns - 1) + (rows - 1) * columns
    rounding = rows * columns * d + borders * d**power / 2 + 1
    for k, share in enumerate(lam):
        for b in range(2):
            exact = formula(terms, b, share, levels[k, b], labels, eta, power) * SCALE
            assert int(energy[k, b]) == loop_energy(problem, k, b, levels[k, b])
            assert abs(int(energy[k, b]) - exact) <= rounding + 1e-13 * SCALE * (1 + abs(exact) / SCALE)


@pytest.mark.parametrize("labels", [2, 3, 4, 5])
@pytest.mark.parametrize("power", [1, 2, 4])
def test_energy_of_levels_equals_the_cut_of_the_level_graph(power, labels):
    """Every level reached by the one and every lower level not reached by its neighbour: bend times weight."""
    problem = random_problem(3, 3, 4, labels, power, seed=labels)
    levels = random_levels(5, 3, 3, 4, labels=labels)
    energy = problem_energy(problem, levels)
    assert energy.dtype == torch.int64
    for k in range(5):
        for b in range(3):
            above = [[[int(v) > p for v in row] for row in levels[k, b]] for p in range(labels - 1)]
            total = sum(
                int(problem.base[b, p, r, c]) - int(problem.slope[k, b])
                for p in range(labels - 1)
                for r in range(3)
                for c in range(4)
                if above[p][r][c]
            )
            borders = [((r, c), (r + 1, c), int(problem.down[b, r, c])) for r in range(2) for c in range(4)]
            borders += [((r, c), (r, c + 1), int(problem.right[b, r, c])) for r in range(3) for c in range(3)]
            for one, other, weight in borders + [(j, i, weight) for i, j, weight in borders]:
                for p in range(labels - 1):
                    for q in range(p + 1):
                        if above[p][one[0]][one[1]] and not above[q][other[0]][other[1]]:
                            total += problem.bend[p - q] * weight
            assert int(energy[k, b]) == total == loop_energy(problem, k, b, levels[k, b])


@pytest.mark.parametrize("cost", COSTS)
def test_bend_sums_to_the_label_cost(cost):
    terms = random_terms("generic", 1, 2, 2, seed=0)
    bend = quantized(terms, torch.tensor([[0.5]]), 6, 0.2, cost).bend
    assert len(bend) == 5
    assert all(isinstance(value, int) and value >= 0 for value in bend)
    for gap in range(6):
        assert sum(bend[p - q] for p in range(gap) for q in range(p + 1)) == gap ** int(cost[1])


def test_a_mask_of_zero_costs_nothing():
    problem = quantized(random_terms("generic", 4, 3, 5, seed=0), torch.tensor([[0.2], [0.9]]), 4, 0.2, "l2")
    assert (problem_energy(problem, torch.zeros(2, 4, 3, 5, dtype=torch.uint8)) == 0).all()


def test_rounding_is_to_the_nearest_and_apart():
    """Base, slope and weights are rounded each on its own: λ does not touch base, costs do not touch the slope."""
    terms = random_terms("generic", 3, 4, 2, seed=1)
    one = quantized(terms, torch.tensor([[0.3], [0.8]], dtype=torch.float64), 3, 0.2, "l2")
    other = quantized(terms, torch.tensor([[0.7]], dtype=torch.float64), 3, 0.2, "l2")
    assert torch.equal(one.base, other.base)
    assert torch.equal(
        one.slope,
        quantized(random_terms("strong", 3, 4, 2, seed=2), torch.tensor([[0.3], [0.8]], dtype=torch.float64), 3, 0.2, "l2").slope,
    )
    for b in range(3):
        for r in range(4):
            for c in range(2):
                for p, step in enumerate((math.log(2), -math.log(2))):
                    exact = 2**36 * (Fraction(float(terms.cost[b, r, c])) / 2 - Fraction(step) * Fraction(0.2) / 8)
                    assert abs(int(one.base[b, p, r, c]) - exact) <= Fraction(501, 1000)
    assert (one.down - terms.down * SCALE / 4).abs().max() <= 0.5
    assert (one.right - terms.right * SCALE / 4).abs().max() <= 0.5


@settings(max_examples=50)
@given(
    lam=st.lists(st.floats(0, 1), min_size=2, max_size=8).map(sorted),
    labels=st.integers(2, 7),
    eta=st.floats(0, 3),
    kind=st.sampled_from(KINDS),
)
def test_base_ascends_with_the_level_and_the_slope_with_lam(lam, labels, eta, kind):
    problem = quantized(random_terms(kind, 2, 3, 2, seed=0), torch.tensor(lam, dtype=torch.float64)[:, None], labels, eta, "l2")
    assert (problem.base.diff(dim=1) >= 0).all()
    assert (problem.slope.diff(dim=0) >= 0).all()
    assert problem.steps == labels - 1


def test_lam_keeps_its_order_and_is_one_for_all_pairs_or_one_each():
    terms = random_terms("generic", 4, 2, 3, seed=0)
    lam = torch.rand(3, 4, dtype=torch.float64, generator=seeded(0))
    slope = quantized(terms, lam, 3, 0.2, "l2").slope
    assert slope.shape == (3, 4)
    for k in range(3):
        for b in range(4):
            share = float(lam[k, b])
            assert abs(int(slope[k, b]) - 0.2 / 6 * SCALE * math.log(share / (1 - share))) <= 0.51
    shared = quantized(terms, lam[:, :1], 3, 0.2, "l2").slope
    assert torch.equal(shared, slope[:, :1].expand(-1, 4))


def test_the_ends_are_finite_and_mirrored():
    slope = quantized(random_terms("generic", 1, 2, 2, seed=0), torch.tensor([[0.0], [1.0], [0.5]]), 2, 0.2, "l2").slope[:, 0]
    edge = 0.2 / 4 * SCALE * math.log(MIN_SHARE / (1 - MIN_SHARE))
    assert abs(int(slope[0]) - edge) < 1000  # 1 − 10⁻⁷ is no float64, so the logit there has fewer digits
    assert abs(int(slope[1]) + edge) < 1000
    assert int(slope[2]) == 0


def test_whole_numbers_are_contiguous_on_the_cpu():
    terms = CutTerms(*(part.transpose(1, 2) for part in random_terms("generic", 2, 3, 4, seed=0)))
    terms = CutTerms(terms.cost, terms.right, terms.down)
    problem = quantized(terms, torch.tensor([[0.5]]), 3, 0.2, "l2")
    for part in problem[:4]:
        assert part.is_contiguous()
        assert part.dtype == torch.int64
        assert part.device.type == "cpu"
    assert isinstance(problem, CutProblem)
    assert (problem.base.shape, problem.down.shape, problem.right.shape) == ((2, 2, 4, 3), (2, 3, 3), (2, 4, 2))


@pytest.mark.parametrize("part", ["cost", "down", "right", "eta"])
def test_what_does_not_fit_is_refused(part):
    terms = random_terms("generic", 2, 2, 2, seed=0)
    eta = 1e12 if part == "eta" else 0.2
    if part != "eta":
        terms = terms._replace(**{part: getattr(terms, part) * 1e12})
    with pytest.raises(ValueError, match="too large to be solved exactly"):
        quantized(terms, torch.tensor([[0.1]]), 2, eta, "l2")  # with two labels eta is in the slope only


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value):
    terms = random_terms("generic", 2, 2, 2, seed=0)
    terms.cost[1, 0, 1] = value
    with pytest.raises(ValueError, match="too large to be solved exactly"):
        quantized(terms, torch.tensor([[0.1]]), 3, 0.2, "l2")


def test_the_largest_that_fits_is_summed_exactly():
    terms = random_terms("generic", 1, 2, 2, seed=0)
    terms = CutTerms(*(part * 2.0**19 for part in terms))
    problem = quantized(terms, torch.tensor([[0.3]]), 5, 0.2, "l4")
    for seed in range(20):
        levels = random_levels(1, 1, 2, 2, labels=5, seed=seed)
        assert int(problem_energy(problem, levels)) == loop_energy(problem, 0, 0, levels[0, 0])
