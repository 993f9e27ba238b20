"""Gradients of many mixed batches at fixed weights, as flat rows; a batch of one is a pair."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ....core.checks import check_batch, checked_labels
from ....core.mixing import mix
from ....core.plan import Plan, SharePlan, unmixed_plan
from ....core.targets import soft_target
from ....output import run_plan

MAX_ROWS = 2**15  # mixed rows in one pass
MAX_NUMBERS = 2**23  # numbers in the gradients of one pass


class Gradients:
    """Compute gradients of the mean soft cross-entropy with respect to all trainable parameters of a model.

    The model and its ``.grad`` are not changed. Stacks of batches go through ``torch.func.vmap``; for a model that vmap cannot
    handle, batches are computed one by one.

    Args:
        model: A module that maps a batch to logits ``[B, C]``, without batch statistics and dropout (``model.eval()``).
        x: ``[N, …]`` samples that pairs are drawn from.
        y: Their labels: class indices or probabilities.

    Raises:
        ValueError: If the model has no trainable parameters, or no gradient per sample.
    """

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor) -> None:
        check_batch(x)
        checked_labels(y, x)
        logits = _check_fixed(model, x)
        if logits.ndim != 2:
            raise ValueError(f"the model must return logits [B, C], got shape {list(logits[:1].shape)}")
        self.x = x
        self.target = soft_target(y, logits.shape[1]).to(logits.dtype)
        self._mixed_model = _MixedModel(model)
        self._parameters = {name: p.detach() for name, p in self._mixed_model.named_parameters() if p.requires_grad}
        if not self._parameters:
            raise ValueError("the model must have parameters that require gradients, got none")
        self.size = sum(p.numel() for p in self._parameters.values())
        self._vmap_works = True

    def of_pairs(self, first: Tensor, second: Tensor, lam: Tensor, layer: str | None) -> Tensor:
        """Return the gradients of R batches of pairs, ``[R, D]``.

        Args:
            first: ``[R, B]`` indices of samples.
            second: ``[R, B]`` indices of their partners.
            lam: ``[R, K, 1 or B]`` shares of the partner.
            layer: Name of the layer to mix after, or None for the input.
        """
        batch = first.shape[1]
        if layer is None:
            x, target = (_mixed(part[first], part[second], lam).flatten(1, 2) for part in (self.x, self.target))
            return self._stacked(self._input_loss, x.shape[1], x, target)
        # Both samples of a pair run up to the layer; only the first of the two mixed rows counts.
        partner = torch.arange(2 * batch).roll(batch).expand(len(first), -1)
        share = lam if lam.shape[2] == 1 else torch.cat([lam, lam], dim=2)
        return self._mixed_hidden(torch.cat([first, second], dim=1), partner, share, layer, batch)

    def of_plans(self, plans: Sequence[Plan], rows: Tensor, pairs: int) -> Tensor:
        """Return the gradients of R planned batches, ``[R, D]``.

        Args:
            plans: R plans with equal K.
            rows: ``[R, n]`` indices of the samples of each batch.
            pairs: How many rows of a batch count; the others are partners only.

        Raises:
            ValueError: If a plan mixes a hidden layer by anything but one share per pair.
        """
        found = self.target.new_empty(len(plans), self.size)
        for layer in {plan.layer: None for plan in plans}:
            here = torch.tensor([plan.layer == layer for plan in plans])
            chosen = [plan for plan in plans if plan.layer == layer]
            if layer is None:
                pieces = [
                    (plan.mix(self.x[row]), plan.mix_target(self.target[row]))
                    for plan, row in zip(chosen, rows[here], strict=True)
                ]
                k = chosen[0].k
                x, target = (
                    torch.stack([_leading(one, k, pairs) for one in part]).flatten(1, 2) for part in zip(*pieces, strict=True)
                )
                found[here] = self._stacked(self._input_loss, k * pairs, x, target)
                continue
            share = [plan.share for plan in chosen if isinstance(plan, SharePlan)]
            if len(share) < len(chosen):
                raise ValueError(f"plans at a hidden layer must have one share per pair, got {type(chosen[0]).__name__}")
            partner = torch.stack([plan.partner for plan in chosen])
            found[here] = self._mixed_hidden(rows[here], partner, torch.stack(share), layer, pairs)
        return found

    def _mixed_hidden(self, rows: Tensor, partner: Tensor, share: Tensor, layer: str, pairs: int) -> Tensor:
        y = self.target[rows]
        y_pair = y.gather(1, partner[:, :pairs].unsqueeze(2).expand(-1, -1, y.shape[2]))
        target = _mixed(y[:, :pairs], y_pair, share[:, :, :pairs])

        def loss(parameters: dict[str, Tensor], row: Tensor, partner: Tensor, share: Tensor, target: Tensor) -> Tensor:
            plan = SharePlan(partner=partner, share=share, layer=layer)
            logits: Tensor = functional_call(self._mixed_model, parameters, (self.x[row], plan))
            return _soft_cross_entropy(_leading(logits, len(share), pairs), target)

        return self._stacked(loss, share.shape[1] * rows.shape[1], rows, partner, share, target)

    def _input_loss(self, parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
        logits: Tensor = functional_call(self._mixed_model, parameters, (x, unmixed_plan(x)))
        return _soft_cross_entropy(logits, target)

    def _stacked(self, loss: Callable[..., Tensor], rows: int, *batches: Tensor) -> Tensor:
        """Return the gradient of ``loss`` for each of the R batches, ``[R, D]``."""
        if self._vmap_works:
            size = max(1, min(MAX_ROWS // rows, MAX_NUMBERS // self.size))
            try:
                gradient = vmap(grad(loss), (None, *[0] * len(batches)), chunk_size=size)
                return _flat(gradient(self._parameters, *batches), len(batches[0]))
            except (RuntimeError, ValueError):
                self._vmap_works = False  # an error that vmap did not cause is raised again below
        return torch.cat([_flat(grad(loss)(self._parameters, *batch), 1) for batch in zip(*batches, strict=True)])


class _MixedModel(nn.Module):
    """The model with the mixing inside, so that ``functional_call`` reaches both."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, plan: Plan) -> Tensor:
        return run_plan(self.model, plan, x)


def _check_fixed(model: nn.Module, x: Tensor) -> Tensor:
    """Return logits of some samples. Raise ValueError unless every sample has a gradient of its own."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or not module.track_running_stats):
            raise ValueError(f"the model must not use batch statistics: call model.eval(); {name!r} uses them")
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        first, second = (run_plan(model, unmixed_plan(x[:32]), x[:32]) for _ in range(2))
    if not torch.equal(first, second):
        raise ValueError("the model must return the same logits for the same samples: call model.eval() to switch dropout off")
    return first


def _leading(rows: Tensor, k: int, pairs: int) -> Tensor:
    """Return the first ``pairs`` rows of each of the K steps, ``[K, pairs, …]``."""
    return torch.unflatten(rows, 0, (k, -1))[:, :pairs]


def _mixed(z: Tensor, z_pair: Tensor, lam: Tensor) -> Tensor:
    """Mix batches ``z [R, B, …]`` with their partners at the shares ``lam [R, K, 1 or B]`` to ``[R, K, B, …]``."""
    return mix(z.unsqueeze(1), z_pair.unsqueeze(1), lam.reshape(*lam.shape, *[1] * (z.ndim - 2)))


def _soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


def _flat(gradients: Mapping[str, Tensor], rows: int) -> Tensor:
    return torch.cat([gradient.reshape(rows, -1) for gradient in gradients.values()], dim=1)
