"""Costs of blocks and weights of borders, against loops over blocks and cells."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multimix.geometry.grid import block_saliency
from multimix.methods.puzzlemix.masks import cut_terms
from oracles import seeded
from puzzle_oracle import energy, held


def pair_of_images(channels, height, width, seed=0):
    x = torch.rand(2, channels, height, width, generator=seeded(seed))
    return x, torch.rand(2, height, width, generator=seeded(seed + 1)) ** 3


def assert_terms(x, saliency, grid, **options):
    partner = torch.tensor([1, 0])
    terms = cut_terms(x, partner, block_saliency(saliency, grid), **options)
    assert all(part.dtype == torch.float64 for part in terms)
    for i, j in ((0, 1), (1, 0)):
        own_cost, pair_cost, weights = energy(x[i], x[j], saliency[i], saliency[j], grid, **options)
        np.testing.assert_allclose(terms.cost[i].numpy(), pair_cost - own_cost, atol=1e-7)
        down, right = np.zeros((grid[0] - 1, grid[1])), np.zeros((grid[0], grid[1] - 1))
        for (first, second), weight in weights.items():
            (down if second[0] > first[0] else right)[first] = weight
        np.testing.assert_allclose(terms.down[i].numpy(), down, atol=1e-7)
        np.testing.assert_allclose(terms.right[i].numpy(), right, atol=1e-7)


@pytest.mark.parametrize("blocks", [2, 4, 8, 16])
@pytest.mark.parametrize("neighborhood", [1, 2, 4])
def test_published_sizes(blocks, neighborhood):
    x, saliency = pair_of_images(3, 32, 32)
    assert_terms(x, saliency, (blocks, blocks), beta=1.2, gamma=0.5, neighborhood=neighborhood, std=1.0)


@settings(max_examples=40)
@given(
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    channels=st.integers(1, 3),
    neighborhood=st.integers(1, 5),
    beta=st.floats(0, 20),
    gamma=st.floats(0, 1),
    data=st.data(),
)
def test_any_size_and_grid(height, width, channels, neighborhood, beta, gamma, data):
    grid = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    x, saliency = pair_of_images(channels, height, width, seed=height * 21 + width)
    assert_terms(x, saliency, grid, beta=beta, gamma=gamma, neighborhood=neighborhood, std=1.0)


def test_spectrogram():
    x, saliency = pair_of_images(1, 161, 101)
    assert_terms(x, saliency, (16, 16), beta=1.2, gamma=0.5, neighborhood=4, std=1.0)


def test_normalised_pixels_give_the_terms_of_the_pixels():
    x, saliency = pair_of_images(3, 16, 12)
    mean, std = torch.tensor([0.5, 0.4, 0.3]).reshape(3, 1, 1), torch.tensor([0.2, 0.25, 0.3]).reshape(3, 1, 1)
    partner, blocks = torch.tensor([1, 0]), block_saliency(saliency, (4, 4))
    for ours, expected in zip(
        cut_terms((x - mean) / std, partner, blocks, std=(0.2, 0.25, 0.3)), cut_terms(x, partner, blocks), strict=True
    ):
        torch.testing.assert_close(ours, expected, atol=1e-8, rtol=0)


def test_saliency_of_blocks():
    saliency = torch.rand(3, 7, 10, generator=seeded(0))
    shares = block_saliency(saliency, (3, 4))
    for i in range(3):
        np.testing.assert_allclose(shares[i].numpy(), held(saliency[i], (3, 4)), rtol=1e-6)
    assert torch.equal(block_saliency(torch.zeros(2, 7, 10), (3, 4)), torch.full((2, 3, 4), 1 / 12, dtype=torch.float64))
    half = torch.full((1, 8, 8), 60000.0, dtype=torch.float16)
    torch.testing.assert_close(block_saliency(half, (2, 2)), torch.full((1, 2, 2), 0.25, dtype=torch.float64))


def test_a_pair_has_its_terms_in_any_batch():
    """Bit for bit: a product with a matrix, or a sum whose order depends on the batch, would not have it."""
    for height, width, grid in ((32, 32, (16, 16)), (31, 29, (8, 5)), (64, 48, (4, 4))):
        x = torch.rand(9, 3, height, width, generator=seeded(0))
        saliency = block_saliency(torch.rand(9, height, width, generator=seeded(1)), grid)
        partner = torch.randperm(9, generator=seeded(2))
        whole = cut_terms(x, partner, saliency)
        order = torch.randperm(9, generator=seeded(3))
        place = order.argsort()
        shuffled = cut_terms(x[order], place[partner[order]], saliency[order])
        two = torch.tensor([4, int(partner[4])])
        alone = cut_terms(x[two], torch.tensor([1, 0]), saliency[two])
        for ours, again, of_two in zip(whole, shuffled, alone, strict=True):
            assert torch.equal(again, ours[order])
            assert torch.equal(of_two[0], ours[4])


@pytest.mark.parametrize(("gamma", "lowest"), [(0.5, 0.5), (1.0, 0.0)])
def test_the_bound_on_weights_is_attained_and_never_passed(gamma, lowest):
    """A checkerboard and its complement make mixed borders as smooth as can be: w = b (1 − γ)."""
    board = (torch.arange(8)[:, None] + torch.arange(8)) % 2
    x = torch.stack([board, 1 - board]).float().unsqueeze(1)
    terms = cut_terms(x, torch.tensor([1, 0]), block_saliency(torch.ones(2, 8, 8), (8, 8)), beta=16 * 8, gamma=gamma)
    assert float(terms.down.min()) == pytest.approx(lowest, abs=1e-6)
    assert float(terms.right.min()) == pytest.approx(lowest, abs=1e-6)


def test_out_of_range_is_refused_or_raised_to_0():
    x, saliency = pair_of_images(3, 8, 8)
    partner, blocks = torch.tensor([1, 0]), block_saliency(saliency, (8, 8))
    with pytest.raises(ValueError, match="gamma.*out_of_range='clamp'"):
        cut_terms(x * 4, partner, blocks, std=1.0)
    with pytest.raises(ValueError, match="gamma"):
        cut_terms(x, partner, blocks, gamma=1.5)
    for outside in (x * 4, x - 0.01, x + 0.01 + (1 - x.max())):
        with pytest.raises(ValueError, match="x must"):
            cut_terms(outside, partner, blocks)
    free = cut_terms(x * 4, partner, blocks, gamma=1.0, out_of_range="clamp")
    raised = torch.cat([free.down.flatten(), free.right.flatten()])
    assert float(raised.min()) == 0
    assert (raised == 0).any()
    x[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    with pytest.raises(ValueError, match="gamma"):
        cut_terms(x, partner, blocks, std=(1.01, 0.1, 0.1), gamma=1.0)  # only one channel is too wide, and only just
    cut_terms(x, partner, blocks, std=(0.999, 0.1, 0.1), gamma=1.0)
    mean, std = 0.485, 0.229
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        cut_terms(((x - mean) / std).to(dtype), partner, blocks, std=std, gamma=1.0)  # rounding is no excess
    shifted = x + 3 * torch.arange(3).reshape(3, 1, 1)  # channels apart, each within its range
    assert float(cut_terms(shifted, partner, blocks, gamma=1.0, std=1.0).down.min()) > 0
    coarse = block_saliency(saliency, (2, 2))
    with pytest.raises(ValueError, match="gamma"):
        cut_terms(x * 4, partner, coarse, std=1.0)  # whatever the grid
    within = cut_terms(x * 2 - 1, partner, blocks, std=1.0)
    assert float(within.down.min()) > 0
