"""Images and saliency for masks.py, comixup.py: CIFAR-100 with a small residual network trained here for a few epochs, and noise.

    python benchmarks/real_saliency.py --data DIR                # trains (a few minutes of CPU) and keeps images and saliency
    python benchmarks/real_saliency.py --data DIR --steps 100    # a quicker, worse network

``DIR`` (or ``$MULTIMIX_DATA``) holds the official files ``cifar-100-python/train`` and ``test``. ``masks.py --data DIR`` does the
same when the kept file is missing. Saliency as in puzzle-mix: the gradient of the mean cross-entropy with respect to the
normalised image, network in eval mode, root mean square over the channels. The images kept were trained on, as in training.
"""

import argparse
import os
import pickle
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

MEAN, STD = (0.507, 0.487, 0.441), (0.267, 0.256, 0.276)
CLASSES, BATCH, WIDTH, STEPS, KEPT = 100, 100, 32, 1800, 400


class Batch(NamedTuple):
    """``x [B, 3, W, W]`` in [0, 1], its ``saliency [B, W, W]`` and ``partner [B]``."""

    x: Tensor
    saliency: Tensor
    partner: Tensor


class Kept(NamedTuple):
    """``images [M, 3, 32, 32]`` in [0, 1], ``saliency [M, 32, 32]`` and ``words``: how the network was trained."""

    images: Tensor
    saliency: Tensor
    words: str


def data_folder(given: str | None) -> Path | None:
    """The folder with CIFAR-100 in it: ``given``, or ``$MULTIMIX_DATA``, or None where neither holds it."""
    for folder in (given, os.environ.get("MULTIMIX_DATA")):
        if folder and (Path(folder) / "cifar-100-python/train").exists():
            return Path(folder)
    return None


def kept_saliency(folder: Path, cache: Path | None = None, steps: int = STEPS, images_kept: int = KEPT) -> Kept:
    """Images and saliency, read from ``cache`` or made and kept there; without it, in a temporary file of that many steps."""
    cache = cache or Path(tempfile.gettempdir()) / f"multimix-cifar-saliency-{steps}-steps-{images_kept}.pt"
    if cache.exists():
        return Kept(**torch.load(cache, weights_only=True))
    images, label = cifar100(folder, "train")
    model, words = trained(images, label, *cifar100(folder, "test"), steps)
    images, label = images[:images_kept], label[:images_kept]
    parts = [saliency(model, x, y) for x, y in zip(images.split(BATCH), label.split(BATCH), strict=True)]
    kept = Kept(images=images.float() / 255, saliency=torch.cat(parts), words=words)
    cache.parent.mkdir(parents=True, exist_ok=True)
    torch.save(kept._asdict(), cache)
    return kept


def cifar100(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """uint8 images ``[M, 3, 32, 32]`` and fine labels ``[M]``, in the official order."""
    with open(folder / "cifar-100-python" / split, "rb") as file:
        content = pickle.load(file, encoding="latin1")
    return torch.from_numpy(content["data"]).reshape(-1, 3, 32, 32), torch.tensor(content["fine_labels"])


def normalised(images: Tensor) -> Tensor:
    """float32, each channel of zero mean and unit deviation over the data set."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return (images.float() / 255 - mean) / std


def saliency(model: nn.Module, images: Tensor, label: Tensor) -> Tensor:
    """``[B, H, W]``: root mean square over the channels of the input gradient."""
    x = normalised(images).requires_grad_()
    (grad,) = torch.autograd.grad(functional.cross_entropy(model.eval()(x), label), x)
    return grad.square().mean(1).sqrt()


def trained(images: Tensor, label: Tensor, test_images: Tensor, test_label: Tensor, steps: int) -> tuple[nn.Module, str]:
    """A network after ``steps`` of SGD, one-cycle learning rate, flips and shifts; and a sentence about it."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)  # the initial weights: nn.Module takes no generator
    model = residual_network().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.3, total_steps=steps)
    start = time.process_time()
    order = torch.cat([torch.randperm(len(images), generator=generator) for _ in range(1 + steps * BATCH // len(images))])
    for step in range(steps):
        chosen = order[step * BATCH : (step + 1) * BATCH]
        loss = functional.cross_entropy(model(shifted(normalised(images[chosen]), generator)), label[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    spent = time.process_time() - start
    rate = accuracy(model.eval(), test_images[:5000], test_label[:5000])
    seen = steps * BATCH / len(images)
    return model, f"{steps} steps of {BATCH} ({seen:.1f} epochs, {spent:.0f} s CPU), top-1 {rate:.1%} on 5,000 test images"


def shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """The batch flipped at random and shifted by up to four pixels, the shift shared by the batch."""
    flips = torch.rand(len(x), generator=generator) < 0.5
    x = torch.where(flips[:, None, None, None], x.flip(3), x)
    down, right = torch.randint(9, (2,), generator=generator).tolist()
    x = functional.pad(x, (4, 4, 4, 4))[..., down : down + 32, right : right + 32]
    return x.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, label: Tensor) -> float:
    hits = [(model(normalised(x)).argmax(1) == y).sum() for x, y in zip(images.split(500), label.split(500), strict=True)]
    return float(sum(hits)) / len(label)


class Residual(nn.Module):
    """x + two convolutions of it, each after batch norm and ReLU; a 1×1 convolution where the size changes."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU())
        self.branch = nn.Sequential(
            nn.Conv2d(width, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
        )
        self.skip = nn.Conv2d(width, out, 1, stride, bias=False) if stride > 1 or width != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        entered = self.enter(x)
        return self.branch(entered) + self.skip(entered)


def residual_network(width: int = WIDTH) -> nn.Module:
    """One convolution at full size, then residual blocks at 16, 8 and 4 pixels: small enough for minutes on one core."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        Residual(width, width, 2),
        Residual(width, 2 * width, 2),
        Residual(2 * width, 4 * width, 2),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, CLASSES),
    )


def synthetic(seed: int, batch: int = BATCH, size: int = 32) -> Batch:
    """Coloured 1/f noise stretched to [0, 1], and one to three Gaussian blobs on a floor, times log-normal noise."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.fft.fftfreq(size)
    frequency = (steps[:, None].square() + steps.square()).sqrt().clamp(min=1 / size)
    noise = torch.randn(batch, 3, size, size, generator=generator)
    noise = noise + 1.5 * torch.randn(batch, 1, size, size, generator=generator)  # colours that go together, as in photographs
    x = torch.fft.ifft2(torch.fft.fft2(noise) / frequency).real
    low, high = x.flatten(1).min(1).values, x.flatten(1).max(1).values
    x = (x - low[:, None, None, None]) / (high - low)[:, None, None, None]
    place = torch.arange(size) / size
    centre = torch.rand(2, batch, 3, 1, 1, generator=generator)
    width = 0.08 + 0.12 * torch.rand(batch, 3, 1, 1, generator=generator)
    height = torch.rand(batch, 3, 1, 1, generator=generator).round() + torch.tensor([1.0, 0, 0]).reshape(1, 3, 1, 1)
    apart = (place[:, None] - centre[0]).square() + (place - centre[1]).square()
    blobs = 0.1 + (height * torch.exp(-apart / (2 * width.square()))).sum(1)
    saliency = blobs * torch.exp(torch.randn(batch, size, size, generator=generator))
    return Batch(x, saliency, derangement(batch, seed))


def derangement(batch: int, seed: int) -> Tensor:
    """A partner for everyone, never oneself: neighbours along a random circle."""
    circle = torch.randperm(batch, generator=torch.Generator().manual_seed(seed))
    return torch.empty_like(circle).scatter_(0, circle, circle.roll(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder that holds cifar-100-python; $MULTIMIX_DATA otherwise")
    parser.add_argument("--cache", type=Path, help="the file to keep images and saliency in")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    folder = data_folder(options.data)
    if folder is None:
        parser.error("no cifar-100-python/train in --data or $MULTIMIX_DATA")
    torch.set_num_threads(1)
    print(kept_saliency(folder, options.cache, options.steps).words)


if __name__ == "__main__":
    main()
