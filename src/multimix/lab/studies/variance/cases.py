"""The two data sets of the study, each with a small network trained for a few epochs: variance is measured at its weights."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ....core.sampling import seeded
from ....methods import InputMixup, ManifoldMixup, PairMethod
from ....output import mixed_forward
from ...recipes.spiral import MIXED_LAYERS, SpiralSettings
from ..spiral.data import spiral_data
from ..spiral.training import net_with_weights, train_networks

Data = Literal["spiral", "digits"]

CLASSES, LEARNING_RATE = 10, 3e-3


@dataclass(frozen=True, kw_only=True)
class VarianceSettings:
    """One data set's part of the study. ``rows`` bounds the mixed rows that each large-batch measurement may take.

    ``samples`` are the training samples, which pairs are drawn from; ``nodes`` is the number of quadrature shares. With
    ``every_pair`` the parts of the variance come from all pairs, else from ``pairs`` and ``groups`` × ``group`` sampled ones.
    """

    data: Data
    samples: int
    epochs: int
    every_pair: bool
    replicates: int
    rows: int
    pairs: int = 8000
    groups: int = 40
    group: int = 250
    nodes: int = 24
    batch: int = 64
    ks: tuple[int, ...] = (1, 3, 5, 7, 9)
    stratified_ks: tuple[int, ...] = (3, 5)
    compared_k: int = 5
    alpha: float = 1.0
    seed: int = 0
    # Increased whenever the same settings would give other numbers.
    recipe: int = 1


FULL: dict[Data, VarianceSettings] = {
    "spiral": VarianceSettings(data="spiral", samples=400, epochs=300, every_pair=True, replicates=2000, rows=5_000_000),
    "digits": VarianceSettings(data="digits", samples=1400, epochs=10, every_pair=False, replicates=500, rows=600_000),
}
SMALL: dict[str, Any] = {"replicates": 80, "pairs": 500, "groups": 10, "group": 50, "nodes": 8, "stratified_ks": (5,)}
QUICK: dict[Data, VarianceSettings] = {
    "spiral": VarianceSettings(data="spiral", samples=80, epochs=60, every_pair=True, rows=400_000, **SMALL),
    "digits": VarianceSettings(data="digits", samples=300, epochs=4, every_pair=False, rows=20_000, **SMALL),
}


class TrainedCase(NamedTuple):
    """A model at fixed weights, the samples that pairs are drawn from, and the method, whose k does not matter."""

    model: nn.Module
    method: PairMethod
    x: Tensor
    y: Tensor


def train_weights(settings: VarianceSettings) -> dict[str, Any]:
    """``weights``, flat, and the ``accuracy`` in per cent on the held-out samples, after training with K = 1."""
    if settings.data == "spiral":
        spiral = _spiral_settings(settings)
        data = spiral_data(spiral, settings.seed)
        weights = train_networks(ManifoldMixup(alpha=settings.alpha, layers=MIXED_LAYERS), spiral, [settings.seed])[0]
        logits, label = net_with_weights(weights, spiral.slope)(data.x_test.float()), data.y_test
    else:
        x, of_x, x_test, label = _digits(settings.samples // CLASSES, settings.seed)
        net = _digits_net(settings.seed)
        _train_on_digits(net, x, of_x, settings)
        weights = nn.utils.parameters_to_vector(net.parameters()).detach()
        logits = net.eval()(x_test)
    return {"weights": weights.tolist(), "accuracy": 100 * float((logits.argmax(1) == label).double().mean())}


def trained_case(settings: VarianceSettings, weights: list[float]) -> TrainedCase:
    """The model with the given weights, and its data."""
    if settings.data == "spiral":
        spiral = _spiral_settings(settings)
        data = spiral_data(spiral, settings.seed)
        net = net_with_weights(torch.tensor(weights, dtype=torch.float32), spiral.slope)
        return TrainedCase(net, ManifoldMixup(alpha=settings.alpha, layers=MIXED_LAYERS[:1]), data.x.float(), data.y)
    x, label, *_ = _digits(settings.samples // CLASSES, settings.seed)
    small = _digits_net(settings.seed)
    nn.utils.vector_to_parameters(torch.tensor(weights), small.parameters())
    return TrainedCase(small.eval(), InputMixup(alpha=settings.alpha), x, label)


def _spiral_settings(settings: VarianceSettings) -> SpiralSettings:
    # 40 % of the samples are for training and a fifth of their labels is wrong, as in the demo.
    n = settings.samples
    return SpiralSettings(samples=5 * n // 2, train=n, flipped=n // 5, epochs=settings.epochs, alpha=settings.alpha)


def _train_on_digits(net: nn.Module, x: Tensor, label: Tensor, settings: VarianceSettings) -> None:
    optimizer, generator = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE), seeded(settings.seed, 2)
    for _ in range(settings.epochs):
        for chosen in torch.split(torch.randperm(len(x), generator=generator), settings.batch):
            method = InputMixup(alpha=settings.alpha)
            out = mixed_forward(net, method, x[chosen], label[chosen], generator=generator)
            optimizer.zero_grad()
            out.loss().backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _digits_net(seed: int) -> nn.Sequential:
    """Two strided convolutions, 8 and 16 channels, and a linear layer for 8×8 images: 1,898 parameters, no batch norm."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return nn.Sequential(
            *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(64, CLASSES)),
        )


def _digits(per_class: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images of every class drawn for training, all others for the test; mean 0 and deviation 1 in training."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    x, label = torch.tensor(bundle.images, dtype=torch.float32).unsqueeze(1), torch.tensor(bundle.target, dtype=torch.int64)
    shuffled = torch.randperm(len(label), generator=seeded(seed, 0))
    drawn = torch.cat([shuffled[label[shuffled] == c][:per_class] for c in range(CLASSES)])
    rest = torch.ones(len(label), dtype=torch.bool)
    rest[drawn] = False
    x = (x - x[drawn].mean()) / x[drawn].std()
    return x[drawn], label[drawn], x[rest], label[rest]
