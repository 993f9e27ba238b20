"""Ahead-of-time compilation of the solvers."""

import torch

from .methods.comixup.method import CoMixup
from .methods.puzzlemix.method import PuzzleMix
from .methods.sage import SAGE
from .methods.sagemix.method import SageMix
from .methods.saliency_mix import SaliencyMix


def warmup() -> None:
    """Compile every solver that training would otherwise compile at its first batch.

    The first call takes about half a minute. The result is cached on disk for all later processes,
    next to the installed package or in numba's cache folder. Call it before data-loader workers
    start, or when you build a container.

    Raises:
        ImportError: If numba is not installed.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.linspace(0, 1, 32, device="cpu").reshape(2, 1, 4, 4)
    for transport in ("exact", "reference"):
        PuzzleMix(blocks=(2,), transport=transport).plan(x, saliency=x[:, 0], generator=generator)
    CoMixup(blocks=(2,)).plan(x, saliency=x[:, 0], generator=generator)
    SaliencyMix().plan(x, generator=generator)
    SAGE(positions=0).plan(x, saliency=x[:, 0], generator=generator)
    points = torch.linspace(0, 1, 48, device="cpu").reshape(2, 8, 3) ** 2
    SageMix().plan(points, saliency=points[..., 0], generator=generator)
