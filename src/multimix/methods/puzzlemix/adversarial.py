"""Adversarial noise from one gradient step, as the Puzzle Mix code adds it."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from ...logits import Output
from ...saliency import CleanPass, clean_pass


class Attack(NamedTuple):
    """``noise [B, C, *size]`` to be added to x, and the pass over the randomly perturbed batch that gave it."""

    noise: Tensor
    clean: CleanPass


def adversarial_noise(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    eps: float,
    mean: Tensor,
    std: Tensor,
    slack: float,
    training: bool,
    generator: Generator,
    output: Output | None = None,
) -> Attack:
    """u · clip(δ + (ε + 2/255) sign(g), ±ε) in pixels = std · x + mean, which stay in 0 … 1.

    δ is uniform in ±ε, g the gradient of the clean loss at x + δ, u one uniform number for the batch.
    """
    pixels = x.detach() * std + mean
    low, high = float(pixels.min()), float(pixels.max())
    if not -slack <= low <= high <= 1 + slack:
        raise ValueError(
            f"adversarial noise needs pixels in 0 … 1, got {low:.3g} … {high:.3g}: say with mean= and std= how x was normalised"
        )
    pixels = pixels.clamp(0, 1)
    start = (torch.rand(x.shape, generator=generator, dtype=x.dtype, device="cpu") * 2 - 1).to(x.device) * eps
    start = (pixels + start).clamp(0, 1) - pixels
    clean = clean_pass(model, x + start / std, y, training=training, output=output)
    scale = torch.rand((), generator=generator, dtype=torch.float64, device="cpu").item()
    delta = (start + (eps + 2 / 255) * clean.gradient.sign()).clamp(-eps, eps) * scale
    return Attack(((pixels + delta).clamp(0, 1) - pixels) / std, clean)
