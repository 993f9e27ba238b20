"""scikit-learn's digits as a data set like the others: 8 × 8 grey images, no files needed."""

from pathlib import Path

import torch

from .datasets import DataSet, Images, Splits, register

CLASSES = tuple("0123456789")


def read_digits(folder: str | Path | None = None) -> Splits[Images]:
    """The first four fifths of every class for training, the rest for the test; ``folder`` is not used.

    There is no official split. The order is that of the writers, so the test has other hands than the training.
    Values 0 … 16 become 0 … 255.
    """
    from sklearn.datasets import load_digits  # a second that no other data set should cost

    bundle = load_digits()
    pixels = torch.tensor(bundle.images * (255 / 16)).round().to(torch.uint8).unsqueeze(1)
    labels = torch.tensor(bundle.target, dtype=torch.int64)
    for_training = torch.zeros(len(labels), dtype=torch.bool)
    for digit in range(len(CLASSES)):
        rows = (labels == digit).nonzero().flatten()
        for_training[rows[: len(rows) * 4 // 5]] = True
    train = Images(pixels[for_training], labels[for_training], CLASSES)
    return Splits("digits", {"train": train, "test": Images(pixels[~for_training], labels[~for_training], CLASSES)})


# fmt: off
register(DataSet(
    "digits", read_digits, 10, (0.3054,), (0.3753,), (1, 8, 8), {"train": 1_433, "test": 364},
    not_fetched="digits need not be fetched, they come with scikit-learn",
))
