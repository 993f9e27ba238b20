"""The law of FMix's grey field. Statistical tests have fixed seeds; chance of failure at most 1e-3 each."""

import math

import pytest
import torch
from scipy import stats

import oracles
from multimix.methods.fmix import gray_field
from oracles import seeded


@pytest.mark.parametrize("size", [(8,), (7,), (6, 8), (5, 7), (6, 5), (3, 4, 5)], ids=str)
def test_equal_to_the_direct_sum(size):
    field = gray_field(1, size, 3.0, "full", seeded(0))[0].double()
    expected = oracles.gray_field(size, 3.0, seeded(0))
    torch.testing.assert_close(field, expected, atol=1e-5 * float(expected.abs().max()), rtol=0)


def power(size, spectrum, n=3_000):
    field = gray_field(n, size, 3.0, spectrum, seeded(1)).double()
    return torch.fft.fft2(field).abs().square()


def test_full_spectrum_is_isotropic():
    """Energy at (f, 0) and (0, f) has one law: the ratio of means of n exponentials follows F(2n, 2n)."""
    energy, n = power((32, 32), "full"), 3_000
    for f in range(1, 16):
        ratio = float(energy[:, f, 0].mean() / energy[:, 0, f].mean())
        assert stats.f.ppf(3e-5, 2 * n, 2 * n) < ratio < stats.f.isf(3e-5, 2 * n, 2 * n)
    for u, v in [(1, 2), (3, 5), (2, 9)]:
        ratio = float(energy[:, u, v].mean() / energy[:, v, 32 - u].mean())
        assert stats.f.ppf(3e-5, 2 * n, 2 * n) < ratio < stats.f.isf(3e-5, 2 * n, 2 * n)


def test_energy_falls_off_with_the_power_asked_for():
    energy = power((64, 64), "full").mean(0)
    # |coefficient|² ∝ f^(−2·3), so four times the frequency has 4^−6 of the energy.
    assert float(energy[0, 4] / energy[0, 16]) == pytest.approx(4**6, rel=0.1)


def test_reference_spectrum_has_two_columns_only():
    energy = power((32, 32), "reference", 200).mean(0)
    total = float(energy.sum())
    assert float(energy[:, 2:31].sum()) / total < 1e-8
    assert float(energy[:, [1, 31]].sum()) / total > 0.5
    full = power((32, 32), "full", 200).mean(0)
    assert float(full[:, 2:31].sum() / full[2:31].sum()) == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("size", [(6, 8), (7, 9), (4, 12)], ids=str)
def test_reference_spectrum_equals_its_direct_sum(size):
    """Rows 0 and 1 of the spectrum as real and imaginary parts, its columns as vertical frequencies, two horizontal ones."""
    height, width = size
    bins = min(width // 2 + 1, height)
    part = torch.randn(1, 2, bins, 2, generator=seeded(4)).double()[0]
    expected = torch.zeros(size, dtype=torch.float64)
    down, across = torch.arange(height).double()[:, None], torch.arange(width).double()
    for u in range(bins):
        scale = [max(math.hypot(row / height, u / width) * max(size), 1) ** -3 for row in (0, 1)]
        for v in (0, 1):
            phase = 2 * math.pi * (u * down / height + v * across / width)
            real, imaginary = scale[0] * part[0, u, v], scale[1] * part[1, u, v]
            expected += (1 + v) * (real * phase.cos() - imaginary * phase.sin()) / (height * width)
    field = gray_field(1, size, 3.0, "reference", seeded(4))[0].double()
    torch.testing.assert_close(field, expected, atol=1e-5 * float(expected.abs().max()), rtol=0)


def test_higher_decay_is_smoother():
    def perimeter(decay):
        field = gray_field(200, (32, 32), decay, "full", seeded(2))
        bright = field > field.flatten(1).median(1).values[:, None, None]
        return float((bright[:, 1:] != bright[:, :-1]).double().mean())

    assert perimeter(1.0) > 1.5 * perimeter(2.0) > 1.5 * perimeter(4.0)


def test_rows_are_independent():
    field = gray_field(2_000, (8, 8), 3.0, "full", seeded(3))
    first, second = field[:-1, 2, 3].numpy(), field[1:, 2, 3].numpy()
    assert abs(stats.pearsonr(first, second).statistic) < 4 / 2_000**0.5
