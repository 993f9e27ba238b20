"""Many spiral nets trained at once: one stack, layout (model, unit, sample), a backward pass and an Adam written for it.

A model of the stack is trained exactly as a plain SpiralNet is through ``multimix.mixed_logits`` and ``torch.optim.Adam``: its
draws come from its own generators, through the method's own ``plan``. Neither its place nor its neighbours matter.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ....methods import Method
from ....plan import SharePlan, UnmixedPlan
from ....sampling import seeded
from .data import MIXING, ORDER, START, spiral
from .nets import PARAMETERS, SpiralNet, by_layer, weights_of
from .settings import MIXED_LAYERS, SpiralSettings

# torch works through memory in blocks and rounds the rest of a tensor another way. Rows that are whole blocks have no rest,
# and so no model's numbers depend on how many others there are.
BLOCK = 64

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Draws(NamedTuple):
    """One batch's plans of S models: ``partner``, its ``inverse [S, 1, B]``, ``lam [S, 1, K, 1]`` and where to mix.

    Mixing the output of layer 1 and mixing what layer 2 computes from it before its activation are the same, since that is
    affine. So all models mix between layer 2 and layer 3: ``before`` and ``after [S, 1, 1]`` are the slopes of an activation on
    either side, and the slope 1 does nothing. Layer 1 is (1, slope), layer 2 (slope, 1).
    """

    partner: Tensor
    inverse: Tensor
    lam: Tensor
    before: Tensor
    after: Tensor


def trained(
    method: Method,
    settings: SpiralSettings,
    seeds: Sequence[int],
    *,
    dtype: torch.dtype = torch.float32,
    tick: Callable[[], None] = lambda: None,
) -> Tensor:
    """``[S, 326]``: the weights of one net per seed after all epochs; ``tick`` is called after each epoch."""
    data = [spiral(settings, seed) for seed in seeds]
    x = torch.stack([one.x.T for one in data]).to(dtype)
    y = torch.stack([one.y for one in data]).to(dtype)
    stack = Stack([SpiralNet(settings.slope, seeded(seed, START), dtype) for seed in seeds], settings)
    orders, mixing = ([seeded(seed, stream) for seed in seeds] for stream in (ORDER, MIXING))
    for _ in range(settings.epochs):
        order = torch.stack([torch.randperm(settings.train, generator=generator) for generator in orders])
        for chosen in torch.split(order, settings.batch, dim=1):
            batch = x.gather(2, chosen.unsqueeze(1).expand(-1, x.shape[1], -1))
            stack.step(batch, y.gather(1, chosen), drawn(method, settings, batch, mixing))
        tick()
    weights = stack.weights()
    for seed, row in zip(seeds, weights, strict=True):
        if not bool(torch.isfinite(row).all()):
            raise ValueError(f"training must end with finite weights, got NaN or infinity for seed {seed}")
    return weights


def drawn(method: Method, settings: SpiralSettings, x: Tensor, generators: Sequence[Generator]) -> Draws | None:
    """What ``method`` plans for each model's batch, ``x [S, 2, B]``, from its own generator; None if nothing is mixed."""
    plans = [method.plan(one.T, generator=generator) for one, generator in zip(x, generators, strict=True)]
    if all(isinstance(plan, UnmixedPlan) for plan in plans):
        return None
    shares = [plan.share.flatten() for plan in plans if isinstance(plan, SharePlan)]
    partner = torch.stack([plan.partner for plan in plans])
    inverse = torch.empty_like(partner).scatter_(1, partner, torch.arange(x.shape[2]).expand_as(partner))
    first = torch.tensor([plan.layer == MIXED_LAYERS[0] for plan in plans]).reshape(-1, 1, 1)
    one, slope = torch.ones((), dtype=x.dtype), torch.tensor(settings.slope, dtype=x.dtype)
    lam = torch.stack(shares).to(x.dtype)[:, None, :, None]
    return Draws(partner.unsqueeze(1), inverse.unsqueeze(1), lam, torch.where(first, one, slope), torch.where(first, slope, one))


class Stack:
    """S nets side by side, with their gradients and Adam's state; every row of a buffer belongs to one net."""

    def __init__(self, nets: Sequence[SpiralNet], settings: SpiralSettings) -> None:
        start = torch.stack([weights_of(net) for net in nets])
        self.settings = settings
        self.rows, self.grad, self.mean, self.square = (
            start.new_zeros(len(nets), math.ceil(PARAMETERS / BLOCK) * BLOCK) for _ in range(4)
        )
        self.rows[:, :PARAMETERS] = start
        self.layers, self.grads = by_layer(self.rows), by_layer(self.grad)
        self.steps = 0

    def weights(self) -> Tensor:
        """``[S, 326]``: a copy of all parameters."""
        return self.rows[:, :PARAMETERS].clone()

    def step(self, x: Tensor, y: Tensor, draws: Draws | None) -> None:
        """One step of every net on its own batch, ``x [S, 2, B]`` with labels ``y [S, B]``."""
        self.fill_grad(x, y, draws)
        self.adam()

    def fill_grad(self, x: Tensor, y: Tensor, draws: Draws | None) -> None:
        """Put the gradient of each net's mean cross-entropy over its K·B rows into ``grad``."""
        slope = self.settings.slope
        entries = [x]
        for number, (weight, bias) in enumerate(self.layers[:-1], start=1):
            flat = torch.baddbmm(bias, weight, entries[-1])
            if number == len(MIXED_LAYERS) and draws is not None:
                unmixed = leaky(flat, draws.before)
                entries.append(leaky(mixed(unmixed, draws), draws.after))
            else:
                entries.append(torch.nn.functional.leaky_relu_(flat, slope))
        up = self._through_output(entries[-1], mixed_label(y, draws))
        for number in range(len(self.layers) - 1, 0, -1):
            if number == len(MIXED_LAYERS) and draws is not None:
                up = unmixed_grad(leaky_grad(up, entries[number], draws.after), draws)
                up = leaky_grad(up, unmixed, draws.before)
            else:
                up = torch.ops.aten.leaky_relu_backward(up, entries[number], slope, True)
            self._fill(number - 1, up, entries[number - 1])
            if number > 1:
                up = torch.bmm(self.layers[number - 1][0].mT, up)

    def _through_output(self, entry: Tensor, label: Tensor) -> Tensor:
        """The gradient at the output layer's input, that layer's own filled in. Two logits matter by their difference only."""
        (weight, bias), (weight_grad, bias_grad) = self.layers[-1], self.grads[-1]
        apart = weight[:, 1:] - weight[:, :1]
        logit = torch.baddbmm(bias[:, 1:] - bias[:, :1], apart, entry)
        up = (whole_sigmoid(logit) - label) / entry.shape[2]
        weight_grad[:, 1:] = torch.bmm(up, entry.mT)
        bias_grad[:, 1:] = up.sum(dim=2, keepdim=True)
        weight_grad[:, :1] = -weight_grad[:, 1:]
        bias_grad[:, :1] = -bias_grad[:, 1:]
        return apart.mT * up

    def _fill(self, layer: int, up: Tensor, entry: Tensor) -> None:
        weight_grad, bias_grad = self.grads[layer]
        weight_grad.copy_(torch.bmm(up, entry.mT))
        bias_grad.copy_(up.sum(dim=2, keepdim=True))

    def adam(self) -> None:
        """Adam with the l2 term added to the gradient, as torch's weight_decay; all nets have taken as many steps."""
        self.steps += 1
        first, second = BETAS
        self.grad.add_(self.rows, alpha=self.settings.decay)
        self.mean.lerp_(self.grad, 1 - first)
        self.square.mul_(second).addcmul_(self.grad, self.grad, value=1 - second)
        root = self.square.sqrt().div_(math.sqrt(1 - second**self.steps)).add_(EPSILON)
        self.rows.addcdiv_(self.mean, root, value=-self.settings.rate / (1 - first**self.steps))


def mixed(z: Tensor, draws: Draws) -> Tensor:
    """``[S, U, K·B]``, k-major: each model's ``z [S, U, B]`` mixed by its own plan."""
    toward = z.gather(2, draws.partner.expand_as(z)) - z
    return (z.unsqueeze(2) + draws.lam * toward.unsqueeze(2)).flatten(2)


def unmixed_grad(up: Tensor, draws: Draws) -> Tensor:
    """``[S, U, B]``: the gradient at what was mixed, from the gradient at the mixed rows."""
    up = up.view(*up.shape[:2], draws.lam.shape[2], -1)
    to_partner = (draws.lam * up).sum(dim=2)
    return up.sum(dim=2) - to_partner + to_partner.gather(2, draws.inverse.expand_as(to_partner))


def mixed_label(y: Tensor, draws: Draws | None) -> Tensor:
    """``[S, 1, K·B]``: class 1's share of every row's target."""
    return y.unsqueeze(1) if draws is None else mixed(y.unsqueeze(1), draws)


def leaky(z: Tensor, slope: Tensor) -> Tensor:
    """LeakyReLU with a slope of its own for every model, in 0 … 1."""
    return torch.maximum(z, z * slope)


def leaky_grad(up: Tensor, result: Tensor, slope: Tensor) -> Tensor:
    """The gradient before :func:`leaky`, from the one after it and what it put out."""
    return torch.where(result > 0, up, up * slope)


def whole_sigmoid(z: Tensor) -> Tensor:
    """The sigmoid in whole blocks: its rounding must not depend on where in the stack a number stands."""
    padded = z.new_zeros(math.ceil(z.numel() / BLOCK) * BLOCK)
    padded[: z.numel()] = z.flatten()
    return padded.sigmoid_()[: z.numel()].reshape(z.shape)
