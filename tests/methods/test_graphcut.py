"""Masks of the compiled solver: optimal, smallest, nested, and the same whatever surrounds a pair."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mask_oracles import KINDS, brute_force, coarse, max_flow, random_problem, random_terms
from multimix.methods.puzzlemix.masks import CutTerms, problem_levels, quantized, solve_masks
from multimix.methods.puzzlemix.rof import CutProblem, problem_energy
from oracles import seeded

COSTS = ("l1", "l2", "l4")


def shares(k, batch, seed=0):
    return torch.rand(k, batch, dtype=torch.float64, generator=seeded(seed))


def assert_brute_force(problem, levels):
    for k in range(levels.shape[0]):
        for b in range(levels.shape[1]):
            smallest, energy = brute_force(problem, k, b)
            assert levels[k, b].tolist() == smallest.tolist(), (k, b)
            assert int(problem_energy(problem, levels)[k, b]) == energy


@pytest.mark.parametrize("labels", [2, 3, 4, 5])
@pytest.mark.parametrize("power", [1, 2, 4])
def test_smallest_minimiser_where_nearly_every_optimum_is_a_tie(labels, power):
    for seed, (rows, columns, batch) in enumerate([(1, 1, 10), (1, 4, 20), (2, 2, 40), (3, 2, 20), (2, 3, 20)]):
        batch = max(1, batch // 4) if labels == 5 and rows * columns == 6 else batch
        problem = random_problem(batch, rows, columns, labels, power, seed)
        assert_brute_force(problem, problem_levels(problem))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cost", COSTS)
def test_smallest_minimiser_of_the_energies_that_images_give(kind, cost):
    for labels, (rows, columns) in ((2, (3, 3)), (3, (2, 3)), (3, (2, 2)), (4, (1, 5)), (5, (2, 2))):
        terms = random_terms(kind, 6, rows, columns, seed=labels)
        problem = quantized(terms, shares(5, 6), labels, 0.2, cost)
        assert_brute_force(problem, problem_levels(problem))


def test_three_by_three_with_three_labels():
    problem = quantized(random_terms("generic", 25, 3, 3, seed=1), shares(2, 25), 3, 0.2, "l2")
    assert_brute_force(problem, problem_levels(problem))


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (5, 7), (8, 8), (16, 16), (1, 32), (9, 32)])
@pytest.mark.parametrize("labels", [2, 3, 4])
@pytest.mark.parametrize("kind", ["generic", "one block", "strong"])
def test_equals_scipys_flow_on_larger_grids(rows, columns, labels, kind):
    """Grids of more than 64 blocks need more than one word of the bit boards; of 32 columns, shifts by half a word."""
    problem = coarse(
        quantized(random_terms(kind, 2, rows, columns, seed=rows), shares(2, 2), labels, 0.2, "l2"),
        22 if kind == "strong" else 16,
    )
    levels = problem_levels(problem)
    for k in range(2):
        for b in range(2):
            smallest, energy = max_flow(problem, k, b)
            assert int(problem_energy(problem, levels)[k, b]) == energy
            assert levels[k, b].tolist() == smallest.tolist()


def test_largest_grid():
    terms = random_terms("generic", 2, 32, 32, seed=3)
    problem = coarse(quantized(terms, shares(1, 2), 3, 0.2, "l2"), 18)
    levels = problem_levels(problem)
    assert [int(e) for e in problem_energy(problem, levels)[0]] == [max_flow(problem, 0, b)[1] for b in range(2)]


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    labels=st.integers(2, 5),
    cost=st.sampled_from(COSTS),
    eta=st.sampled_from([0.0, 0.01, 0.2, 5.0]),
    seed=st.integers(0, 1000),
)
def test_nested_and_alone_as_in_company(kind, rows, columns, labels, cost, eta, seed):
    """Masks ascend with λ; K = 1 gives its slice of K = 6 bit for bit, in any order of λ, for any company in the batch."""
    terms = random_terms(kind, 3, rows, columns, seed)
    lam = shares(6, 3, seed)
    lam[5] = lam[2]  # a duplicate
    options = {"labels": labels, "eta": eta, "cost": cost}
    levels = solve_masks(terms, lam, **options)
    ascending = levels.gather(0, lam.argsort(0)[:, :, None, None].expand_as(levels))
    assert (ascending.int().diff(dim=0) >= 0).all()
    assert int(levels.max()) <= labels - 1
    assert torch.equal(levels[5], levels[2])
    for k in range(6):
        assert torch.equal(solve_masks(terms, lam[k : k + 1], **options)[0], levels[k])
    backwards = CutTerms(*(part.flip(0) for part in terms))
    assert torch.equal(solve_masks(backwards, lam.flip(1).flip(0), **options).flip(1).flip(0), levels)
    alone = CutTerms(*(part[1:2] for part in terms))
    assert torch.equal(solve_masks(alone, lam[:, 1:2], **options)[:, 0], levels[:, 1])


def test_images_swapped_and_lam_mirrored_give_the_complement():
    terms = random_terms("generic", 30, 6, 5, seed=2)
    lam = shares(4, 30)
    levels = solve_masks(terms, lam, labels=4)
    mirrored = solve_masks(CutTerms(-terms.cost, terms.down, terms.right), 1 - lam, labels=4)
    assert torch.equal(3 - mirrored, levels), "generic energies have no ties"
    tied = random_terms("ties", 30, 4, 3, seed=2)
    problems = [
        quantized(CutTerms(sign * tied.cost, tied.down, tied.right), torch.tensor([[0.5]]), 3, 0.2, "l2") for sign in (1, -1)
    ]
    one, other = (problem_levels(problem) for problem in problems)
    assert torch.equal(problem_energy(problems[0], one), problem_energy(problems[0], 2 - other))
    assert (one <= 2 - other).all(), "on ties each has its smallest mask"


@pytest.mark.parametrize("labels", [2, 3, 5])
def test_ends_and_degenerate_energies(labels):
    zeros = CutTerms(torch.zeros(1, 4, 3), torch.zeros(1, 3, 3), torch.zeros(1, 4, 2))
    zeros = CutTerms(*(part.double() for part in zeros))
    lam = torch.tensor([[0.0], [1e-12], [0.5], [1 - 1e-12], [1.0]], dtype=torch.float64)
    levels = solve_masks(zeros, lam, labels=labels)
    # Only the prior is left: the likeliest label, the smaller of two that are alike.
    middle = max(range(labels), key=lambda v: (math.comb(labels - 1, v), -v))
    for k, expected in enumerate([0, 0, middle, labels - 1, labels - 1]):
        assert (levels[k] == expected).all()
    peak = random_terms("one block", 4, 4, 4, seed=0)
    ends = solve_masks(peak, torch.tensor([[0.0], [1.0]]), labels=labels)
    assert (ends[0] == 0).all(), "λ = 0 is the sample, however salient the partner"
    assert (ends[1] == labels - 1).all()
    assert torch.equal(solve_masks(zeros, lam, labels=labels, eta=0.0)[1:4], torch.zeros(3, 1, 4, 3, dtype=torch.uint8))


def test_threads_do_not_change_a_bit():
    terms = random_terms("generic", 301, 8, 8, seed=4)
    one, two = (solve_masks(terms, shares(5, 301), threads=threads) for threads in (1, 2))
    assert torch.equal(one, two)


def test_what_cannot_be_solved_is_refused_in_one_sentence():
    terms = random_terms("generic", 1, 3, 3, seed=0)
    lam = torch.tensor([[0.5]])
    with pytest.raises(ValueError, match="labels must"):
        solve_masks(terms, lam, labels=1)
    with pytest.raises(ValueError, match="labels must"):
        solve_masks(terms, lam, labels=64, cost="l4")
    with pytest.raises(ValueError, match=r"labels=256 .* backend='torch'"):
        solve_masks(random_terms("generic", 1, 32, 32, seed=0), lam, labels=256)
    with pytest.raises(ValueError, match="cost"):
        solve_masks(terms, lam, cost="l3")
    with pytest.raises(ValueError, match="backend"):
        solve_masks(terms, lam, backend="numba")
    with pytest.raises(ValueError, match="blocks must"):
        solve_masks(random_terms("generic", 1, 33, 2, seed=0), lam)
    with pytest.raises(ValueError, match="the mask energy is too large to be solved exactly"):
        solve_masks(terms, lam, eta=1e9)
    for bad in (1e12, math.nan, math.inf):
        with pytest.raises(ValueError, match="the mask energy is too large to be solved exactly"):
            solve_masks(terms._replace(cost=terms.cost * bad), lam)


def test_numbers_near_the_limit_do_not_overflow():
    """Sums just below the limit that ``quantized`` allows, solved as their small likenesses are."""
    small = random_problem(8, 3, 3, 3, 2, seed=9)
    factor = 2**50
    large = CutProblem(*(part * factor for part in small[:4]), small.bend)
    assert torch.equal(problem_levels(large), problem_levels(small))


def test_the_limit_is_where_sums_would_leave_64_bits():
    """Every sum the solvers make stays below 2^63 if quantized lets an energy pass; twice the limit is refused."""
    terms = random_terms("generic", 1, 3, 3, seed=0)
    lam = torch.tensor([[0.5]])
    for factor in (2.0**20, 2.0**24):
        problem = quantized(terms._replace(cost=terms.cost * factor), lam, 3, 0.2, "l2")
        assert int(problem.base.abs().sum()) < 2**62
    assert_brute_force(problem, problem_levels(problem))
    size = float(terms.cost.abs().sum())
    largest = 2.0**26 / size  # the scale is 2^36, the limit 2^62
    quantized(terms._replace(cost=terms.cost * largest * 0.99), lam, 3, 0.0, "l2")
    with pytest.raises(ValueError, match="too large to be solved exactly"):
        quantized(terms._replace(cost=terms.cost * largest * 1.01), lam, 3, 0.0, "l2")


def test_lam_is_kept_a_ten_millionth_from_its_ends():
    terms = random_terms("generic", 1, 2, 2, seed=0)
    slopes = (
        quantized(terms, torch.tensor([[1e-12], [1e-7], [2e-7], [1e-6]], dtype=torch.float64), 3, 0.2, "l2").slope[:, 0].tolist()
    )
    assert slopes[0] == slopes[1] < slopes[2] < slopes[3]
    expected = 0.2 / 4 * math.log(1e-7 / (1 - 1e-7)) * 2**36
    assert slopes[0] == round(expected)
    free = torch.tensor([[0.3]], requires_grad=True)
    assert torch.equal(solve_masks(terms, free), solve_masks(terms, free.detach()))
