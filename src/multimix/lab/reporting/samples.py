"""The samples a run has mixed, drawn again: those of its very first update, bit for bit, as its network saw them."""

from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ...forward import prepared_plan
from ...generator import seeded
from ..data import Loader, Split
from ..evaluators.gradient_norm import own_streams
from ..report import png
from ..training.loop import as_stored
from ..training.settings import Settings
from ..training.step import MIXING, START, seed_everything

SOFT = "#5c5c66"
SIDE = 1.15  # of a picture in inches
LONG = 16  # letters of a class name


class FirstBatch(NamedTuple):
    """``x [B, C, H, W]`` with classes ``y``, the partner of each, λ ``[K, B]``, and the mixtures ``[K, B, C, H, W]``.

    ``mixed`` is None where they were mixed inside the network, at ``layer``.
    """

    x: Tensor
    y: Tensor
    partner: Tensor
    lam: Tensor
    mixed: Tensor | None
    layer: str | None


def first_batch(settings: Settings, seed: int, train: Split, *, processes: int = 1) -> FirstBatch:
    """What the first process of a run saw in its first update: everything drawn is a function of the seed.

    Saliency, where it is needed, is that of the network before it learnt anything. On another device last bits may differ.
    """
    now = settings.in_epoch(0)
    entry = now.data.entry()
    with own_streams():
        seed_everything(START, seed)
        network = now.network.built(len(train.classes), entry.size[0]).train()
        loader = Loader(
            as_stored(train, now.augment.short_side),
            now.augment.training(entry),
            batch=now.batch,
            seed=seed,
            rank=0,
            world=processes * now.accumulate,
            repeats=now.repeats,
        )
        x, y = next(iter(loader.epoch(0)))
        seed_everything(seed, 0, 0, 0)
        generator = seeded(MIXING, seed, 0, 0, 0)
        plan = prepared_plan(network, now.method, x, y, output=None, generator=generator, given={}).plan
    mixed = plan.mix(x).reshape(plan.k, *x.shape).detach() if plan.layer is None else None
    return FirstBatch(x, y, plan.partner, plan.lam, mixed, plan.layer)


def samples_picture(batch: FirstBatch, settings: Settings, classes: tuple[str, ...], *, pairs: int = 4) -> bytes:
    """PNG: for each of the first ``pairs`` samples itself, its K mixtures with their λ, and its partner."""
    entry = settings.data.entry()
    shown = [i for i in range(len(batch.x)) if int(batch.partner[i]) != i][:pairs] or [0]
    between = 0 if batch.mixed is None else len(batch.mixed)
    sheet = Figure(figsize=(SIDE * max(4, between + 2), 0.35 + (SIDE + 0.2) * len(shown)), layout="constrained")
    grid: Any = sheet.subplots(len(shown), between + 2, squeeze=False)
    for row, i in zip(grid, shown, strict=True):
        j = int(batch.partner[i])
        pictures = [batch.x[i], *([] if batch.mixed is None else batch.mixed[:, i]), batch.x[j]]
        words = [f"λ = {float(lam):.2f}" for lam in batch.lam[:, i]] if between else []
        titles = [_short(classes[int(batch.y[i])]), *words, _short(classes[int(batch.y[j])])]
        for axes, picture, title in zip(row, pictures, titles, strict=True):
            _draw(axes, picture, entry.mean, entry.std, title)
    return png(sheet, dpi=110)


def plain_picture(batch: FirstBatch, settings: Settings, classes: tuple[str, ...], *, count: int = 8) -> bytes:
    """PNG: the first ``count`` samples of a run that mixes nothing visible."""
    entry = settings.data.entry()
    seen = batch.x if batch.mixed is None else batch.mixed[0]
    count = min(count, len(seen))
    sheet = Figure(figsize=(SIDE * max(4, count), 0.35 + SIDE + 0.2), layout="constrained")
    grid: Any = sheet.subplots(1, count, squeeze=False)
    for axes, picture, label in zip(grid[0], seen, batch.y, strict=False):
        _draw(axes, picture, entry.mean, entry.std, _short(classes[int(label)]))
    return png(sheet, dpi=110)


def _draw(axes: Any, picture: Tensor, mean: tuple[float, ...], std: tuple[float, ...], title: str) -> None:
    axes.set_axis_off()
    axes.set_title(title, fontsize=7, color=SOFT, pad=2, parse_math=False)
    if len(picture) == 3:
        shape = (3, 1, 1)
        pixels = picture * torch.tensor(std).reshape(shape) + torch.tensor(mean).reshape(shape)
        axes.imshow(pixels.permute(1, 2, 0).clamp(0, 1).numpy(), interpolation="nearest")
    else:
        axes.imshow(picture[0].numpy(), cmap="magma", interpolation="nearest", aspect="auto", origin="lower")


def _short(name: str) -> str:
    return name if len(name) <= LONG else name[: LONG - 1] + "…"
