"""Store pictures of the first mixed samples of a run."""

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy
import torch
from numpy import uint8
from numpy.typing import NDArray
from torch import Tensor

from ...core.batch import Batch
from ...core.sampling import seeded
from ...methods import CoMixup, Cutout, NoMix
from ...methods.recursive_mix import PastedPlan
from ...output import NO_STATE, mixed_forward, plan_batch
from ..data.datasets import DataSet
from ..data.shapes import cloud_picture
from ..data.speech import FORMAT as SPECTROGRAM
from ..images import ImageGrid
from .step import MIXING, preserve_random_state, seed_everything

if TYPE_CHECKING:
    from .loop import Training

SHOWN_PAIRS, SHOWN_UNMIXED = 4, 8
CLOUD_PIXELS = 160


class FirstBatch(NamedTuple):
    """The first batch that a run mixes.

    Args:
        x: Samples ``[B, ...]``.
        y: Their classes ``[B]``.
        x_pair: Partners ``[B, ...]``.
        y_pair: Their classes ``[B]``.
        lam: Shares of the partners ``[K, B]``.
        mixed: Mixtures ``[K, B, ...]``; None if a hidden layer mixes.
        layer: The layer that mixes; None for the input.
        update: Number of the update.
    """

    x: Tensor
    y: Tensor
    x_pair: Tensor
    y_pair: Tensor
    lam: Tensor
    mixed: Tensor | None
    layer: str | None
    update: int


def sample_grid(training: "Training") -> ImageGrid:
    """Return pictures of the first batch that the first process mixes.

    Neither the network nor any random state changes. Methods that mix with the previous batch begin
    at the second update.

    Args:
        training: A training that has not started.
    """
    batch = first_batch(training)
    method, classes = training.settings.method, training.train.classes
    if isinstance(method, NoMix | Cutout):
        samples = batch.x if batch.mixed is None else batch.mixed[0]
        images = [_picture(sample, training.data) for sample in samples[:SHOWN_UNMIXED]]
        titles = [classes[int(label)] for label in batch.y[:SHOWN_UNMIXED]]
        return _grid(images, titles, len(images), f"update {batch.update}: samples as the network sees them")
    pairs = [i for i in range(len(batch.x)) if not torch.equal(batch.x[i], batch.x_pair[i])][:SHOWN_PAIRS] or [0]
    mixed = batch.x.new_empty(0, *batch.x.shape) if batch.mixed is None else batch.mixed
    images, titles = [], []
    for i in pairs:
        images += [_picture(sample, training.data) for sample in (batch.x[i], *mixed[:, i], batch.x_pair[i])]
        shares = [f"λ = {float(lam):.2f}" for lam in batch.lam[:, i]][: len(mixed)]
        titles += [classes[int(batch.y[i])], *shares, classes[int(batch.y_pair[i])]]
    if batch.layer is not None:
        text = f"pairs that the method mixes at layer {batch.layer}"
    elif isinstance(method, CoMixup):
        text = "a sample, its mixtures with the share λ of all others, and the other class of largest share"
    else:
        partner = "its partner" if batch.update == 1 else "its partner from the previous update"
        text = f"a sample, its mixtures in ascending order of λ, {partner}"
    return _grid(images, titles, len(mixed) + 2, f"update {batch.update}: {text}")


def first_batch(training: "Training") -> FirstBatch:
    """Return the first batch that a training mixes, bit for bit.

    Args:
        training: A training that has not started.
    """
    settings, seed = training.fitted.in_epoch(0), training.seed
    network, device = training.network, training.accelerator.device
    modules = (network, settings.method.modules)
    was_training = network.training
    buffers = [(buffer, buffer.clone()) for one in modules for buffer in one.buffers()]
    with preserve_random_state():
        share = training.accelerator.process_index * settings.accumulate
        loader = training.loaders(0)[0]
        batches = list(islice(loader.epoch(0), 2 if settings.method.traits.history else 1))
        network.train()
        state = NO_STATE
        for step, (x, y) in enumerate(batches):
            x, y = x.to(device), y.to(device)
            seed_everything(seed, 0, step, share)
            generator = seeded(MIXING, seed, 0, step, share)
            if step < len(batches) - 1:
                state = mixed_forward(network, settings.method, x, y, generator=generator, state=None).state
        _, plan, _ = plan_batch(settings.method, Batch(network, x, y, y, generator, state))
    network.train(was_training)
    for buffer, value in buffers:
        buffer.copy_(value)
    mixed = plan.mix(x).reshape(plan.k, *x.shape).detach() if plan.layer is None else None
    x_pair, y_pair = x[plan.partner], y[plan.partner]
    if isinstance(plan, PastedPlan):
        x_pair, y_pair = (part.to(device) for part in batches[0])
    return FirstBatch(x, y, x_pair, y_pair, plan.lam, mixed, plan.layer, len(batches))


def _picture(sample: Tensor, data: DataSet) -> NDArray[uint8]:
    """Return an RGB image of a sample: an image in color or grey, a spectrogram, or a cloud of points."""
    sample = sample.float().cpu()
    if sample.ndim == 2:
        sample = cloud_picture(sample, torch.zeros(len(sample)), CLOUD_PIXELS)
    elif len(sample) == 3:
        mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (data.mean, data.std))
        sample = sample * std + mean
    else:
        from matplotlib import colormaps

        low, high = sample.amin(), sample.amax()
        scaled = (sample[0] - low) / (high - low).clamp_min(1e-12)
        if data.size == SPECTROGRAM.shape:
            scaled = scaled.flip(0)  # low frequencies at the bottom
        sample = torch.from_numpy(colormaps["magma"](scaled.numpy())[..., :3]).permute(2, 0, 1)
    return (sample.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()


def _grid(images: list[NDArray[uint8]], titles: list[str], columns: int, caption: str) -> ImageGrid:
    return ImageGrid(numpy.stack(images), tuple(titles), columns, caption)
