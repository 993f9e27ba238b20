import torch
from sklearn.datasets import load_digits

from multimix.lab.data import DATASETS
from multimix.lab.data.digits import read_digits


def test_train_and_test_hold_every_digit_once():
    splits, bundle = read_digits(), load_digits()
    assert len(splits["train"]) + len(splits["test"]) == len(bundle.target)
    pixels = torch.cat([splits["train"].pixels, splits["test"].pixels])
    assert pixels.dtype == torch.uint8
    counts = (pixels.float() * 16 / 255).round().long().flatten(1)
    assert sorted(counts.tolist()) == sorted(bundle.images.astype(int).reshape(-1, 64).tolist())
    share = torch.bincount(splits["train"].labels) / torch.tensor([sum(bundle.target == digit) for digit in range(10)])
    assert ((share > 0.79) & (share <= 0.8)).all()


def test_mean_and_deviation_are_those_of_the_training_images():
    pixels, entry = read_digits()["train"].pixels / 255, DATASETS["digits"]
    assert abs(float(pixels.mean()) - entry.mean[0]) < 1e-3
    assert abs(float(pixels.std()) - entry.std[0]) < 1e-3
    assert tuple(entry.counts.values()) == (len(read_digits()["train"]), len(read_digits()["test"]))
