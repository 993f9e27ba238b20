"""A small PointNet: it knows neither about mixing nor about the order of the points."""

from torch import Tensor, nn


class PointNet(nn.Module):
    """The same three layers for every point of ``[B, N, 3]``, the largest value over all points, two layers: 8,645 parameters.

    No alignment networks and no batch norm: rotations have to be learned, and a sample's logits depend on that sample alone.
    """

    def __init__(self, num_classes: int = 5, in_channels: int = 3) -> None:
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(in_channels, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64))
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.lift(x).amax(1))
        return logits
