"""The library without numba: torch and SciPy paths, and errors that name the extra."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import multimix as mm
from multimix.core import compiled
from multimix.methods.puzzlemix import masks
from multimix.methods.puzzlemix import method as puzzle
from multimix.methods.saliency_mix import fine_saliency
from oracles import seeded

EXTRA = r"multimix\[solvers\]"
PROCESS = """
import sys
sys.modules["numba"] = None
import torch
import multimix as mm

x = torch.rand(4, 3, 16, 12, generator=torch.Generator().manual_seed(0))
given = {"saliency": x.mean(1)}
puzzle = mm.PuzzleMix(k=2, blocks=4)
for method, maps in ((mm.CutMix(k=2), {}), (mm.SaliencyMix(k=2), {}), (mm.SAGE(k=2), given), (puzzle, given)):
    assert method.plan(x, **maps).mix(x).isfinite().all()
for method, z, saliency in ((mm.CoMixup(), x, x.mean(1)), (mm.SageMix(derange=True), x[:, 0, :, :3], x[:, 0, :, 0]),
                            (mm.PuzzleMix(transport="reference"), x, x.mean(1))):
    try:
        method.plan(z, saliency=saliency)
    except ImportError as error:
        assert "multimix[solvers]" in str(error), error
    else:
        raise AssertionError(f"{method} needs numba")
"""


@pytest.fixture
def without_numba(monkeypatch):
    for module in (compiled, masks, puzzle, sys.modules["multimix.methods.saliency_mix"], sys.modules["multimix.methods.sage"]):
        monkeypatch.setattr(module, "has_numba", lambda: False)


def test_a_process_without_numba():
    subprocess.run([sys.executable, "-c", PROCESS], check=True)


@pytest.mark.parametrize("size", [(32, 32), (17, 23), (1, 40), (150, 130)], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("options", [{}, {"mean": 0.5, "std": 0.25}], ids=str)
def test_fine_saliency_agrees(size, channels, options, request):
    x = torch.rand(3, channels, *size, generator=seeded(0))
    maps = fine_saliency(x, **options)
    request.getfixturevalue("without_numba")
    torch.testing.assert_close(fine_saliency(x, **options), maps, atol=2e-9, rtol=0)


@pytest.mark.parametrize("size", [(32, 32), (17, 23), (40,)], ids=str)
def test_sage_agrees(size, request):
    x = torch.rand(70, 3, *size, generator=seeded(0))
    saliency = torch.rand(70, *size, generator=seeded(1)) ** 3
    method = mm.SAGE(k=3, positions=0.01)
    plan = method.plan(x, saliency=saliency, generator=seeded(2))
    request.getfixturevalue("without_numba")
    torch_plan = method.plan(x, saliency=saliency, generator=seeded(2))
    assert torch.equal(torch_plan.shift, plan.shift)


def transport_problem(rows, columns, seed):
    visible = torch.rand(3, 5, rows, columns, generator=seeded(seed)) < 0.5
    saliency = torch.rand(5, rows, columns, dtype=torch.float64, generator=seeded(seed + 1)) ** 4
    return visible, saliency / saliency.sum((1, 2), keepdim=True)


def transport_cost(source, visible, saliency, eps):
    rows, columns = visible.shape[2:]
    place = np.arange(rows * columns)
    source = source.numpy()
    far = [(axis[source] - axis) / max(side - 1, 1) for axis, side in ((place // columns, rows), (place % columns, columns))]
    moved = eps * (far[0] ** 2 + far[1] ** 2)
    shown = saliency.flatten(1).expand(len(source), -1, -1).gather(2, torch.from_numpy(source).long())
    return ((moved - shown.numpy()) * visible.flatten(2).numpy()).sum(2)


@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (4, 4), (5, 8), (16, 16)], ids=str)
@pytest.mark.parametrize("eps", [0.05, 0.8])
def test_scipy_transport_is_the_compiled_one(grid, eps, request):
    """Equal costs and equal blocks; a chain of moves at right angles may be as cheap as one move."""
    visible, saliency = transport_problem(*grid, 0)
    source = puzzle.assigned_blocks(visible, saliency, eps)
    request.getfixturevalue("without_numba")
    by_scipy = puzzle.assigned_blocks(visible, saliency, eps)
    assert by_scipy.dtype == source.dtype
    costs = (transport_cost(each, visible, saliency, eps) for each in (by_scipy, source))
    np.testing.assert_allclose(*costs, atol=1e-12)
    hidden = ~visible.flatten(2)
    shown = [each.masked_fill(hidden, -1).sort(2).values for each in (by_scipy, source)]
    assert torch.equal(*shown)
    assert torch.equal(by_scipy[hidden], source[hidden])


def test_scipy_transport_moves_the_same_blocks_without_ties(request):
    """Along a line no two chains of moves cost the same."""
    visible, saliency = transport_problem(1, 12, 3)
    source = puzzle.assigned_blocks(visible, saliency, 0.8)
    request.getfixturevalue("without_numba")
    assert torch.equal(puzzle.assigned_blocks(visible, saliency, 0.8), source)


def test_puzzle_masks_agree(request):
    x = torch.rand(6, 3, 32, 32, generator=seeded(0))
    saliency = torch.rand(6, 32, 32, generator=seeded(1)) ** 3
    method = mm.PuzzleMix(k=3, blocks=(4,))
    plan = method.plan(x, saliency=saliency, generator=seeded(2))
    request.getfixturevalue("without_numba")
    torch_plan = method.plan(x, saliency=saliency, generator=seeded(2))
    assert torch.equal(torch_plan.levels, plan.levels)
    assert torch.equal(torch_plan.lam, plan.lam)


def test_transport_without_scipy_names_both(without_numba, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match=f"scipy.*{EXTRA}"):
        puzzle.assigned_blocks(*transport_problem(4, 4, 0), 0.8)
    x = torch.rand(4, 3, 8, 8, generator=seeded(0))
    mm.PuzzleMix(transport="none").plan(x, saliency=x.mean(1))


def test_the_graph_cut_names_the_extra(without_numba):
    terms = masks.CutTerms(torch.zeros(1, 2, 2), torch.ones(1, 1, 2), torch.ones(1, 2, 1))
    problem = masks.quantized(terms, torch.full((1, 1), 0.5), 3, 0.2, "l2")
    with pytest.raises(ImportError, match=EXTRA):
        masks.problem_levels(problem)


def test_warmup_names_the_extra(without_numba):
    with pytest.raises(ImportError, match=EXTRA):
        mm.warmup()
