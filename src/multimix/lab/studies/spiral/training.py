"""The network of the spiral, and one network per seed trained at once: a row of parameters each, layout (seed, unit, sample).

Each network is trained exactly as a plain SpiralNet is through ``multimix.mixed_forward`` and ``torch.optim.Adam``: its random
choices come from its own generators, through the method's own ``plan``. The other seeds beside it do not change a bit of it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ....core.plan import SharePlan, UnmixedPlan
from ....core.sampling import seeded
from ....methods import Method
from ...recipes.spiral import MIXED_LAYERS, SpiralSettings
from .data import CLASSES, MIXING, ORDER, START, spiral_data

DEPTH, WIDTH, INPUTS = 8, 6, 2

# (outputs, inputs) of every linear layer, the first hidden layer first.
SHAPES = ((WIDTH, INPUTS), *((WIDTH, WIDTH),) * (DEPTH - 1), (CLASSES, WIDTH))
PARAMETERS = sum(outputs * inputs + outputs for outputs, inputs in SHAPES)

# torch computes in blocks and rounds what is left at the end of a tensor in another way. Padded to whole blocks nothing is left
# at the end, and so the numbers of one network do not depend on how many others there are.
BLOCK = 64


class SpiralNet(nn.Sequential):
    """``layer1`` … ``layer8`` (linear and LeakyReLU) and ``out``: points ``[B, 2]`` → logits ``[B, 2]``; He normal, biases 0.

    Initial weights are drawn in float64 from ``generator`` alone, so both precisions begin at the same point.
    """

    def __init__(self, slope: float, generator: Generator, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        for number, (outputs, inputs) in enumerate(SHAPES, start=1):
            # By way of "meta", because the usual constructor would draw from torch's global stream.
            linear = nn.Linear(inputs, outputs, dtype=torch.float64, device="meta").to_empty(device="cpu")
            nn.init.kaiming_normal_(linear.weight, a=slope, nonlinearity="leaky_relu", generator=generator)
            nn.init.zeros_(linear.bias)
            if number <= DEPTH:
                self.add_module(f"layer{number}", nn.Sequential(linear, nn.LeakyReLU(slope)))
            else:
                self.add_module("out", linear)
        self.to(dtype)


def net_weights(net: SpiralNet) -> Tensor:
    """``[326]``: every parameter of a network, layer by layer, weights before biases."""
    return nn.utils.parameters_to_vector(net.parameters()).detach()


def net_with_weights(weights: Tensor, slope: float) -> SpiralNet:
    """The network whose parameters are ``weights [326]``."""
    net = SpiralNet(slope, torch.Generator(), weights.dtype)
    nn.utils.vector_to_parameters(weights, net.parameters())
    return net.eval()


class StackedPlans(NamedTuple):
    """The plans of S networks for one batch: ``partner [S, 1, B]``, ``lam [S, 1, K, 1 or B]`` and where to mix.

    Mixing the output of layer 1 and mixing what layer 2 computes from it before its activation are the same, since that is
    affine. So all networks mix at layer 2: those of which ``first [S]`` holds before its activation, the others after it.
    """

    partner: Tensor
    lam: Tensor
    first: Tensor


def train_networks(
    method: Method,
    settings: SpiralSettings,
    seeds: Sequence[int],
    *,
    dtype: torch.dtype = torch.float32,
    after_epoch: Callable[[], None] = lambda: None,
) -> Tensor:
    """``[S, 326]``: the weights of one network per seed after all epochs.

    Autograd on the stack takes 1.3 times the CPU time of a backward pass written by hand, with the same bits;
    ``torch.func.vmap`` takes more than twice.
    """
    data = [spiral_data(settings, seed) for seed in seeds]
    x = torch.stack([one.x.T for one in data]).to(dtype)
    y = torch.stack([one.y for one in data]).to(dtype).unsqueeze(1)
    start = torch.stack([net_weights(SpiralNet(settings.slope, seeded(seed, START), dtype)) for seed in seeds])
    rows = functional.pad(start, (0, -PARAMETERS % BLOCK)).requires_grad_()
    adam = torch.optim.Adam([rows], lr=settings.rate, weight_decay=settings.decay)
    orders, mixing = ([seeded(seed, stream) for seed in seeds] for stream in (ORDER, MIXING))
    for _ in range(settings.epochs):
        order = torch.stack([torch.randperm(settings.train, generator=generator) for generator in orders]).unsqueeze(1)
        for chosen in torch.split(order, settings.batch, dim=2):
            x_batch = x.gather(2, chosen.expand(-1, INPUTS, -1))
            plans = stack_plans(method, x_batch, mixing)
            label = mix_by_plan(y.gather(2, chosen), plans)
            logit = logit_differences(rows, x_batch, plans, settings.slope)
            # The gradient of the mean cross-entropy of each network at its logits.
            upstream = (in_blocks(torch.sigmoid, logit.detach()) - label) / logit.shape[2]
            (rows.grad,) = torch.autograd.grad(logit, rows, upstream)
            adam.step()
        after_epoch()
    weights = rows.detach()[:, :PARAMETERS].clone()
    for seed, row in zip(seeds, weights, strict=True):
        if not bool(torch.isfinite(row).all()):
            raise ValueError(f"training must end with finite weights, got NaN or infinity for seed {seed}")
    return weights


def stack_plans(method: Method, x: Tensor, generators: Sequence[Generator]) -> StackedPlans | None:
    """What ``method`` plans for each network's batch in ``x [S, 2, B]``, from its own generator; None if nothing is mixed."""
    plans = [method.plan(one.T, generator=generator) for one, generator in zip(x, generators, strict=True)]
    if all(isinstance(plan, UnmixedPlan) for plan in plans):
        return None
    partner = torch.stack([plan.partner for plan in plans]).unsqueeze(1)
    lam = torch.stack([plan.share.flatten(1) for plan in plans if isinstance(plan, SharePlan)]).to(x.dtype).unsqueeze(1)
    return StackedPlans(partner, lam, torch.tensor([plan.layer == MIXED_LAYERS[0] for plan in plans]))


def logit_differences(rows: Tensor, x: Tensor, plans: StackedPlans | None, slope: float) -> Tensor:
    """``[S, 1, K·B]``: logit of class 1 minus logit of class 0, which is all that matters; ``rows [S, 326 or more]``."""
    *hidden, (out_weight, out_bias) = split_layers(rows)
    z = x
    for number, (weight, bias) in enumerate(hidden, start=1):
        z = torch.baddbmm(bias, weight, z)
        if number == len(MIXED_LAYERS) and plans is not None:
            z = active_where(~plans.first, z, slope)
            z = active_where(plans.first, mix_by_plan(z, plans), slope)
        else:
            z = functional.leaky_relu_(z, slope)
    return torch.baddbmm(out_bias[:, 1:] - out_bias[:, :1], out_weight[:, 1:] - out_weight[:, :1], z)


def active_where(chosen: Tensor, z: Tensor, slope: float) -> Tensor:
    """``z [S, U, N]`` after the activation in the networks that are ``chosen [S]``, as it is in the others."""
    # prelu has a slope for each index of dimension 1, which are the networks here; the slope 1 does nothing.
    slopes = torch.ones(len(z), dtype=z.dtype).masked_fill(chosen, slope)
    return functional.prelu(z.unsqueeze(0), slopes).squeeze(0)


def split_layers(rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """``(weight [S, outputs, inputs], bias [S, outputs, 1])`` of every layer, from ``rows [S, 326 or more]``."""
    sizes = [size for outputs, inputs in SHAPES for size in (outputs * inputs, outputs)]
    parts = torch.split(rows, [*sizes, rows.shape[1] - PARAMETERS], dim=1)
    each = zip(SHAPES, parts[:-1:2], parts[1::2], strict=True)
    return [(weight.view(-1, *shape), bias.unsqueeze(2)) for shape, weight, bias in each]


def mix_by_plan(z: Tensor, plans: StackedPlans | None) -> Tensor:
    """``[S, U, K·B]``, k-major: ``z [S, U, B]`` of each network mixed by its own plan; ``z`` itself without plans."""
    if plans is None:
        return z
    toward = z.gather(2, plans.partner.expand_as(z)) - z
    return (z.unsqueeze(2) + plans.lam * toward.unsqueeze(2)).flatten(2)


def in_blocks(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """A function of every number, computed in whole blocks."""
    padded = functional.pad(z.flatten(), (0, -z.numel() % BLOCK))
    return function(padded)[: z.numel()].reshape(z.shape)
