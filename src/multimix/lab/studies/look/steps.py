"""Mixes of two pictures along λ: pairs, clouds of points, or a method's own steps."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....methods import Method, PairMethod
from ...data.shapes import KINDS, bodies, cloud_picture
from ...method_options import lab_options

FIRST_BODY, SECOND_BODY, POINTS = "cone", "torus", 400


class Steps(NamedTuple):
    """Pictures along a path.

    Args:
        images: ``[K, 3, H, W]``.
        lam: ``[K]``, the realized share of B in each.
    """

    images: Tensor
    lam: Tensor


def steps(method: Method, a: Tensor, b: Tensor, lam: Sequence[float], *, seed: int) -> Steps:
    """Mix ``a`` with its partner ``b`` at the shares ``lam``, with one geometry.

    A method without a partner has no λ: it returns ``a`` at 0 and its own k steps at the other shares. The contrast of the
    pictures replaces the saliency of a network, and two clouds replace the pictures if the method mixes points. Steps registered
    in :mod:`multimix.lab.method_options` come first.

    Args:
        method: The method.
        a: ``[3, H, H]`` in [0, 1].
        b: The same for the partner.
        lam: Requested shares of B.
        seed: Determines the geometry.
    """
    generator = torch.Generator().manual_seed(seed)
    registered = lab_options(method.name).steps
    if registered is not None:
        return Steps(*registered(method, a, b, lam, generator, contrast))
    if isinstance(method, PairMethod):
        return _mix_pair(method, a, b, lam, generator)
    return _mix_alone(method, a, b, lam, generator)


def ends(method: Method, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return pictures of both ends of the path, None for a method without a partner.

    Args:
        method: The method.
        a: ``[3, H, H]`` in [0, 1].
        b: The same for the partner.
    """
    if method.layout == "points":
        first, second = clouds()
        none, side = torch.zeros(POINTS), a.shape[-1]
        return cloud_picture(first, none, side), cloud_picture(second, 1 - none, side)
    return a, b if isinstance(method, PairMethod) or lab_options(method.name).steps else None


def takes_lam(method: Method) -> bool:
    """Return whether a method mixes at any requested share."""
    return lab_options(method.name).any_lam


def contrast(pictures: Tensor) -> Tensor:
    """Return how much the brightness changes around each pixel, ``[B, H, W]``.

    Args:
        pictures: ``[B, C, H, W]``.
    """
    bright = pictures.mean(1, keepdim=True)
    across = bright.diff(dim=3, append=bright[..., -1:])
    down = bright.diff(dim=2, append=bright[:, :, -1:])
    reach = max(1, pictures.shape[-1] // 32)
    edges = torch.nn.functional.pad((across.square() + down.square()).sqrt(), (reach,) * 4, mode="replicate")
    return torch.nn.functional.avg_pool2d(edges, 2 * reach + 1, stride=1).squeeze(1)


@lru_cache(maxsize=1)
def clouds() -> Tensor:
    """Return the two clouds that replace pictures, ``[2, N, 3]``."""
    label = torch.tensor([list(KINDS).index(kind) for kind in (FIRST_BODY, SECOND_BODY)])
    return bodies(label, POINTS, torch.Generator().manual_seed(3), noise=0.0)


def _mix_pair(method: PairMethod, a: Tensor, b: Tensor, lam: Sequence[float], generator: torch.Generator) -> Steps:
    points = method.layout == "points"
    x = clouds() if points else torch.stack([a, b])
    given = {"saliency": torch.ones(2, POINTS) if points else contrast(x)} if "saliency" in method.traits.needs else {}
    # p = 1: every batch is mixed.
    plan = replace(method, p=1.0).plan(x, partner=torch.tensor([1, 0]), lam=lam, generator=generator, **given)
    images = plan.mix(x)[::2]
    if points:
        drawn = zip(images, plan.mask[:, 0, 0], strict=True)
        images = torch.stack([cloud_picture(cloud, share, a.shape[-1]) for cloud, share in drawn])
    return Steps(images, plan.lam[:, 0])


def _mix_alone(method: Method, a: Tensor, b: Tensor, lam: Sequence[float], generator: torch.Generator) -> Steps:
    x, unmoved = torch.stack([a, b]), sum(share == 0 for share in lam)
    changed: dict[str, Any] = {"k": len(lam) - unmoved}
    plan = replace(method, **changed).plan(x, generator=generator)  # type: ignore[type-var]  # methods are dataclasses
    images = torch.cat([a.expand(unmoved, *a.shape), plan.mix(x)[::2]])
    return Steps(images, torch.cat([torch.zeros(unmoved, dtype=torch.float64), plan.lam[:, 0]]))
