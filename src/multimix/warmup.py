"""Kernels compiled ahead of time."""

import torch

from .methods.comixup.method import CoMixup
from .methods.guided_mixup import GuidedMixup
from .methods.puzzlemix.method import PuzzleMix
from .methods.resize_mix import ResizeMix
from .methods.sage import SAGE
from .methods.sagemix.method import SageMix
from .methods.saliency_mix import SaliencyMix


def warmup() -> None:
    """Compile every kernel that training would compile at its first batch: a minute or two once, then a second per process.

    The result is kept on disk, beside the installed package or in numba's own cache folder, for all later processes. Worth a
    line before data-loader workers start, or in a container's build.
    """
    from . import one_pass_kernel  # noqa: F401  compiled when it is imported

    draws = torch.Generator("cpu").manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        x = torch.linspace(0, 1, 32, dtype=dtype, device="cpu").reshape(2, 1, 4, 4)
        PuzzleMix(k=1, blocks=(2,), threads=1).plan(x, saliency=x[:, 0], generator=draws).mix(x)
        CoMixup(blocks=(2,), threads=1).plan(x, saliency=x[:, 0], generator=draws).mix(x)
        ResizeMix().plan(x, generator=draws).mix(x)
        SaliencyMix().plan(x, generator=draws)
        large = x.repeat(1, 1, 40, 40)
        GuidedMixup().plan(large, saliency=large[:, 0], generator=draws).mix(large)
        plan = SAGE(k=1, positions=0).plan(large, saliency=large[:, 0], generator=draws)
        plan.mix(large)
        _ = plan.lam
    cloud = torch.linspace(0, 1, 48, device="cpu").reshape(2, 8, 3) ** 2
    SageMix(threads=1).plan(cloud, saliency=cloud[..., 0], generator=draws)
