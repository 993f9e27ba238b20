import pytest
import torch

from multimix.lab.data import DATASETS, Augment, Loader, read
from multimix.lab.data.clouds import KINDS
from multimix.lab.data.shapes import Clouds, read_shapes


def test_the_same_clouds_every_time_as_the_entry_says():
    splits, entry = read("shapes", "nowhere"), DATASETS["shapes"]
    again = read_shapes()
    for part, count in entry.counts.items():
        split = splits[part]
        assert len(split) == count
        assert list(split.pixels.shape) == [count, *reversed(entry.size)]
        assert split.pixels.dtype == torch.float32
        assert torch.equal(split.pixels, again[part].pixels)
        assert split.classes == tuple(KINDS)
        assert torch.bincount(split.labels).tolist() == [count // entry.classes] * entry.classes
    assert entry.classes == len(KINDS)
    assert entry.layout == "points"
    assert entry.last_steps == ()


def test_every_cloud_fills_the_unit_sphere_and_no_two_are_alike():
    splits = read_shapes()
    x = torch.cat([splits.train.pixels, splits.test.pixels])
    torch.testing.assert_close(x.norm(dim=2).amax(1), torch.ones(len(x)))
    torch.testing.assert_close(x.mean(1), torch.zeros(len(x), 3), atol=1e-6, rtol=0)
    assert len(x[:, 0].unique(dim=0)) == len(x)


def test_a_loader_hands_out_clouds_as_they_are_and_repeats_them():
    part = read_shapes().train.subset(2, seed=3)
    assert isinstance(part, Clouds)
    ((x, y),) = Loader(part, Augment(), batch=10, shuffle=False, repeats=3)
    assert torch.equal(x, torch.cat([part.pixels] * 3))
    assert torch.equal(y, part.labels.repeat(3))


@pytest.mark.parametrize("pixels", [torch.zeros(2, 4, 2), torch.zeros(2, 4, 3).double(), torch.zeros(2, 3, 4, 4)], ids=str)
def test_what_are_no_clouds_is_refused(pixels):
    with pytest.raises(ValueError, match=r"^clouds must be float32 \[M, N, 3\], got torch.float"):
        Clouds(pixels, torch.tensor([0, 1]), ("a", "b"))
