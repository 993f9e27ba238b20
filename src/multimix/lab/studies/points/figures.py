"""The study's picture of what is mixed: a body of every kind as the network gets it, and the K steps between two of them."""

from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ....methods.sagemix.method import SageMix
from ....sampling import seeded
from ...data.shapes import KINDS, bodies, cloud_picture
from ...results.figures.style import png
from .train import PointSettings

PIXELS = 300
FROM, TO = "cone", "torus"
# Apart from the streams of a seed: no body of the study is drawn.
STREAM = 9


def cloud_figure(settings: PointSettings, k: int) -> bytes:
    """PNG: above a body of every kind, below A, K steps of SageMix at evenly spaced λ with what was realised, and B."""
    generator = seeded(0, STREAM)
    all_kinds = bodies(torch.arange(len(KINDS)), settings.points, generator, noise=settings.noise)
    x = all_kinds[[list(KINDS).index(kind) for kind in (FROM, TO)]]
    method = SageMix(k=k, sampler="grid", sigma=settings.sigma, threads=1)
    plan = method.plan(x, partner=torch.tensor([1, 0]), saliency=torch.ones(x.shape[:2]), generator=generator)
    above = [_cell(kind, cloud, torch.zeros(settings.points)) for kind, cloud in zip(KINDS, all_kinds, strict=True)]
    none = torch.zeros(settings.points)
    steps = zip(plan.lam[:, 0].tolist(), plan.mix(x)[::2], plan.mask[:, 0, 0], strict=True)
    below = [
        _cell(f"A: {FROM}", x[0], none),
        *(_cell(f"λ = {lam:.2f}", cloud, share) for lam, cloud, share in steps),
        _cell(f"B: {TO}", x[1], 1 - none),
    ]
    across = max(len(above), len(below))
    sheet = Figure(figsize=(1.35 * across, 3.5), layout="constrained")
    cells: Any = sheet.subplots(2, across)
    for line, drawn in zip(cells, (above, below), strict=True):
        for axes, (title, picture) in zip(line, drawn, strict=False):
            axes.imshow(picture)
            axes.set_title(title, fontsize=9)
        for axes in line:
            axes.set_axis_off()
    return png(sheet, dpi=200)


def _cell(title: str, cloud: Tensor, share: Tensor) -> tuple[str, Any]:
    return title, cloud_picture(cloud, share, PIXELS).permute(1, 2, 0).numpy()
