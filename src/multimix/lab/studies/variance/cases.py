"""The two data sets of the study, each with a network trained a little: weights at which the variance is looked at."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from .... import mixed_logits, soft_cross_entropy
from ....methods import InputMixup, ManifoldMixup, PairMethod
from ....sampling import seeded

Data = Literal["spiral", "digits"]

CLASSES, LEARNING_RATE = 10, 3e-3


@dataclass(frozen=True, kw_only=True)
class Settings:
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
    # Bumped whenever the same settings would give other numbers.
    recipe: int = 1


FULL: dict[Data, Settings] = {
    "spiral": Settings(data="spiral", samples=400, epochs=300, every_pair=True, replicates=2000, rows=5_000_000),
    "digits": Settings(data="digits", samples=1400, epochs=10, every_pair=False, replicates=500, rows=600_000),
}
SMALL: dict[str, Any] = {"replicates": 80, "pairs": 500, "groups": 10, "group": 50, "nodes": 8, "stratified_ks": (5,)}
QUICK: dict[Data, Settings] = {
    "spiral": Settings(data="spiral", samples=80, epochs=60, every_pair=True, rows=400_000, **SMALL),
    "digits": Settings(data="digits", samples=300, epochs=4, every_pair=False, rows=20_000, **SMALL),
}


class Case(NamedTuple):
    """A model at fixed weights, the samples that pairs are drawn from, and the method, whose k does not matter."""

    model: nn.Module
    method: PairMethod
    x: Tensor
    y: Tensor


class DigitsNet(nn.Sequential):
    """Two strided convolutions, 8 and 16 channels, and a linear layer for 8×8 images: 1,898 parameters, no batch norm."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(64, CLASSES)),
        )


def trained_weights(settings: Settings) -> dict[str, Any]:
    """``weights``, flat, and the ``accuracy`` in per cent on the samples kept back, after training with K = 1."""
    if settings.data == "spiral":
        return _trained_on_spiral(settings)
    return _trained_on_digits(settings)


def case_of(settings: Settings, weights: list[float]) -> Case:
    """The model with the given weights, and its data."""
    if settings.data == "spiral":
        from ..spiral.data import spiral
        from ..spiral.nets import with_weights

        chosen = _spiral_settings(settings)
        data = spiral(chosen, settings.seed)
        net = with_weights(torch.tensor(weights, dtype=torch.float32), chosen.slope)
        return Case(net, ManifoldMixup(alpha=settings.alpha, layers=("layer1",)), data.x.float(), data.y)
    x, label, _, _ = _digits(settings)
    small = _digits_net(settings.seed)
    nn.utils.vector_to_parameters(torch.tensor(weights), small.parameters())
    return Case(small.eval(), InputMixup(alpha=settings.alpha), x, label)


def _trained_on_spiral(settings: Settings) -> dict[str, Any]:
    from ..spiral.data import spiral
    from ..spiral.nets import with_weights
    from ..spiral.settings import MIXED_LAYERS
    from ..spiral.trainer import trained

    chosen = _spiral_settings(settings)
    weights = trained(ManifoldMixup(alpha=settings.alpha, layers=MIXED_LAYERS), chosen, [settings.seed])[0]
    data = spiral(chosen, settings.seed)
    logits = with_weights(weights, chosen.slope)(data.x_test.float())
    return {"weights": weights.tolist(), "accuracy": _accuracy(logits, data.y_test)}


def _trained_on_digits(settings: Settings) -> dict[str, Any]:
    x, label, x_test, label_test = _digits(settings)
    net, method = _digits_net(settings.seed), InputMixup(alpha=settings.alpha)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    generator = seeded(settings.seed, 2)
    for _ in range(settings.epochs):
        for chosen in torch.split(torch.randperm(len(x), generator=generator), settings.batch):
            logits, target = mixed_logits(net, method, x[chosen], label[chosen], generator=generator)
            optimizer.zero_grad()
            soft_cross_entropy(logits, target).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    weights = nn.utils.parameters_to_vector(net.parameters()).detach()
    return {"weights": weights.tolist(), "accuracy": _accuracy(net.eval()(x_test), label_test)}


def _spiral_settings(settings: Settings) -> Any:
    from ..spiral.settings import SpiralSettings

    # 40 % of the samples train and a fifth of their labels is wrong, as in the demo.
    n = settings.samples
    return SpiralSettings(samples=5 * n // 2, train=n, flipped=n // 5, epochs=settings.epochs, alpha=settings.alpha)


def _digits(settings: Settings) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from ..digits.data import split

    return split(settings.samples // CLASSES, seeded(settings.seed, 0))


def _digits_net(seed: int) -> DigitsNet:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return DigitsNet()


def _accuracy(logits: Tensor, label: Tensor) -> float:
    return 100 * float((logits.argmax(1) == label).double().mean())
