"""Fine-grained saliency against plain loops, and what must hold for every image."""

import pytest
import torch

import box_family_oracles as slow
from multimix.methods import saliency_mix
from multimix.methods.saliency_mix import fine_saliency, peaks
from oracles import seeded


def images(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed))


@pytest.mark.parametrize(
    "shape",
    [(3, 3, 7, 11), (2, 1, 40, 5), (1, 3, 30, 31), (2, 2, 13), (1, 3, 130), (1, 3, 1), (2, 1, 4, 1, 5), (1, 1, 3, 4, 14)],
    ids=str,
)
@pytest.mark.parametrize("kind", ["noise", "whole numbers", "a spot"])
@pytest.mark.parametrize("way", ["compiled", "in torch"])
def test_equal_to_the_slow_loop(shape, kind, way, monkeypatch):
    """Signals and images are compiled on the CPU, all else is not."""
    if way == "in torch":
        monkeypatch.setattr(saliency_mix, "has_numba", lambda: False)
    x = images(*shape)
    if kind == "whole numbers":
        x = (2 * x).round()
    if kind == "a spot":
        x = torch.zeros(shape)
        x.flatten(2)[:, :, -1] = 1.0
    found = fine_saliency(x)
    assert found.shape == (shape[0], *shape[2:])
    assert found.dtype == torch.float64
    for image, one in zip(x, found, strict=True):
        torch.testing.assert_close(one, slow.fine_saliency(image), atol=2e-9, rtol=0)
    assert peaks(found).tolist() == [slow.peak(slow.fine_saliency(image)) for image in x]


def test_layouts_and_threads_change_nothing():
    x = images(5, 3, 90, 101, seed=9)
    wanted = fine_saliency(x)
    assert torch.equal(fine_saliency(x.contiguous(memory_format=torch.channels_last)), wanted)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert torch.equal(fine_saliency(x), wanted)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("mean", "std"), [(0.4, 0.2), ((0.5, 0.4, 0.3), (0.1, 0.2, 0.7)), (0.0, (1.0, 0.01, 0.01))])
def test_normalisation_is_undone(mean, std):
    x = images(2, 3, 9, 14, seed=3)
    found = fine_saliency(x, mean=mean, std=std)
    for image, one in zip(x, found, strict=True):
        torch.testing.assert_close(one, slow.fine_saliency(image, mean, std), atol=2e-9, rtol=0)
    pixels = torch.rand(2, 3, 9, 14, generator=seeded(4))
    per_channel = [torch.tensor(v if isinstance(v, tuple) else (v,) * 3).reshape(3, 1, 1) for v in (mean, std)]
    torch.testing.assert_close(
        fine_saliency((pixels - per_channel[0]) / per_channel[1], mean=mean, std=std),
        fine_saliency(pixels, mean=0.0, std=1.0),
        atol=1e-5,
        rtol=0,
    )


def test_the_range_of_the_pixels_does_not_matter():
    x = images(3, 3, 16, 12, seed=5)
    torch.testing.assert_close(fine_saliency(7 * x - 100), fine_saliency(x), atol=1e-4, rtol=0)
    assert torch.equal(fine_saliency(4 * x), fine_saliency(x))


def test_both_parts_reach_one():
    """A dark and a bright dot on grey: each is the top of its part, and nothing is more salient."""
    x = torch.full((1, 1, 40, 40), 0.5)
    x[0, 0, 10, 30], x[0, 0, 30, 10] = 1.0, 0.4
    found = fine_saliency(x)[0]
    assert float(found[10, 30]) == pytest.approx(1, abs=1e-6)
    assert float(found[30, 10]) == pytest.approx(1, abs=1e-6)
    assert 0 <= float(found.min()) <= float(found.max()) <= 2


@pytest.mark.parametrize("value", [0.0, 0.3, -1e6, 1e-30])
@pytest.mark.parametrize(
    "options", [{}, {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}], ids=["stretched", "given"]
)
def test_a_constant_image_is_nowhere_salient(value, options):
    x = (
        torch.tensor([value, value / 3, 0.7 * value]).reshape(1, 3, 1, 1).expand(1, 3, 37, 22)
        if options
        else torch.full((1, 3, 37, 22), value)
    )
    found = fine_saliency(x, **options)
    assert (found == 0).all()
    assert peaks(found).tolist() == [[18, 11]]


def test_the_first_of_equal_places_is_the_peak():
    """Mirrored quarters are equally salient, but for rounding (all surrounds reach over the image); the first one wins."""
    quarter = images(60, 3, 6, 5, seed=6)
    half = torch.cat([quarter, quarter.flip(3)], 3)
    found = peaks(fine_saliency(torch.cat([half, half.flip(2)], 2)))
    assert (found < torch.tensor([6, 5])).all()
    assert peaks(torch.tensor([[[0.0, 2.0, 1.0], [2.0, 0.0, 2.0]]])).tolist() == [[0, 1]]


def test_samples_do_not_touch_each_other():
    x = images(70, 2, 33, 30, seed=7)
    whole = fine_saliency(x)
    assert torch.equal(whole[41:42], fine_saliency(x[41:42]))
    assert torch.equal(whole.flip(0), fine_saliency(x.flip(0)))


def test_any_precision_and_no_gradient():
    x = images(2, 3, 12, 9, seed=8)
    assert torch.equal(fine_saliency(x.half()), fine_saliency(x.half().double()))
    before = x.clone()
    assert not fine_saliency(x.requires_grad_()).requires_grad
    assert torch.equal(x.detach(), before)


def test_numbers_for_the_wrong_channels_are_refused():
    with pytest.raises(ValueError, match="std must"):
        fine_saliency(images(1, 3, 4, 4), std=(1.0, 2.0))
