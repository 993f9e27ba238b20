"""The parts of the variance for a model, a data set and a method, from sampled pairs; and what the method must be for that."""

from dataclasses import dataclass
from typing import Any

import torch
from scipy.special import roots_jacobi
from torch import Generator, Tensor, nn

from ....methods import InputMixup, ManifoldMixup, Method, PairMethod
from ....sampling import sample_path, seeded
from .closed_form import Components, check_size
from .estimators import LamPart, PairParts, lam_part, pair_parts
from .gradients import Gradients, leading

# Gradients of single pairs that are held at once.
BLOCK = 4096


@dataclass(frozen=True)
class Sampled:
    """Estimated parts, and the naive V_λ beside them: ``plug_in`` from ``pairs``, ``plug_in_group`` from ``group`` pairs."""

    components: Components
    plug_in: float
    plug_in_group: float
    pairs: int
    group: int


def sampled_components(
    model: nn.Module,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    pairs: int = 4000,
    draws: int = 4,
    groups: int = 40,
    group: int = 200,
    nodes: int = 32,
    seed: int = 0,
) -> Sampled:
    """V, V_pairs and V_λ without bias, each with an interval, from pairs drawn uniformly with replacement.

    V and V_pairs take ``pairs`` pairs with ``draws`` shares each. V_λ takes ``groups`` independent groups of ``group`` pairs, all
    at ``nodes`` quadrature shares, and multiplies only different groups with each other.
    """
    layer, alpha = check_shares(method)
    for name, size in (("pairs", pairs), ("draws", draws), ("groups", groups), ("group", group)):
        check_size(name, size)
    grads, generator = Gradients(model, x, y), seeded(seed)
    of_pairs = _of_single_pairs(grads, layer, alpha, pairs, draws, generator)
    of_lam = _of_groups(grads, layer, alpha, groups, group, nodes, generator)
    (a, b), (_, c) = of_pairs.covariance.tolist()
    covariance = ((a, b, 0.0), (b, c, 0.0), (0.0, 0.0, of_lam.variance))
    parts = Components(of_pairs.total, of_pairs.pairs, of_lam.value, covariance)
    return Sampled(parts, of_lam.plug_in, of_lam.plug_in_group, groups * group, group)


def _of_single_pairs(
    grads: Gradients, layer: str | None, alpha: float, pairs: int, draws: int, generator: Generator
) -> PairParts:
    means, squares = [], []
    most = max(1, BLOCK // draws)
    for size in [most] * (pairs // most) + [pairs % most] * (pairs % most > 0):
        own, other = (torch.randint(len(grads.x), (size, 1), generator=generator) for _ in range(2))
        lam = sample_path(draws, alpha, rows=size, generator=generator).T.reshape(-1, 1, 1)
        found = grads.of_pairs(own.repeat_interleave(draws, 0), other.repeat_interleave(draws, 0), lam, layer)
        found = leading(found, size).double()
        means.append(found.mean(1))
        squares.append(found.square().sum(2).mean(1))
    return pair_parts(torch.cat(means), torch.cat(squares), draws)


def _of_groups(
    grads: Gradients, layer: str | None, alpha: float, groups: int, group: int, nodes: int, generator: Generator
) -> LamPart:
    share, weight = beta_nodes(alpha, nodes)
    own, other = (torch.randint(len(grads.x), (groups, group), generator=generator) for _ in range(2))
    lam = share.repeat(groups).reshape(-1, 1, 1)
    found = grads.of_pairs(own.repeat_interleave(nodes, 0), other.repeat_interleave(nodes, 0), lam, layer)
    return lam_part(leading(found, groups), weight)


def beta_nodes(alpha: float, nodes: int) -> tuple[Tensor, Tensor]:
    """``share [L]``, ascending and symmetric about ½, and ``weight [L]``, sum 1: Gauss's quadrature for Beta(α, α)."""
    if check_size("nodes", nodes) < 2:
        raise ValueError(f"nodes must be at least 2, got {nodes}")
    place, weight = (torch.from_numpy(part) for part in roots_jacobi(nodes, alpha - 1, alpha - 1))
    # Exactly symmetric, which rounding would spoil and pairs taken in reverse rely on.
    share, weight = 0.5 + (place - place.flip(0)) / 4, weight + weight.flip(0)
    return share, weight / weight.sum()


def check_shares(method: Method) -> tuple[str | None, float]:
    """The layer and α of a method for which V, V_pairs and V_λ are defined; one sentence if they are not.

    g may depend on the pair and its share alone: no box, no field, and always the same layer.
    """
    check_pairs(method)
    if not isinstance(method, InputMixup | ManifoldMixup) or len(method.mixes_at) != 1:
        raise ValueError(
            f"method must be InputMixup or ManifoldMixup with one layer, where pair and λ decide all, got {method!r}"
        )
    return method.mixes_at[0], method.alpha


def check_pairs(method: Method) -> PairMethod:
    """The method, or one sentence if it does not mix every batch along a path from a sample to its partner."""
    if not isinstance(method, PairMethod) or method.p != 1 or method.alpha == 0 or method.needs:
        raise ValueError(
            f"method must mix pairs in every batch, with p = 1, alpha above 0 and nothing else needed, got {method!r}"
        )
    return method


def sampled_from(kept: dict[str, Any]) -> Sampled:
    """What ``asdict`` and JSON made of sampled parts, read back."""
    parts = kept["components"]
    covariance = tuple(tuple(row) for row in parts["covariance"])
    return Sampled(**kept | {"components": Components(**parts | {"covariance": covariance})})
