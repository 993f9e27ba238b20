"""Rows mixed past the cache: wherever they begin and end, as torch mixes them, and nothing beside them is touched."""

from unittest.mock import Mock

import pytest
import torch

from multimix import compiled, mixing, one_pass
from oracles import seeded


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [0, 1, 7, 16, 40, 100])
def test_rows_are_mixed_as_torch_does(dtype, n):
    kernel = pytest.importorskip("multimix.streamed_kernel")
    # Numbers of very different size, whose differences are rounded.
    own, pair, share = torch.rand(3, n + 1, dtype=dtype, generator=seeded(n))[:, 1:] ** torch.tensor([[9], [9], [1]])
    share[::5], share[1::5] = 0, 1
    results = []
    for start in range(17):
        out = torch.full((n + 40,), -1, dtype=dtype)
        kernel.lerp_row(*(part.numpy() for part in (own, pair, share, out[start : start + n])))
        found = out[start : start + n]
        torch.testing.assert_close(found, torch.lerp(own, pair, share))
        results.append(found.clone())
        assert torch.equal(found, results[0]), "the same bits wherever it lies"
        assert torch.equal(found[::5], own[::5]), "exact at 0"
        assert torch.equal(found[1::5], pair[1::5]), "exact at 1"
        assert (out[:start] == -1).all()
        assert (out[start + n :] == -1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 3, 17, 9), (1, 2, 5, 7), (4, 3, 31), (3, 1, 3, 4, 5)])
@pytest.mark.parametrize("per_pair", [False, True])
def test_large_samples_mixed_by_masks_are_those_of_a_slow_loop(monkeypatch, dtype, shape, per_pair):
    kernel = pytest.importorskip("multimix.streamed_kernel")
    fill_pairs = Mock(wraps=kernel.fill_pairs)
    monkeypatch.setattr(mixing, "PAIR_BY_PAIR", 0)
    monkeypatch.setattr(one_pass, "is_time", lambda: True)
    monkeypatch.setattr(kernel, "fill_pairs", fill_pairs)
    monkeypatch.setattr(compiled, "_used", {fill_pairs})  # a Mock compiles nothing, and the notice would ask it about that
    batch, k = shape[0], 3
    z = torch.randn(shape, dtype=dtype, generator=seeded(1))
    partner = torch.randint(batch, (batch,), generator=seeded(2))
    m = torch.rand(k, batch if per_pair else 1, 1, *shape[2:], generator=seeded(3))
    m[0], m[-1] = m[0].round(), 1
    found = mixing.mixed_batch(z, partner, m)
    assert fill_pairs.call_count == 1
    for row, one in enumerate(found):
        step, i = divmod(row, batch)
        share = m[step, i if per_pair else 0].to(dtype)
        torch.testing.assert_close(one, (1 - share) * z[i] + share * z[partner[i]])
    assert torch.equal(found[-batch:], z[partner]), "exact at 1"
    out = torch.full((k * batch + 1, *shape[1:]), torch.nan, dtype=dtype)
    assert torch.equal(mixing.mixed_batch(z, partner, m, out[1:]), found), "wherever the result begins"
    assert out[0].isnan().all()
