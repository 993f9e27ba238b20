"""Gaussian bumps of K widths around one centre, and the width whose mean is a given share.

Lengths are shares of the image's sides, so a bump has the shape of its image. With q = 1 / (2 width²) and distances D from the
centre, a bump is exp(−q D²): 1 at the centre, 1 everywhere for q = 0, and at every place it falls as q grows.
"""

import math

import torch
from torch import Tensor

# Of log q: for all that float64 can tell a bump is 1 everywhere below, and above it is 0 beside its centre.
FLATTEST, SHARPEST = -40.0, 60.0
STEPS = 64
CLOSE = 1e-12


def bump_masks(q: Tensor, center: Tensor, size: tuple[int, ...]) -> Tensor:
    """``[K, rows, 1, *size]``, float32: bumps of sharpness ``q [K, rows]`` around ``center [rows, d]``, in shares of the sides.

    A bump of infinite sharpness is 0 everywhere.
    """
    gone = q.isinf()
    q, mask = torch.where(gone, 0.0, q).unsqueeze(-1), (~gone).float()
    for axis, squares in enumerate(_squares(center, size)):
        along = torch.exp(-q * squares).float()
        mask = mask.unsqueeze(-1) * along.reshape(*along.shape[:2], *[1] * axis, -1)
    return mask.unsqueeze(2)


def sharpness(lam: Tensor, center: Tensor, size: tuple[int, ...]) -> Tensor:
    """``q [K, rows]`` for which the mean of the bump over all places is ``lam [K, rows]``: 0 for 1, infinite for 0.

    log mean = log λ, solved for log q by Newton's method inside a bracket, which is halved wherever Newton would leave it. The
    mean is a product over the axes, so this costs K times the sum of the sides, not their product.
    """
    squares = _squares(center, size)
    mean_square, least_square = torch.stack([torch.stack([s.mean(-1), s.amin(-1)]) for s in squares]).sum(0)
    wanted = lam.clamp(min=torch.finfo(torch.float64).tiny).log() + torch.zeros_like(mean_square)
    # A mean of exp(−q D²) lies above exp(−q · mean D²) and below exp(−q · least D²).
    flat = (-wanted / mean_square).log().clamp(FLATTEST, SHARPEST)
    sharp = (-wanted / least_square).log().clamp(FLATTEST, SHARPEST)
    # The bump of mean λ in an image that goes on for ever has q = π / λ^(2/d).
    log_q = (math.log(math.pi / 2) - 2 / len(size) * wanted).clamp(flat, sharp)
    found = torch.zeros_like(wanted, dtype=torch.bool)
    for _ in range(STEPS):
        log_mean, slope = _log_mean(log_q, squares)
        excess = log_mean - wanted
        too_wide = excess > 0
        flat, sharp = torch.where(too_wide, log_q, flat), torch.where(too_wide, sharp, log_q)
        newton = log_q - excess / slope
        step = torch.where((newton > flat) & (newton < sharp), newton, (flat + sharp) / 2)
        # Each stops for itself, so that a solution does not depend on what else is solved beside it.
        found = found | (excess.abs() <= CLOSE) | (sharp - flat <= CLOSE)
        if bool(found.all()):
            break
        log_q = torch.where(found, log_q, step)
    q = torch.where(lam == 1, 0.0, torch.where(lam == 0, torch.inf, log_q.exp()))
    # Where two shares are closer than rounding, the solutions may change places.
    return q.cummin(0).values


def _log_mean(log_q: Tensor, squares: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The logarithm of the mean of the bumps ``[K, rows]`` and its derivative by ``log_q``."""
    q = log_q.exp()
    value, slope = torch.zeros_like(q), torch.zeros_like(q)
    for along in squares:
        least = along.amin(-1)
        beyond = along - least.unsqueeze(-1)
        # Less the nearest place's, exponents do not underflow along a whole axis.
        parts = torch.exp(-q.unsqueeze(-1) * beyond)
        mean = parts.mean(-1)
        value = value + mean.log() - q * least
        slope = slope - q * (least + (parts * beyond).mean(-1) / mean)
    return value, slope


def _squares(center: Tensor, size: tuple[int, ...]) -> list[Tensor]:
    """For every axis ``[rows, side]``: the squared distance of the places' middles from the centre."""
    return [
        ((torch.arange(side, dtype=torch.float64) + 0.5) / side - center[:, axis, None]).square()
        for axis, side in enumerate(size)
    ]
