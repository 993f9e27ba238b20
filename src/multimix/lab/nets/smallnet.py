"""A small convolutional network for 8×8 grey images. It knows nothing about mixing."""

from torch import Tensor, nn


class SmallNet(nn.Module):
    """Two stages of convolution, ReLU and pooling, 16 and 32 channels, and a linear head: 6,090 parameters, no batch norm."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.stage2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 2 * 2, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stage2(self.stage1(x)))
        return logits
