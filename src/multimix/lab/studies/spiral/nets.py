"""The network of the spiral: eight hidden layers of six units, as a plain module and as rows of numbers."""

import torch
from torch import Generator, Tensor, nn

from .settings import CLASSES

DEPTH, WIDTH, INPUTS = 8, 6, 2

# (outputs, inputs) of every linear layer, the first hidden layer first.
SHAPES = ((WIDTH, INPUTS), *((WIDTH, WIDTH),) * (DEPTH - 1), (CLASSES, WIDTH))
PARAMETERS = sum(outputs * inputs + outputs for outputs, inputs in SHAPES)


class SpiralNet(nn.Sequential):
    """``layer1`` … ``layer8`` (linear and LeakyReLU) and ``out``: points ``[B, 2]`` → logits ``[B, 2]``; He normal, biases 0.

    Start values are drawn in float64 from ``generator`` alone, so both precisions begin at the same point.
    """

    def __init__(self, slope: float, generator: Generator, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        for number, (outputs, inputs) in enumerate(SHAPES, start=1):
            # By way of "meta", because the usual constructor would draw from torch's global stream.
            linear = nn.Linear(inputs, outputs, dtype=torch.float64, device="meta").to_empty(device="cpu")
            nn.init.kaiming_normal_(linear.weight, a=slope, nonlinearity="leaky_relu", generator=generator)
            nn.init.zeros_(linear.bias)
            hidden = number <= DEPTH
            self.add_module(
                f"layer{number}" if hidden else "out", nn.Sequential(linear, nn.LeakyReLU(slope)) if hidden else linear
            )
        self.to(dtype)


def weights_of(net: SpiralNet) -> Tensor:
    """``[326]``: every parameter of a net, layer by layer, weights before biases."""
    return nn.utils.parameters_to_vector(net.parameters()).detach()


def with_weights(weights: Tensor, slope: float) -> SpiralNet:
    """The net whose parameters are ``weights [326]``."""
    net = SpiralNet(slope, torch.Generator(), weights.dtype)
    nn.utils.vector_to_parameters(weights, net.parameters())
    return net.eval()


def by_layer(rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """``(weight [S, outputs, inputs], bias [S, outputs, 1])`` of every layer: views into ``rows [S, 326 or more]``."""
    views, start = [], 0
    for outputs, inputs in SHAPES:
        middle = start + outputs * inputs
        weight = rows[:, start:middle].view(-1, outputs, inputs)
        bias = rows[:, middle : middle + outputs].unsqueeze(2)
        views.append((weight, bias))
        start = middle + outputs
    return views
