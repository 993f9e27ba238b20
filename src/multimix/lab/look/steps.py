"""What a method makes of picture A on the way to B, at any λ: pairs, clouds of points, or steps of its own."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...methods import Method, PairMethod
from ..data.shapes import KINDS, bodies, cloud_picture
from ..method_options import lab_options

FIRST_BODY, SECOND_BODY, POINTS = "cone", "torus", 400


class Steps(NamedTuple):
    """Pictures along a path: ``images [K, 3, H, W]`` and ``lam [K]``, the realised share of B in each."""

    images: Tensor
    lam: Tensor


def steps(method: Method, a: Tensor, b: Tensor, lam: Sequence[float], *, seed: int) -> Steps:
    """What ``method`` makes of ``a`` with the partner ``b`` at the shares ``lam``, all with one geometry drawn from ``seed``.

    A method without a partner has no λ: it shows ``a`` at 0 and goes through its own k steps at the other shares. One that needs
    saliency gets the contrast of the pictures, since there is no network; one that mixes points gets two clouds
    instead. Steps registered in :mod:`multimix.lab.method_options` come first.
    """
    generator = torch.Generator().manual_seed(seed)
    registered = lab_options(method.name).steps
    if registered is not None:
        return Steps(*registered(method, a, b, lam, generator, contrast))
    if isinstance(method, PairMethod):
        return _mix_pair(method, a, b, lam, generator)
    return _mix_alone(method, a, b, lam, generator)


def ends(method: Method, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor | None]:
    """What is mixed, as pictures: ``a`` and ``b``, or the two clouds; None without a partner."""
    if method.layout == "points":
        first, second = clouds()
        none, side = torch.zeros(POINTS), a.shape[-1]
        return cloud_picture(first, none, side), cloud_picture(second, 1 - none, side)
    return a, b if isinstance(method, PairMethod) or lab_options(method.name).steps else None


def takes_lam(method: Method) -> bool:
    """Whether it can mix at a given share; otherwise the slider goes through its K steps."""
    return lab_options(method.name).any_lam


def contrast(pictures: Tensor) -> Tensor:
    """``[B, H, W]``: how much the brightness of ``pictures [B, C, H, W]`` changes around each place."""
    bright = pictures.mean(1, keepdim=True)
    across = bright.diff(dim=3, append=bright[..., -1:])
    down = bright.diff(dim=2, append=bright[:, :, -1:])
    reach = max(1, pictures.shape[-1] // 32)
    edges = torch.nn.functional.pad((across.square() + down.square()).sqrt(), (reach,) * 4, mode="replicate")
    return torch.nn.functional.avg_pool2d(edges, 2 * reach + 1, stride=1).squeeze(1)


@lru_cache(maxsize=1)
def clouds() -> Tensor:
    """``[2, N, 3]``: the two bodies that are mixed instead of pictures, the same every time as cat and dog are."""
    label = torch.tensor([list(KINDS).index(kind) for kind in (FIRST_BODY, SECOND_BODY)])
    return bodies(label, POINTS, torch.Generator().manual_seed(3), noise=0.0)


def _mix_pair(method: PairMethod, a: Tensor, b: Tensor, lam: Sequence[float], generator: torch.Generator) -> Steps:
    points = method.layout == "points"
    x = clouds() if points else torch.stack([a, b])
    given = {"saliency": torch.ones(2, POINTS) if points else contrast(x)} if "saliency" in method.traits.needs else {}
    # p = 1: a batch that happens to stay unmixed would leave nothing to look at.
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
