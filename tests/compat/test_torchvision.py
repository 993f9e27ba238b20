"""At K = 1 the drop-ins are torchvision's transforms bit for bit; at K > 1 they have the order and nesting of multi-mix."""

import itertools

import pytest
import torch
from torch.utils.data import default_collate

from multimix.compat.torchvision import CutMix, MixUp
from peers import peer


def theirs(name):
    return getattr(peer("torchvision.transforms.v2"), name)


def same(a, b):
    """Whether two nested batches agree in structure, types and bits."""
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("make", [MixUp, CutMix])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_one_interpolation_is_torchvisions_bit_for_bit(make, alpha):
    original = theirs(make.__name__)
    dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    for dtype, shape, soft, seed in itertools.product(
        dtypes, ((4, 3, 9, 14), (1, 1, 8, 8), (5, 3, 7, 7)), (False, True), range(15)
    ):
        torch.manual_seed(seed)
        x, y = torch.randn(shape).to(dtype), torch.randint(0, 6, shape[:1])
        y = torch.nn.functional.one_hot(y, 6).float() if soft else y
        found = []
        for one in (original, make):
            torch.manual_seed(seed)
            found.append((one(alpha=alpha, num_classes=6)(x, y), torch.get_rng_state()))
        assert same(*(out for out, _ in found))
        assert torch.equal(*(state for _, state in found))


@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_structures_and_types_are_kept(make):
    types = peer("torchvision.tv_tensors")
    original = theirs(make.__name__)
    x, y, more = torch.rand(4, 3, 10, 8), torch.tensor([0, 1, 2, 3]), torch.arange(4)
    batches = (
        (x, y, more),
        [types.Image(x), y],
        {"pixels": x, "label": y, "id": more},
        {"image": types.Image(x), "Labels": y, "other_label": more, "name": "a"},
        (types.Video(torch.rand(4, 2, 3, 10, 8)), {"labels": y}),
    )
    for batch in batches:
        found = []
        for one in (original, make):
            torch.manual_seed(3)
            found.append(one(num_classes=4)(batch))
        assert same(*found)


def test_other_rows_are_repeated_with_the_images():
    types = peer("torchvision.tv_tensors")
    batch = {
        "image": types.Image(torch.rand(3, 3, 6, 6)),
        "labels": torch.tensor([0, 1, 2]),
        "id": torch.arange(3),
        "n": torch.rand(5),
    }
    out = MixUp(num_classes=3, k=4)(batch)
    assert type(out["image"]) is types.Image
    assert out["image"].shape == (12, 3, 6, 6)
    assert out["labels"].shape == (12, 3)
    assert out["id"].tolist() == [0, 1, 2] * 4
    assert out["n"].shape == (5,)


@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_interpolations_ascend_and_labels_say_what_the_pixels_hold(make):
    x = torch.zeros(2, 1, 21, 30)
    x[1] = 1
    for seed in range(30):
        mix = make(num_classes=2, k=5, generator=torch.Generator().manual_seed(seed))
        out, target = mix(x, torch.tensor([0, 1]))
        white = out.view(5, 2, 21, 30)[:, 0]
        assert (white[1:] >= white[:-1] - 1e-6).all()
        assert torch.allclose(out.mean((1, 2, 3)), target[:, 1], atol=1e-5)


def test_a_generator_of_its_own_leaves_torchs_stream_alone():
    first, second = (CutMix(num_classes=2, k=3, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    x, y = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    before = torch.get_rng_state()
    assert same(first(x, y), second(x, y))
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_a_module_for_collating():
    mix = MixUp(num_classes=3, k=2)
    assert isinstance(mix, torch.nn.Module)
    loader = torch.utils.data.DataLoader(
        [(torch.rand(3, 4, 4), i % 3) for i in range(6)], batch_size=3, collate_fn=lambda samples: mix(*default_collate(samples))
    )
    assert [list(x.shape) for x, _ in loader] == [[6, 3, 4, 4]] * 2


@pytest.mark.parametrize(
    ("options", "batch", "words"),
    [
        ({"alpha": 0}, None, "alpha"),
        ({"k": 0}, None, "k must"),
        ({"labels_getter": 3}, None, "labels_getter"),
        ({}, (torch.rand(2, 3, 4, 4), torch.tensor([0, 1])), "num_classes"),
        ({"num_classes": 3}, (torch.rand(2, 3, 4, 4), torch.rand(2, 4)), "columns"),
        ({"num_classes": 3}, (torch.rand(2, 3, 4, 4), "cat"), "labels must"),
        ({"num_classes": 3}, {"x": torch.rand(2, 3, 4, 4)}, "labels not found"),
        ({"num_classes": 3}, (torch.rand(2, 3, 4), torch.tensor([0, 1])), "4 axes"),
        ({"num_classes": 3}, (torch.rand(3, 3, 4, 4), torch.tensor([0, 1])), "images must"),
        ({"num_classes": 3}, (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])), "floating point"),
        ({"num_classes": 3}, (torch.rand(2, 3, 4, 4), torch.tensor([0.0, 1.0])), "int64, got torch.float32"),
        ({"num_classes": 3}, (torch.rand(2, 3, 4, 4), torch.tensor([True, False])), "int64, got torch.bool"),
        ({"num_classes": 3}, (torch.rand(2, 3, 4, 4), torch.tensor([0, 3])), "labels must be in 0 … 2"),
        ({"num_classes": 3}, (torch.rand(2, 3, 4, 4), torch.tensor([-1, 2])), "labels must be in 0 … 2"),
    ],
)
def test_bad_input_gets_a_sentence(options, batch, words):
    with pytest.raises(ValueError, match=words):
        CutMix(**options)(batch)
