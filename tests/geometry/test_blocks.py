"""Blocks: borders, sums, the plan's masks, moves and noise, against plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multimix.geometry.blocks import BlockPlan, moved_places
from multimix.geometry.grid import block_means, block_of, block_sums, borders, cut_finer, spread
from oracles import seeded

sides = st.integers(1, 40)


def shuffled(count, *, steps, batch, seed):
    generator = seeded(seed)
    rows = [[torch.randperm(count, generator=generator) for _ in range(batch)] for _ in range(steps)]
    return torch.stack([torch.stack(row) for row in rows]).int()


def block_plan(batch, size, grid, *, k=3, steps=2, seed=0, **fields):
    levels = torch.randint(steps + 1, (k, batch, *grid), generator=seeded(seed)).to(torch.uint8).sort(dim=0).values
    partner = torch.randperm(batch, generator=seeded(seed + 1))
    return BlockPlan(partner=partner, size=torch.Size(size), levels=levels, steps=steps, **{"cells": grid} | fields)


def by_hand(plan, x):
    """Place by place."""
    size = plan.size if len(plan.size) == 2 else (1, *plan.size)
    x = x.reshape(*x.shape[:2], *size)
    own = x if plan.noise is None else x + plan.noise.reshape(x.shape)
    pair = x if plan.noise_pair is None else x + plan.noise_pair.reshape(x.shape)
    out = torch.empty(plan.k, *x.shape, dtype=x.dtype)
    grid = plan.levels.shape[2:]

    def at(place, side, count):
        return max(c for c in range(count) if side * c // count <= place)

    def shown(source, y, c):
        cell = at(y, size[0], plan.cells[0]), at(c, size[1], plan.cells[1])
        there = cell if source is None else divmod(int(source[cell[0] * plan.cells[1] + cell[1]]), plan.cells[1])
        return tuple(
            min(side * t // n + p - side * o // n, side * (t + 1) // n - 1)
            for p, o, t, side, n in zip((y, c), cell, there, size, plan.cells, strict=True)
        )

    for k in range(plan.k):
        for i, j in enumerate(plan.partner.tolist()):
            for y, c in np.ndindex(*size):
                m = int(plan.levels[k, i, at(y, size[0], grid[0]), at(c, size[1], grid[1])]) / plan.steps
                a = own[(i, slice(None), *shown(None if plan.source is None else plan.source[k, i], y, c))]
                b = pair[(j, slice(None), *shown(None if plan.source_pair is None else plan.source_pair[k, i], y, c))]
                out[k, i, :, y, c] = (1 - m) * a + m * b
    return out.reshape(plan.k * len(x), x.shape[1], *plan.size)


@given(side=sides, data=st.data())
def test_blocks_are_as_even_as_they_can_be_and_refine(side, data):
    count = data.draw(st.integers(1, side))
    edges = borders(side, count)
    lengths = np.diff(edges)
    assert edges[0] == 0
    assert edges[-1] == side
    assert lengths.min() >= 1
    assert lengths.max() - lengths.min() <= 1
    assert [int(block) for block in block_of(side, count)] == [b for b, n in enumerate(lengths) for _ in range(n)]
    cell = data.draw(st.integers(1, side))
    finer = cut_finer(side, count, cell)
    assert finer % count == 0
    assert set(edges) <= set(borders(side, finer))
    if finer > count:
        assert np.diff(borders(side, finer)).min() >= cell


@settings(max_examples=40)
@given(height=sides, width=sides, data=st.data())
def test_sums_and_means_of_blocks(height, width, data):
    grid = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    values = torch.randn(2, 3, height, width, generator=seeded(height * 41 + width), dtype=torch.float64)
    down, across = borders(height, grid[0]), borders(width, grid[1])
    expected = torch.empty(2, 3, *grid, dtype=torch.float64)
    mean = torch.empty_like(expected)
    for r, c in np.ndindex(*grid):
        block = values[:, :, down[r] : down[r + 1], across[c] : across[c + 1]]
        expected[:, :, r, c], mean[:, :, r, c] = block.sum((2, 3)), block.mean((2, 3))
    torch.testing.assert_close(block_sums(values, grid), expected)
    torch.testing.assert_close(block_means(values, grid), mean)
    assert torch.equal(spread(expected, (height, width))[:, :, down[-2], across[-2]], expected[:, :, -1, -1])


@pytest.mark.parametrize("size", [(8, 12), (7, 11), (13,)], ids=str)
@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (4, 4)], ids=str)
@pytest.mark.parametrize("moves", ["none", "first", "second", "both"])
def test_mixing_equals_the_loop(size, grid, moves):
    if len(size) == 1:
        grid = (1, grid[1])
    plan = block_plan(4, size, grid)
    for cells in (grid, tuple(cut_finer(s, n, 1) for s, n in zip((*[1] * (2 - len(size)), *size), grid, strict=True))):
        one, other = (shuffled(cells[0] * cells[1], steps=3, batch=4, seed=seed) for seed in (5, 6))
        moved = replace(
            plan,
            cells=cells,
            source=one if moves in ("first", "both") else None,
            source_pair=other if moves in ("second", "both") else None,
        )
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(4, 3, *size, generator=seeded(2)).to(dtype)
            expected = by_hand(moved, x)
            torch.testing.assert_close(moved.mix(x), expected)
            torch.testing.assert_close(moved.mix(x.clone().requires_grad_()).detach(), expected)


def test_noise_goes_to_its_role_before_the_moves_and_not_to_targets():
    x = torch.randn(4, 3, 8, 12, generator=seeded(2))
    noise, noise_pair = (torch.randn(4, 3, 8, 12, generator=seeded(seed)) for seed in (8, 9))
    source = shuffled(6, steps=3, batch=4, seed=5)
    moved = block_plan(4, (8, 12), (2, 3), source=source)
    for own, pair, moves in ((noise, None, source), (None, noise_pair, None), (noise, None, None), (noise, noise_pair, source)):
        plan = replace(moved, source=moves)
        noisy = replace(plan, noise=own, noise_pair=pair)
        torch.testing.assert_close(noisy.mix(x), by_hand(noisy, x))
        torch.testing.assert_close(noisy.mix(x.clone().requires_grad_()).detach(), by_hand(noisy, x))
        assert torch.equal(noisy.mix_target(x), plan.mix(x)), "a segmentation map follows the blocks, without noise"
        assert torch.equal(noisy[1:].mix(x), noisy.mix(x)[4:])
        assert noisy.to("meta").mask.shape == noisy.mask.shape


@pytest.mark.parametrize("grid", [(2, 3), (4, 4)], ids=str)
def test_channels_last(grid):
    x = torch.randn(4, 3, 7, 11, generator=seeded(2))
    plan = block_plan(4, (7, 11), grid, source=shuffled(grid[0] * grid[1], steps=3, batch=4, seed=5))
    mixed = plan.mix(x.contiguous(memory_format=torch.channels_last))
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(mixed, by_hand(plan, x))
    strided = torch.randn(4, 7, 3, 11, generator=seeded(2)).transpose(1, 2)
    torch.testing.assert_close(plan.mix(strided), by_hand(plan, strided))


def test_ends_are_bit_exact_and_share_is_the_pixel_mean():
    x = torch.randn(5, 3, 9, 7, generator=seeded(0)) * 1e3
    plan = block_plan(5, (9, 7), (4, 3), steps=4)
    assert torch.equal(replace(plan, levels=torch.zeros_like(plan.levels)).mix(x), x.repeat(3, 1, 1, 1))
    full = replace(plan, levels=torch.full_like(plan.levels, 4))
    assert torch.equal(full.mix(x), x[plan.partner].repeat(3, 1, 1, 1))
    assert (full.lam == 1).all()
    torch.testing.assert_close(plan.lam, plan.mask.double().flatten(2).mean(2))
    assert plan.lam.dtype == torch.float64


def test_two_threads_mix_as_one():
    x = torch.randn(16, 3, 65, 67, generator=seeded(0))
    plan = block_plan(16, (65, 67), (8, 8), source=shuffled(64, steps=3, batch=16, seed=1))
    before = torch.get_num_threads()
    mixed = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        mixed.append(plan.mix(x))
    torch.set_num_threads(before)
    assert torch.equal(*mixed)


def test_a_moved_cell_that_is_too_short_repeats_its_last_place():
    # Five places in two cells: 0 1 | 2 3 4. The first cell shown in place of the second lacks one.
    assert moved_places(torch.tensor([[1, 0], [0, 1]]), (1, 5), (1, 2)).tolist() == [[2, 3, 0, 1, 1], [0, 1, 2, 3, 4]]


def test_every_other_step_of_a_plan():
    x = torch.randn(4, 3, 8, 8, generator=seeded(0))
    plan = block_plan(4, (8, 8), (4, 4), k=5, source=shuffled(16, steps=5, batch=4, seed=1))
    steps = plan.mix(x).unflatten(0, (5, 4))
    assert torch.equal(plan[::2].mix(x), steps[::2].flatten(0, 1))


def test_a_gradient_does_not_change_the_precision():
    x = torch.randn(4, 3, 8, 8, generator=seeded(0), dtype=torch.float64)
    plan = block_plan(4, (8, 8), (4, 4), steps=7)
    torch.testing.assert_close(plan.mix(x), plan.mix(x.clone().requires_grad_()).detach(), atol=1e-15, rtol=1e-15)
