"""Kernels compiled ahead of time."""

import torch

from .methods.comixup.method import CoMixup
from .methods.puzzlemix.method import PuzzleMix
from .methods.sagemix.method import SageMix


def warmup() -> None:
    """Compile every kernel that training would compile at its first batch: a minute or two once, then a second per process.

    The result is kept on disk, beside the installed package or in numba's own cache folder, for all later processes. Worth a
    line before data-loader workers start, or in a container's build.
    """
    for dtype in (torch.float32, torch.float64):
        x = torch.linspace(0, 1, 32, dtype=dtype, device="cpu").reshape(2, 1, 4, 4)
        plan = PuzzleMix(k=1, blocks=(2,), threads=1).plan(x, saliency=x[:, 0], generator=torch.Generator("cpu").manual_seed(0))
        plan.mix(x)
    draws = torch.Generator("cpu").manual_seed(0)
    CoMixup(blocks=(2,), threads=1).plan(x, saliency=x[:, 0], generator=draws)
    cloud = torch.linspace(0, 1, 48, device="cpu").reshape(2, 8, 3) ** 2
    SageMix(threads=1).plan(cloud, saliency=cloud[..., 0], generator=draws)
