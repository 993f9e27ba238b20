"""The real data, or the parts of it that are there: set MULTIMIX_DATA to their folder."""

import pytest
import torch

from multimix.lab.data import DATASETS, Augment, CenterCrop, Loader, Normalise, RandomResizedCrop, Resize
from multimix.lab.data.check import check
from real_data import real, real_folder


def test_cifar100_has_its_mean_and_deviation():
    splits, entry = real("cifar100"), DATASETS["cifar100"]
    assert torch.bincount(splits["train"].labels).tolist() == [500] * 100
    assert torch.bincount(splits["test"].labels).tolist() == [100] * 100
    pixels = splits["train"].pixels[::7].float() / 255
    torch.testing.assert_close(pixels.mean((0, 2, 3)), torch.tensor(entry.mean), rtol=0, atol=4e-3)
    torch.testing.assert_close(pixels.std((0, 2, 3)), torch.tensor(entry.std), rtol=0, atol=4e-3)


def test_tiny_imagenet_files_can_be_decoded():
    files = DATASETS["tiny_imagenet"].listed(real_folder("tiny_imagenet"))
    assert len(files["train"].classes) == 200
    x, _ = files["train"].batch(torch.arange(0, len(files["train"]), 97))
    assert x.shape[1:] == (3, 64, 64)
    assert files["validation"].batch(torch.arange(20))[0].shape == (20, 3, 64, 64)


@pytest.mark.parametrize(("name", "part"), [("imagenet", "validation"), ("cub200", "test")])
def test_photos_have_boxes_inside_them(name, part):
    split = real(name, **({"boxes": True} if name == "imagenet" else {}))[part]
    for row in range(0, len(split), 25):
        x, _ = split.batch(torch.tensor([row]))
        for left, top, width, height in split.boxes[row].tolist():
            assert left >= -1
            assert top >= -1
            assert width > 0
            assert height > 0
            assert left + width <= x.shape[3] + 1
            assert top + height <= x.shape[2] + 1


def test_photos_of_all_sizes_become_batches():
    split, entry = real("imagenet")["validation"], DATASETS["imagenet"]
    for steps in ([RandomResizedCrop(64)], [Resize(72), CenterCrop(64)]):
        loader = Loader(split, Augment([*steps, Normalise(entry.mean, entry.std)]), batch=25)
        x, _ = next(loader.epoch(0))
        assert x.shape == (25, 3, 64, 64)
        assert 0.5 < float(x.std()) < 2
        assert torch.isfinite(x).all()


def test_speech_commands_are_normalised_and_loud_in_low_bins(tmp_path):
    validation = real("speech_commands_v1", cache=tmp_path)["validation"]
    assert validation.pixels.shape[1:] == DATASETS["speech_commands_v1"].size
    mean = validation.pixels.mean((2, 3)).flatten()
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-4)
    assert validation.pixels[:, :, :60].mean() > validation.pixels[:, :, 100:].mean() + 0.3


def test_what_is_there_is_complete_or_partial():
    assert {found.state for found in check(real_folder("cifar100"))} <= {"complete", "partial", "absent"}
