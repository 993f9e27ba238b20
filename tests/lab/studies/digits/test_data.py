import pytest
import torch
from sklearn.datasets import load_digits

from multimix.lab.studies.digits.data import image_count, split
from multimix.sampling import seeded


def as_rows(x):
    return [tuple(image.flatten().tolist()) for image in x]


def test_every_class_gives_its_share_and_nothing_is_lost_or_used_twice():
    found = split(25, seeded(0, 0))
    assert torch.bincount(found.label).tolist() == [25] * 10
    assert len(found.label) + len(found.label_test) == image_count() == 1797
    raw, target = load_digits(return_X_y=True)
    # Undo the scaling by two pixels' values: the map is affine, so min and max of all images fix it.
    everything = torch.cat([found.x, found.x_test])
    low, high = everything.min(), everything.max()
    back = ((everything - low) / (high - low) * 16).round().flatten(1)
    labels = torch.cat([found.label, found.label_test])
    ours = sorted((*row, label) for row, label in zip(back.int().tolist(), labels.tolist(), strict=True))
    assert ours == sorted((*row, label) for row, label in zip(raw.astype(int).tolist(), target.tolist(), strict=True))


def test_the_training_images_have_mean_0_and_deviation_1():
    found = split(25, seeded(3, 0))
    assert found.x.shape[1:] == (1, 8, 8)
    assert found.x.mean().item() == pytest.approx(0, abs=1e-5)
    assert found.x.std().item() == pytest.approx(1, abs=1e-5)
    assert abs(found.x_test.mean().item()) > 1e-5  # scaled by the training images, not by their own


def test_the_generator_decides_the_split():
    first, again, other = (split(20, seeded(seed, 0)) for seed in (0, 0, 1))
    assert first.digest() == again.digest() != other.digest()
    assert set(as_rows(first.x)) != set(as_rows(other.x))


@pytest.mark.parametrize("per_class", [0, 174])
def test_a_class_cannot_give_more_than_it_has(per_class):
    with pytest.raises(ValueError, match=f"per_class must lie in 1 … 173, got {per_class}"):
        split(per_class, seeded(0, 0))
