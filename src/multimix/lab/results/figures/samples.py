"""The samples a run has mixed, drawn again: those of the first update that mixes, bit for bit, as its network saw them."""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple
from unicodedata import east_asian_width

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ....core.batch import Batch
from ....core.sampling import seeded
from ....methods.recursive_mix import PastedPlan
from ....output import NO_STATE, mixed_forward, plan_batch
from ...data import Loader, Split
from ...data.shapes import cloud_picture
from ...recipes.settings import Settings
from ...training.loop import as_stored, fitted_settings
from ...training.step import MIXING, START, preserve_random_state, seed_everything
from .style import INK, svg

SIDE = 1.15  # of a picture in inches
PIXELS = 160  # of the side of a cloud
LETTERS = 9  # size of titles in points
WIDEST = 72 * 0.95 * SIDE / LETTERS  # line of a title, in units of that size
LINES = 2  # of a title at most


class FirstBatch(NamedTuple):
    """``x [B, C, H, W]`` with classes ``y``, their partners, λ ``[K, B]``, and the mixtures ``[K, B, C, H, W]``.

    Clouds are ``[B, N, 3]``, their mixtures ``[K, B, N, 3]``.
    ``mixed`` is None where they were mixed inside the network, at ``layer``. ``update`` is the first, or the second.
    """

    x: Tensor
    y: Tensor
    x_pair: Tensor
    y_pair: Tensor
    lam: Tensor
    mixed: Tensor | None
    layer: str | None
    update: Literal["first", "second"] = "first"


def first_batch(settings: Settings, seed: int, train: Split, *, processes: int = 1) -> FirstBatch:
    """What the first process of a run saw in its first update: everything drawn is a function of the seed.

    With a method that remembers batches it is the second update, and its partners are the batch of the first, which had nothing
    to be mixed with. Saliency, where it is needed, is that of the network before it learnt anything. On another device last bits
    may differ.
    """
    count, updates = len(train.classes), sum(len(train) // settings.in_epoch(epoch).batch for epoch in range(settings.epochs))
    with preserve_random_state():
        seed_everything(START, seed)
        network = settings.network.built(count, settings.data.entry().size[0])
        part = as_stored(train, settings.in_epoch(0).augment.short_side)
        now = fitted_settings(settings, network, part, seed, updates).in_epoch(0)
        # An epoch of one update has no second, and the next epoch begins anew.
        batches = list(islice(_loader(now, seed, part, processes).epoch(0), 2 if now.method.traits.history else 1))
        network.train()
        state = NO_STATE
        for step, (x, y) in enumerate(batches):
            seed_everything(seed, 0, step, 0)
            generator = seeded(MIXING, seed, 0, step, 0)
            if step < len(batches) - 1:
                state = mixed_forward(network, now.method, x, y, generator=generator, state=None).state
        _, plan, _ = plan_batch(now.method, Batch(network, x, y, y, generator, state))
    mixed = plan.mix(x).reshape(plan.k, *x.shape).detach() if plan.layer is None else None
    pairs = batches[0] if isinstance(plan, PastedPlan) else (x[plan.partner], y[plan.partner])
    return FirstBatch(x, y, *pairs, plan.lam, mixed, plan.layer, "first" if len(batches) == 1 else "second")


def _loader(now: Settings, seed: int, part: Split, processes: int) -> Loader:
    """That of the first share of a batch."""
    return Loader(
        part,
        now.augment.training(now.data.entry()),
        batch=now.batch,
        seed=seed,
        rank=0,
        world=processes * now.accumulate,
        repeats=now.repeats,
    )


def samples_picture(batch: FirstBatch, settings: Settings, classes: tuple[str, ...], *, pairs: int = 4) -> bytes:
    """SVG: for each of the first ``pairs`` samples itself, its K mixtures with their λ, and its partner."""
    chosen = [i for i in range(len(batch.x)) if not torch.equal(batch.x[i], batch.x_pair[i])][:pairs] or [0]
    mixed = batch.x.new_empty(0, *batch.x.shape) if batch.mixed is None else batch.mixed
    rows = []
    for i in chosen:
        between = [(picture, f"λ = {float(lam):.2f}") for picture, lam in zip(mixed[:, i], batch.lam[:, i], strict=False)]
        ends = (batch.x[i], classes[int(batch.y[i])]), (batch.x_pair[i], classes[int(batch.y_pair[i])])
        rows.append([ends[0], *between, ends[1]])
    return _grid(rows, settings)


def plain_picture(batch: FirstBatch, settings: Settings, classes: tuple[str, ...], *, count: int = 8) -> bytes:
    """SVG: the first ``count`` samples of a run that mixes nothing visible."""
    seen = batch.x if batch.mixed is None else batch.mixed[0]
    return _grid([[(picture, classes[int(label)]) for picture, label in zip(seen[:count], batch.y, strict=False)]], settings)


def _grid(rows: Sequence[Sequence[tuple[Tensor, str]]], settings: Settings) -> bytes:
    """Pictures with their titles, row by row, as SVG."""
    entry, columns = settings.data.entry(), len(rows[0])
    height = SIDE + 0.2 * max(1 + in_lines(title).count("\n") for row in rows for _, title in row)
    sheet = Figure(figsize=(SIDE * max(4, columns), 0.35 + height * len(rows)), layout="constrained")
    grid: Any = sheet.subplots(len(rows), columns, squeeze=False)
    for axes, (picture, title) in zip(grid.flat, (one for row in rows for one in row), strict=True):
        axes.set_axis_off()
        axes.set_title(in_lines(title), fontsize=LETTERS, color=INK, pad=2, parse_math=False)
        if picture.ndim == 2:
            axes.imshow(cloud_picture(picture, torch.zeros(len(picture)), PIXELS).permute(1, 2, 0).numpy())
        elif len(picture) == 3:
            mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (entry.mean, entry.std))
            axes.imshow((picture * std + mean).permute(1, 2, 0).clamp(0, 1).numpy(), interpolation="nearest")
        else:
            axes.imshow(picture[0].numpy(), cmap="magma", interpolation="nearest", aspect="auto", origin="lower")
    return svg(sheet)


def in_lines(title: str) -> str:
    """``title`` in at most two lines that are no wider than a picture: broken after a space, _ or -, the rest cut off with …"""
    lines = [""]
    for word in re.findall(r"[^\s_-]+[\s_-]*|[\s_-]+", title):
        if lines[-1] and len(lines) < LINES and _width(lines[-1] + word.rstrip()) > WIDEST:
            lines.append("")
        lines[-1] += word
    return "\n".join(_shortened(line.strip()) for line in lines)


def _shortened(line: str) -> str:
    if _width(line) <= WIDEST:
        return line
    while _width(line + "…") > WIDEST:
        line = line[:-1]
    return line.rstrip() + "…"


def _width(line: str) -> float:
    """At most, in units of the letters' size: the font is that of whoever looks at the page; few are as wide as DejaVu Sans."""
    wide = [letter in "mwMW@%—…" or east_asian_width(letter) in "WF" for letter in line]
    return sum(1.0 if full else 0.8 if letter.isupper() else 0.64 for full, letter in zip(wide, line, strict=True))
