"""Masks by the dual flow: equal to the smallest optimum, with bounds that hold at any time and proofs that are never wrong."""

import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import multimix as mm
from mask_oracles import KINDS, brute_force, coarse, loop_energy, max_flow, random_problem, random_terms
from multimix.methods.puzzlemix import rof
from multimix.methods.puzzlemix.masks import problem_levels, quantized, solve_masks
from multimix.methods.puzzlemix.rof import CutProblem, rof_levels
from oracles import seeded

LAM = torch.tensor([[0.5], [0.1], [0.93], [1e-9], [0.5], [0.4]], dtype=torch.float64)
COSTS = ["l1", "l2", "l4"]


def problem_of(kind, batch, rows, columns, labels=3, cost="l2", seed=0, lam=LAM):
    """Without the prior the multiples of 1/8 stay what they are: ties in every block."""
    return quantized(random_terms(kind, batch, rows, columns, seed), lam, labels, 0.0 if kind == "ties" else 0.2, cost)


def each(problem):
    return [(k, b) for k in range(len(problem.slope)) for b in range(len(problem.base))]


def check_smallest_optimum(problem, solver):
    """Every mask equals the oracle's, and all are proven."""
    found = rof_levels(problem)
    for k, b in each(problem):
        levels, energy = solver(problem, k, b)
        assert found.levels[k, b].tolist() == levels.tolist(), f"slope {k} of pair {b}"
        assert loop_energy(problem, k, b, levels) == energy
    assert found.proven.all()
    assert (found.gap < 1).all()


@pytest.mark.parametrize(("rows", "columns", "labels"), [(2, 2, 3), (5, 8, 4), (16, 16, 3), (32, 3, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_compiled_solver(kind, rows, columns, labels):
    """The same masks, so the same energies, from the same terms; through the method, too."""
    terms = random_terms(kind, 4, rows, columns, seed=1)
    options = {"labels": labels, "eta": 0.0 if kind == "ties" else 0.2}
    compiled, certified = (solve_masks(terms, LAM, **options, backend=backend) for backend in ("auto", "torch"))
    assert torch.equal(certified, compiled)
    assert rof_levels(quantized(terms, LAM, labels, options["eta"], "l2")).proven.all()


def test_puzzle_mix_takes_it():
    x, saliency = torch.rand(4, 3, 16, 16, generator=seeded(0)), torch.rand(4, 16, 16, generator=seeded(1)) ** 4
    options = {"k": 3, "blocks": (8,), "labels": 4}
    compiled, certified = (
        mm.PuzzleMix(**options, backend=backend).plan(x, saliency=saliency, generator=seeded(2)) for backend in ("auto", "torch")
    )
    assert torch.equal(certified.levels, compiled.levels)
    assert torch.equal(certified.mix(x), compiled.mix(x))


@pytest.mark.parametrize("labels", [2, 3, 4, 5])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_brute_force(kind, cost, labels):
    shapes = [(1, 1), (1, 4), (2, 2), (2, 3)] if labels < 5 else [(4, 1), (2, 2)]
    for seed, (rows, columns) in enumerate(shapes):
        check_smallest_optimum(problem_of(kind, 2, rows, columns, labels, cost, seed), brute_force)


@pytest.mark.parametrize(("labels", "rows", "columns"), [(2, 3, 3), (3, 3, 2), (4, 1, 5), (5, 2, 2)])
@pytest.mark.parametrize("power", [1, 2, 4])
def test_equal_to_brute_force_where_nearly_all_is_tied(power, labels, rows, columns):
    problem = random_problem(15, rows, columns, labels, power, seed=labels)
    check_smallest_optimum(problem, brute_force)
    fine = CutProblem(*(part << 34 for part in problem[:4]), problem.bend)
    assert torch.equal(rof_levels(fine).levels, rof_levels(problem).levels)


@pytest.mark.parametrize(("labels", "batch"), [(2, 3), (3, 2)])
@pytest.mark.parametrize("kind", ["generic", "one block"])
def test_equal_to_brute_force_on_nine_blocks(kind, labels, batch):
    check_smallest_optimum(problem_of(kind, batch, 3, 3, labels), brute_force)


@pytest.mark.parametrize(
    ("rows", "columns", "labels", "cost"), [(4, 4, 5, "l4"), (5, 7, 3, "l2"), (8, 8, 3, "l2"), (8, 8, 4, "l1")]
)
@pytest.mark.parametrize("kind", ["generic", "ties", "strong"])
def test_equal_to_the_maximum_flow_on_larger_grids(kind, rows, columns, labels, cost):
    """scipy counts to 2³¹ only, so all numbers are cut to fewer bits."""
    check_smallest_optimum(coarse(problem_of(kind, 1, rows, columns, labels, cost), 24), max_flow)


def test_tied_grids_equal_the_maximum_flow():
    check_smallest_optimum(random_problem(3, 6, 5, 3, 2, seed=0), max_flow)
    check_smallest_optimum(random_problem(1, 1, 25, 4, 4, seed=1), max_flow)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    rows=st.integers(1, 2),
    columns=st.integers(1, 3),
    labels=st.integers(2, 4),
    cost=st.sampled_from(COSTS),
    most=st.integers(0, 12),
    seed=st.integers(0, 10**6),
)
def test_bounds_hold_after_any_number_of_iterations(kind, rows, columns, labels, cost, most, seed):
    problem = problem_of(kind, 2, rows, columns, labels, cost, seed, lam=LAM[:3])
    found = rof_levels(problem, max_iterations=most)
    for k, b in each(problem):
        levels, energy = brute_force(problem, k, b)
        reached = loop_energy(problem, k, b, found.levels[k, b])
        assert reached - float(found.gap[k, b]) <= energy + 1e-3  # the gap is rounded to float64
        assert found.gap[k, b] >= 0
        if found.proven[k, b]:
            assert found.levels[k, b].tolist() == levels.tolist()
        if found.gap[k, b] < 1:
            assert reached == energy


@pytest.mark.parametrize("most", [0, 2, 5, 10])
def test_nothing_is_proven_too_early(most):
    problem = random_problem(100, 2, 3, 3, 2, seed=most)
    found = rof_levels(problem, max_iterations=most)
    exact = [[brute_force(problem, k, b)[0].tolist() == found.levels[k, b].tolist() for b in range(100)] for k in range(5)]
    exact = torch.tensor(exact)
    assert not (found.proven & ~exact).any()
    assert found.proven.any()
    assert not exact.all()


@pytest.mark.parametrize("most", [1, 10, 4000])
@pytest.mark.parametrize("kind", KINDS)
def test_nested_in_lam_proven_or_not(kind, most):
    lam = torch.linspace(0, 1, 21, dtype=torch.float64)[:, None]
    levels = rof_levels(problem_of(kind, 3, 5, 8, 4, lam=lam), max_iterations=most).levels.int()
    assert (levels.diff(dim=0) >= 0).all()
    assert levels.max() <= 3


def test_one_slope_equals_its_slice_in_any_order():
    lam = torch.rand(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    order = [3, 0, 4, 4, 1, 2]
    for kind in ("generic", "some apart"):
        terms = random_terms(kind, 7, 6, 9, seed=2)
        path = rof_levels(quantized(terms, lam, 3, 0.2, "l2")).levels
        assert torch.equal(rof_levels(quantized(terms, lam[order], 3, 0.2, "l2")).levels, path[order])
        for k in range(5):
            assert torch.equal(rof_levels(quantized(terms, lam[k : k + 1], 3, 0.2, "l2")).levels[0], path[k])


def test_a_pair_does_not_depend_on_the_others():
    problem = problem_of("generic", 6, 7, 4)
    everything = rof_levels(problem)
    for b in range(6):
        alone = CutProblem(*(part[b : b + 1] for part in problem[:3]), problem.slope[:, b : b + 1], problem.bend)
        assert torch.equal(rof_levels(alone).levels[:, 0], everything.levels[:, b])


def test_many_labels_take_a_few_pairs_at_once(monkeypatch):
    problem = problem_of("generic", 5, 4, 4, labels=9)
    together = rof_levels(problem)
    seen = []
    advance = rof._Flow.advance
    monkeypatch.setattr(rof._Flow, "advance", lambda flow, count: (seen.append(len(flow.pace)), advance(flow, count)))
    monkeypatch.setattr(rof, "MAX_SOLVER_BYTES", 2 * rof.BYTES * 8**2 * 16)
    apart = rof_levels(problem)
    assert max(seen) == 2
    assert apart.proven.all()
    assert torch.equal(apart.levels, together.levels)
    assert torch.equal(apart.levels, problem_levels(problem))


def test_pairs_leave_when_proven(monkeypatch):
    """Blocks without weights are proven at the first look, strong ties between many blocks are not."""
    problem = problem_of("strong", 4, 12, 12)
    problem.down[::2], problem.right[::2] = 0, 0
    seen = []
    advance = rof._Flow.advance
    monkeypatch.setattr(rof._Flow, "advance", lambda flow, count: (seen.append(len(flow.pace)), advance(flow, count)))
    found = rof_levels(problem)
    assert found.proven.all()
    assert seen[:2] == [4, 2]
    apart = (problem.slope[:, ::2, None, None, None] > problem.base[::2]).sum(2)
    assert torch.equal(found.levels[:, ::2].long(), apart)


def test_exact_ties_between_many_blocks_are_proven_to_the_last_digit():
    """Momentum that is never stopped would need more than twice as many iterations."""
    problem = random_problem(10, 12, 12, 3, 2, seed=0)
    fine = CutProblem(*(part << 32 for part in problem[:4]), problem.bend)
    assert rof_levels(fine, max_iterations=800).proven.all()


def test_types_and_shapes():
    found = rof_levels(problem_of("generic", 3, 4, 5), device="cpu")
    assert found.levels.shape == (6, 3, 4, 5)
    assert found.gap.shape == found.proven.shape == (6, 3)
    assert (found.levels.dtype, found.gap.dtype, found.proven.dtype) == (torch.uint8, torch.float64, torch.bool)


def test_says_what_is_not_proven(caplog):
    problem = problem_of("generic", 5, 16, 16)
    with caplog.at_level(logging.WARNING, "multimix"):
        assert rof_levels(problem).proven.all()
        assert caplog.messages == []
        found = rof_levels(problem, max_iterations=1)
    (message,) = caplog.messages
    unproven = ~found.proven
    bound = torch.tensor([[loop_energy(problem, k, b, found.levels[k, b]) for b in range(5)] for k in range(6)]) - found.gap
    share = float((found.gap / -bound)[unproven].max())
    assert int(unproven.sum()) > 5
    assert message.startswith(f"{int(unproven.sum())} of 30 masks are not proven optimal after 1 iterations")
    assert f" {share:.1e} " in message


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_finds_the_same_and_proves_nothing_wrong(kind, monkeypatch):
    """As on a device without float64: exact ties are found, but cannot be proven."""
    monkeypatch.setattr(rof, "_float_of", lambda device: torch.float32)
    problem = problem_of(kind, 10, 2, 3)
    found = rof_levels(problem, max_iterations=200)
    for k, b in each(problem):
        levels, energy = brute_force(problem, k, b)
        assert found.levels[k, b].tolist() == levels.tolist()
        assert found.gap[k, b] < 1 or found.gap[k, b] < 1e-4 * abs(energy)
    assert found.proven.double().mean() > (0.5 if kind == "ties" else 0.9)


def test_numbers_near_the_largest_do_not_overflow():
    """Up to 2⁶² in sum is allowed; there is then no room behind the point, and the proof needs a gap of exactly 0."""
    problem = coarse(problem_of("generic", 3, 3, 2, lam=LAM[:3]), 0)
    total = problem.base.abs().sum() + problem.slope.abs().max() * 12 + 16 * (problem.down.sum() + problem.right.sum())
    shift = 62 - int(total).bit_length()
    assert shift > 10
    huge = CutProblem(*(part << shift for part in problem[:4]), problem.bend)
    check_smallest_optimum(huge, brute_force)
    assert torch.equal(rof_levels(huge).levels, rof_levels(problem).levels)
