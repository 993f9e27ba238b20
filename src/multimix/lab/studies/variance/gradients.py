"""Gradients of mixed batches at fixed weights, as flat rows: many batches at once, of any model; a batch of one is a pair."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ....core.checks import check_batch, checked_labels
from ....core.mixing import mix
from ....core.plan import Plan, SharePlan, unmixed_plan
from ....core.targets import soft_target
from ....output import run_plan

# Bounds on what is worked on at once: mixed rows, and numbers in the gradients that come out.
ROWS, NUMBERS = 2**15, 2**23

Loss = Callable[..., Tensor]


class Gradients:
    """The gradients of soft cross-entropy, mean over K·B mixed rows, with respect to all of a model's trainable parameters.

    Neither the model nor any ``.grad`` is changed. Whole stacks of batches go through ``torch.func.vmap``; for a model that it
    cannot handle the batches are computed one by one.
    """

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor) -> None:
        check_batch(x)
        checked_labels(y, x)
        check_fixed(model, x)
        self.x = x
        self._inside = _Inside(model)
        self._parameters = {name: p.detach() for name, p in self._inside.named_parameters() if p.requires_grad}
        if not self._parameters:
            raise ValueError("the model must have parameters that require gradients, got none")
        with torch.no_grad():
            logits = run_plan(model, unmixed_plan(x[:1]), x[:1])
        if logits.ndim != 2:
            raise ValueError(f"the model must put out logits [B, C], got shape {list(logits.shape)}")
        self.target = soft_target(y, logits.shape[1]).to(logits.dtype)
        self.size = sum(p.numel() for p in self._parameters.values())
        self._stacks = True

    def of_pairs(self, own: Tensor, other: Tensor, lam: Tensor, layer: str | None) -> Tensor:
        """``[R, D]``: R batches of the pairs ``own, other [R, B]`` (indices of samples) at the shares ``lam [R, K, 1 or B]``."""
        batch = own.shape[1]
        if layer is None:
            x, y = (_mixed(part[own], part[other], lam) for part in (self.x, self.target))
            return self._over(self._input_loss, x.shape[1], x, y)
        # Both ends of a pair run up to the layer; of the two mixed rows that come out the first is the pair's.
        partner = torch.arange(2 * batch).roll(batch).expand(len(own), -1)
        share = lam if lam.shape[2] == 1 else torch.cat([lam, lam], dim=2)
        return self._mixed_hidden(torch.cat([own, other], dim=1), partner, share, layer, batch)

    def of_plans(self, plans: Sequence[Plan], rows: Tensor, keep: int, *, by_step: bool) -> Tensor:
        """``[R, D]``, or ``[R, K, D]`` by step: one planned batch per row of ``rows [R, n]``, indices of samples.

        Only the first ``keep`` pairs of each batch count: the others are there to be partners.
        """
        found = self.target.new_empty(len(plans), plans[0].k if by_step else 1, self.size)
        for layer in {plan.layer: None for plan in plans}:
            here = torch.tensor([plan.layer == layer for plan in plans])
            chosen = [plan for plan in plans if plan.layer == layer]
            found[here] = self._of_alike(chosen, rows[here], keep, layer, by_step)
        return found if by_step else found[:, 0]

    def _of_alike(self, plans: Sequence[Plan], rows: Tensor, keep: int, layer: str | None, by_step: bool) -> Tensor:
        k = plans[0].k
        batches = len(plans) * (k if by_step else 1)
        if layer is not None:
            shares = [plan.share for plan in plans if isinstance(plan, SharePlan)]
            if len(shares) < len(plans):
                raise ValueError(
                    f"at a hidden layer only plans with one share per pair can be followed, got {type(plans[0]).__name__}"
                )
            share, partner = torch.stack(shares), torch.stack([plan.partner for plan in plans])
            if by_step:
                share, rows, partner = share.flatten(0, 1).unsqueeze(1), *(one.repeat_interleave(k, 0) for one in (rows, partner))
            return self._mixed_hidden(rows, partner, share, layer, keep).reshape(len(plans), -1, self.size)
        mixed = [leading(plan.mix(self.x[row]), k)[:, :keep] for plan, row in zip(plans, rows, strict=True)]
        target = [leading(plan.mix_target(self.target[row]), k)[:, :keep] for plan, row in zip(plans, rows, strict=True)]
        x, y = (torch.stack(part).flatten(1, 2) for part in (mixed, target))
        x, y = (part.reshape(batches, -1, *part.shape[2:]) for part in (x, y))
        return self._over(self._input_loss, x.shape[1], x, y).reshape(len(plans), -1, self.size)

    def _mixed_hidden(self, rows: Tensor, partner: Tensor, share: Tensor, layer: str, keep: int) -> Tensor:
        y = self.target[rows]
        y_pair = y.gather(1, partner[:, :keep].unsqueeze(2).expand(-1, -1, y.shape[2]))
        target = mix(y[:, :keep].unsqueeze(1), y_pair.unsqueeze(1), share[:, :, :keep].unsqueeze(3))

        def loss(parameters: dict[str, Tensor], row: Tensor, partner: Tensor, share: Tensor, target: Tensor) -> Tensor:
            plan = SharePlan(partner=partner, share=share, layer=layer)
            logits: Tensor = functional_call(self._inside, parameters, (self.x[row], plan))
            return _soft_cross_entropy(leading(logits, len(share))[:, :keep], target)

        return self._over(loss, share.shape[1] * rows.shape[1], rows, partner, share, target)

    def _input_loss(self, parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
        logits: Tensor = functional_call(self._inside, parameters, (x, unmixed_plan(x)))
        return _soft_cross_entropy(logits, target)

    def _over(self, loss: Loss, rows: int, *batches: Tensor) -> Tensor:
        """``[R, D]``: the gradient of ``loss`` for each of the R batches stacked in ``batches``."""
        size = max(1, min(ROWS // rows, NUMBERS // self.size))
        return torch.cat([self._chunk(loss, *part) for part in zip(*(torch.split(one, size) for one in batches), strict=True)])

    def _chunk(self, loss: Loss, *batches: Tensor) -> Tensor:
        if self._stacks:
            try:
                found = vmap(grad(loss), in_dims=(None, *[0] * len(batches)))(self._parameters, *batches)
                return _flat(found.values(), len(batches[0]))
            except (RuntimeError, ValueError):
                self._stacks = False  # if the fault is not vmap's, the loop meets it again and says so
        return torch.cat([self._single(loss, *batch) for batch in zip(*batches, strict=True)])

    def _single(self, loss: Loss, *batch: Tensor) -> Tensor:
        leaves = {name: p.clone().requires_grad_() for name, p in self._parameters.items()}
        found = torch.autograd.grad(loss(leaves, *batch), list(leaves.values()), allow_unused=True, materialize_grads=True)
        return _flat(found, 1)


class _Inside(nn.Module):
    """The model with the mixing around it, so that ``functional_call`` reaches both."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.training = model.training  # set here and not by train(), which would reach into the model
        self.model = model

    def forward(self, x: Tensor, plan: Plan) -> Tensor:
        return run_plan(self.model, plan, x)


def check_fixed(model: nn.Module, x: Tensor) -> None:
    """Raise ValueError unless every sample has a gradient of its own at the model's weights."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or not module.track_running_stats):
            raise ValueError(
                f"the model must not use batch statistics, where one sample has no gradient of its own: call model.eval(); "
                f"{name or type(module).__name__!r} does"
            )
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        few = x[:32]
        first, second = (run_plan(model, unmixed_plan(few), few) for _ in range(2))
    if not torch.equal(first, second):
        raise ValueError(
            "the model must give the same logits twice for the same samples: call model.eval() to switch dropout off"
        )


def leading(rows: Tensor, k: int) -> Tensor:
    """``[K·B, …]`` as ``[K, B, …]``."""
    return rows.reshape(k, -1, *rows.shape[1:])


def _mixed(z: Tensor, z_pair: Tensor, lam: Tensor) -> Tensor:
    """``[R, K·B, …]``: batches ``z [R, B, …]`` mixed with their partners at the shares ``lam [R, K, 1 or B]``."""
    share = lam.reshape(*lam.shape, *[1] * (z.ndim - 2))
    return mix(z.unsqueeze(1), z_pair.unsqueeze(1), share).flatten(1, 2)


def _soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


def _flat(parts: Iterable[Tensor], rows: int) -> Tensor:
    return torch.cat([part.detach().reshape(rows, -1) for part in parts], dim=1)
