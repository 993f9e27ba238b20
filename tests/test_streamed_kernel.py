"""Rows mixed past the cache: wherever they begin and end, as torch mixes them, and nothing beside them is touched."""

import pytest
import torch

from oracles import seeded


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [0, 1, 7, 16, 40, 100])
def test_rows_are_mixed_as_torch_does(dtype, n):
    kernel = pytest.importorskip("multimix.streamed_kernel")
    # Numbers of very different size, whose differences are rounded.
    own, pair, share = torch.rand(3, n + 1, dtype=dtype, generator=seeded(n))[:, 1:] ** torch.tensor([[9], [9], [1]])
    share[::5], share[1::5] = 0, 1
    for start in range(17):
        out = torch.full((n + 40,), -1, dtype=dtype)
        kernel.lerp_row(*(part.numpy() for part in (own, pair, share, out[start : start + n])))
        found = out[start : start + n]
        torch.testing.assert_close(found, torch.lerp(own, pair, share))
        assert torch.equal(found[::5], own[::5]), "exact at 0"
        assert torch.equal(found[1::5], pair[1::5]), "exact at 1"
        assert (out[:start] == -1).all()
        assert (out[start + n :] == -1).all()
