"""Partners pasted into boxes of large samples, put together in bands and written past the cache, against a loop over places."""

from itertools import product

import pytest
import torch

from multimix import mixing, one_pass
from multimix.geometry import pasted_kernel
from multimix.geometry.boxes import BoxPlan
from multimix.geometry.resized import ResizedPlan
from oracles import seeded

SHAPES = [(3, 2, 9, 7), (2, 5, 8, 16), (1, 3, 6, 5), (4, 3, 33)]
BANDS = [1, 40, 150, 1 << 15]  # numbers at a time: one row, some, most of a sample, all of it


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Every sample counts as large, and kernels are worth loading."""
    monkeypatch.setattr(mixing, "PAIR_BY_PAIR", 0)
    monkeypatch.setattr(one_pass, "is_time", lambda: True)


def random_boxes(k, rows, size, generator):
    """Boxes anywhere, nested or not, some of them empty."""
    sides = torch.tensor(size)
    edges = (torch.rand(2, k, rows, len(size), generator=generator) * (sides + 1)).long()
    return edges.amin(0), edges.amax(0)


def pasted_slowly(plan, z):
    """Place by place."""
    rows = []
    for k in range(plan.k):
        for i in range(len(z)):
            row, r = z[i].clone(), min(i, plan.low.shape[1] - 1)
            box = [range(int(low), int(high)) for low, high in zip(plan.low[k, r], plan.high[k, r], strict=True)]
            for place in product(*box):
                seen = place
                if isinstance(plan, ResizedPlan):
                    seen = [(p - side.start) * n // len(side) for p, side, n in zip(place, box, plan.size, strict=True)]
                row[(slice(None), *place)] = z[(int(plan.partner[i]), slice(None), *seen)]
            rows.append(row)
    return torch.stack(rows)


def mixed_over(plan, z):
    """The mixed batch in memory that was filled with something else before."""
    out = torch.full((plan.k * len(z), *z.shape[1:]), -7.0, dtype=z.dtype).contiguous(memory_format=mixing.memory_format(z))
    return plan.mix(z, out=out)


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("last", [False, True])
def test_bands_change_nothing_between_places(band, last, monkeypatch):
    """Linear interpolation, and a partner of higher precision, as RecursiveMix has them, against torch's calls."""
    monkeypatch.setattr(pasted_kernel, "BAND", band)
    z, whole = torch.randn(3, 2, 9, 7), torch.randn(3, 2, 9, 7, dtype=torch.float64)
    if last:
        z, whole = (part.contiguous(memory_format=torch.channels_last) for part in (z, whole))
    low, high = random_boxes(4, 3, (9, 7), seeded(3))
    plan = ResizedPlan(partner=torch.tensor([2, 0, 1]), low=low, high=high, size=z.shape[2:], resize="bilinear")
    torch.testing.assert_close(plan._pasted(z, whole, None), plan._pasted(z.requires_grad_(), whole, None).detach())


@pytest.mark.parametrize("kind", ["as it is", "smaller"])
@pytest.mark.parametrize("own_boxes", [True, False])
@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equal_to_the_slow_loop(kind, own_boxes, band, shape, monkeypatch):
    monkeypatch.setattr(pasted_kernel, "BAND", band)
    generator = seeded(band)
    z = torch.randn(shape, generator=generator)
    low, high = random_boxes(4, shape[0] if own_boxes else 1, shape[2:], generator)
    given = {"partner": torch.randperm(shape[0], generator=generator), "low": low, "high": high, "size": z.shape[2:]}
    plan = BoxPlan(**given) if kind == "as it is" else ResizedPlan(**given, resize="nearest")
    assert torch.equal(mixed_over(plan, z), pasted_slowly(plan, z))


def test_the_kernel_is_used(monkeypatch):
    called = []
    monkeypatch.setattr(pasted_kernel, "paste_rows", lambda *args: called.append(args))
    z = torch.randn(2, 3, 8, 8)
    low = torch.zeros(1, 2, 2, dtype=torch.int64)
    BoxPlan(partner=torch.tensor([1, 0]), low=low, high=low + 4, size=z.shape[2:]).mix(z)
    assert len(called) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 2])
def test_channels_last_and_threads(dtype, threads, monkeypatch):
    monkeypatch.setattr(pasted_kernel, "BAND", 60)
    monkeypatch.setattr(pasted_kernel, "LEAST", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        generator = seeded(7)
        z = torch.randn(5, 3, 11, 6, dtype=dtype, generator=generator)
        low, high = random_boxes(3, 5, (11, 6), generator)
        plan = BoxPlan(partner=torch.tensor([4, 0, 1, 3, 2]), low=low, high=high, size=z.shape[2:])
        last = z.contiguous(memory_format=torch.channels_last)
        found = mixed_over(plan, last)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found, pasted_slowly(plan, z))
        assert torch.equal(mixed_over(plan, z), found)
    finally:
        torch.set_num_threads(before)


def test_memory_that_begins_anywhere():
    """A result need not begin where a line of the cache does."""
    z = torch.randn(2, 3, 10, 9)
    low, high = random_boxes(3, 2, (10, 9), seeded(1))
    plan = BoxPlan(partner=torch.tensor([1, 0]), low=low, high=high, size=z.shape[2:])
    wanted, room = pasted_slowly(plan, z), torch.full((3 * z.numel() + 20,), -7.0)
    for start in reversed(range(1, 18)):
        out = room[start : start + 3 * z.numel()].view(6, 3, 10, 9)
        assert torch.equal(plan.mix(z, out=out), wanted)
        assert (room[:start] == -7).all()
    assert (room[-3:] == -7).all()
    odd = torch.frombuffer(bytearray(12 * z.numel() + 1), dtype=torch.float32, offset=1).view(6, 3, 10, 9)
    assert odd.data_ptr() % 4 == 1
    assert torch.equal(plan.mix(z, out=odd), wanted)


def test_boxes_that_reach_outside_are_cut_off():
    """Plans made by hand must not write anywhere else."""
    z = torch.randn(2, 3, 6, 5)
    low, high = torch.tensor([[[-3, 2], [4, -1]], [[0, -9], [2, 1]]]), torch.tensor([[[2, 50], [90, 3]], [[6, -3], [-2, 4]]])
    plan = BoxPlan(partner=torch.tensor([1, 0]), low=low, high=high, size=z.shape[2:])
    cut = BoxPlan(
        partner=plan.partner, low=low.clamp(min=0), high=high.clamp(min=0).minimum(torch.tensor([6, 5])), size=z.shape[2:]
    )
    assert torch.equal(mixed_over(plan, z), pasted_slowly(cut, z))
    plan._paste(z, (uncompiled := torch.full((4, 3, 6, 5), -7.0)).view(2, 2, 3, 6, 5))
    assert torch.equal(uncompiled, pasted_slowly(cut, z))


@pytest.mark.parametrize(
    "shapes", [((1, 3, 2), (1, 3, 2)), ((1, 2, 2), (2, 2, 2)), ((1, 2, 1), (1, 2, 1)), ((1, 0, 2), (1, 0, 2))]
)
def test_boxes_of_another_shape_are_refused(shapes):
    z = torch.randn(2, 3, 6, 5)
    low, high = (torch.ones(shape, dtype=torch.int64) for shape in shapes)
    given = {"partner": torch.tensor([1, 0]), "low": low, "high": high, "size": z.shape[2:]}
    for plan in (BoxPlan(**given), ResizedPlan(**given, resize="nearest")):
        with pytest.raises((ValueError, IndexError)):
            plan._paste_rows(z, z, torch.empty(2, 3, 6, 5))


def test_bits_stay_bits():
    """No number is computed with: those that are none stay what they are, too."""
    z = torch.tensor([0x7FC01234, -8388607, 0x7F800001, 1], dtype=torch.int32).view(torch.float32).repeat(2, 1, 8, 2)
    z[1] = z[1].flip(-1)
    plan = BoxPlan(
        partner=torch.tensor([1, 0]), low=torch.zeros(1, 2, 2, dtype=torch.int64), high=torch.full((1, 2, 2), 5), size=z.shape[2:]
    )
    out = torch.empty(2, 1, 8, 8)
    plan._paste_rows(z, z, out)
    wanted = z.view(torch.int32).clone()
    wanted[..., :5, :5] = z.view(torch.int32).flip(0)[..., :5, :5]
    assert torch.equal(out.view(torch.int32), wanted)
