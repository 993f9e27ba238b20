"""The two data sets of the study, each with a small trained network at whose weights the variance is measured."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ....core.sampling import seeded
from ....methods import InputMixup, ManifoldMixup, PairMethod
from ....output import mixed_forward
from ...recipes.spiral import MIXED_LAYERS, SpiralSettings
from ..spiral.data import spiral_data
from ..spiral.training import net_with_weights, train_networks

Data = Literal["spiral", "digits"]

CLASSES, LEARNING_RATE = 10, 3e-3  # of the digits


@dataclass(frozen=True, kw_only=True)
class VarianceSettings:
    """Settings of the study on one data set. Stored results belong to exactly these settings.

    Args:
        data: Name of the data set.
        samples: Training samples, which pairs are drawn from.
        epochs: Epochs of training with mixup, K = 1.
        every_pair: Whether to compute V, V_pairs and V_λ exactly from all pairs as well.
        replicates: Batches of each measurement.
        rows: Maximum mixed rows of a measurement around B_0.
        pairs: Sampled pairs for V and V_pairs.
        groups: Groups of sampled pairs for V_λ.
        group: Pairs of each group.
        nodes: Quadrature shares.
        batch: Pairs of a batch, B.
        ks: Values of K with iid λ.
        stratified_ks: Values of K with stratified λ.
        compared_k: K of multi-mix in Proposition 2 and of the findings.
        alpha: α of the Beta distribution of λ.
        seed: Seed of data, training and draws.
        recipe: Increased whenever the same settings would give other numbers.
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


def train_weights(settings: VarianceSettings) -> dict[str, Any]:
    """Train with K = 1. Return the flat ``weights`` and the ``accuracy`` in per cent on the held-out samples."""
    if settings.data == "spiral":
        method = ManifoldMixup(alpha=settings.alpha, layers=MIXED_LAYERS)
        weights = train_networks(method, _spiral_settings(settings), [settings.seed])[0].tolist()
    else:
        weights = _train_on_digits(settings)
    model, _, _, _, x_test, y_test = trained_case(settings, weights)
    correct = model(x_test).argmax(1) == y_test
    return {"weights": weights, "accuracy": 100 * float(correct.double().mean())}


def trained_case(
    settings: VarianceSettings, weights: list[float]
) -> tuple[nn.Module, PairMethod, Tensor, Tensor, Tensor, Tensor]:
    """Return the model with the given weights, its method, and its samples and labels for training and for the test."""
    if settings.data == "spiral":
        spiral = _spiral_settings(settings)
        data = spiral_data(spiral, settings.seed)
        model = net_with_weights(torch.tensor(weights, dtype=torch.float32), spiral.slope)
        method = ManifoldMixup(alpha=settings.alpha, layers=MIXED_LAYERS[:1])
        return model, method, data.x.float(), data.y, data.x_test.float(), data.y_test
    net = _digits_net(settings.seed)
    nn.utils.vector_to_parameters(torch.tensor(weights), net.parameters())
    return net.eval(), InputMixup(alpha=settings.alpha), *_digits(settings.samples // CLASSES, settings.seed)


def _spiral_settings(settings: VarianceSettings) -> SpiralSettings:
    # As in the demo, 40 % of the samples are for training and a fifth of their labels is wrong.
    n = settings.samples
    return SpiralSettings(samples=5 * n // 2, train=n, flipped=n // 5, epochs=settings.epochs, alpha=settings.alpha)


def _train_on_digits(settings: VarianceSettings) -> list[float]:
    x, y, *_ = _digits(settings.samples // CLASSES, settings.seed)
    net, generator = _digits_net(settings.seed), seeded(settings.seed, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    for _ in range(settings.epochs):
        for rows in torch.split(torch.randperm(len(x), generator=generator), settings.batch):
            out = mixed_forward(net, InputMixup(alpha=settings.alpha), x[rows], y[rows], generator=generator)
            optimizer.zero_grad()
            out.loss().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    weights: list[float] = nn.utils.parameters_to_vector(net.parameters()).tolist()
    return weights


def _digits_net(seed: int) -> nn.Sequential:
    """Return a network for 8×8 images: convolutions of 8 and 16 channels and a linear layer, without batch norm."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return nn.Sequential(
            *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(64, CLASSES)),
        )


def _digits(per_class: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return images and labels for training and for the test; training images have mean 0 and deviation 1."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    x, y = torch.tensor(bundle.images, dtype=torch.float32).unsqueeze(1), torch.tensor(bundle.target, dtype=torch.int64)
    shuffled = torch.randperm(len(y), generator=seeded(seed, 0))
    drawn = torch.cat([shuffled[y[shuffled] == c][:per_class] for c in range(CLASSES)])
    rest = torch.ones(len(y), dtype=torch.bool)
    rest[drawn] = False
    x = (x - x[drawn].mean()) / x[drawn].std()
    return x[drawn], y[drawn], x[rest], y[rest]
