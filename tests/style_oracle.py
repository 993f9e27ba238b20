"""Slow versions of StyleMix and StyleCutMix, one image, channel and place at a time, and pairs whose answers can be foreseen."""

import math

import torch

from multimix.methods.style.small_pair import IdentityPair
from oracles import cutmix_box, drawn_centers, seeded

__all__ = ["IDENTITY", "CountingPair", "IdentityPair", "LossyPair", "adain", "seeded", "style_cutmix", "style_mix"]


IDENTITY = IdentityPair()


class LossyPair:
    """Twice the channels, not linear on the way back, and D(E(x)) is not x."""

    def encode(self, x):
        return torch.cat([x, 0.5 * x.flip(3) + x.square()], 1)

    def decode(self, features):
        first, second = features.chunk(2, 1)
        return 0.9 * first + 0.1 * second.tanh()


class CountingPair(LossyPair):
    """Remembers how many images it was given, and whether anybody watched."""

    def __init__(self):
        self.encoded, self.decoded, self.with_grad, self.seen = [], [], False, []

    def encode(self, x):
        self.encoded.append(len(x))
        self.seen.append(x)
        self.with_grad |= torch.is_grad_enabled() or x.requires_grad
        return super().encode(x)

    def decode(self, features):
        self.decoded.append(len(features))
        self.with_grad |= torch.is_grad_enabled() or features.requires_grad
        return super().decode(features)


def statistics(channel):
    values = [float(value) for value in channel.flatten()]
    mean = math.fsum(values) / len(values)
    spread = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt((spread / (len(values) - 1) if len(values) > 1 else 0.0) + 1e-5)


def adain(content, style):
    """Of one image's features ``[F, h, w]``, place by place."""
    result = torch.empty_like(content)
    for c in range(len(content)):
        (mean, deviation), (new_mean, new_deviation) = statistics(content[c]), statistics(style[c])
        for i in range(content.shape[1]):
            for j in range(content.shape[2]):
                result[c, i, j] = new_deviation * (float(content[c, i, j]) - mean) / deviation + new_mean
    return result


def style_mix(x, partner, lam, style_lam, position, pair):
    """All in the authors' terms, where ratios are those of x; ``position`` in 0 … 1 is where t lies in its interval."""
    features = [pair.encode(image[None])[0] for image in x]
    made = []
    for i, j in enumerate(partner):
        r_c, r_s = 1 - lam, 1 - style_lam
        low, high = max(0.0, r_c + r_s - 1), min(r_c, r_s)
        t = low + position * (high - low)
        f, g = features[i], features[j]
        mixed = t * f + (1 - r_c - r_s + t) * g + (r_c - t) * adain(f, g) + (r_s - t) * adain(g, f)
        made.append(pair.decode(mixed[None])[0])
    return torch.stack(made)


def style_cutmix(x, partner, lam, style_lam, centers, gamma, pair, box="clip", grid="continuous", r=0.7):
    """``images [B, …]`` and the label's share of x' ``[B]``, by the authors' four stylised images and their weights."""
    made, shares = x.clone(), []
    for i, j in enumerate(partner):
        f, g = pair.encode(x[i][None])[0], pair.encode(x[j][None])[0]
        g12 = gamma * x[i] + (1 - gamma) * pair.decode(adain(f, g)[None])[0]
        g21 = gamma * x[j] + (1 - gamma) * pair.decode(adain(g, f)[None])[0]
        (top, bottom), (left, right) = cutmix_box(1 - lam, centers[i], x.shape[2:], box, grid)
        r_s, area = 1 - style_lam, 0
        for row in range(x.shape[2]):
            for column in range(x.shape[3]):
                r_c = 1 if top <= row < bottom and left <= column < right else 0
                area += r_c
                t = max(0.0, r_c + r_s - 1)
                place = (slice(None), row, column)
                made[(i, *place)] = (
                    t * x[i][place] + (1 - r_c - r_s + t) * x[j][place] + (r_c - t) * g12[place] + (r_s - t) * g21[place]
                )
        a = area / (x.shape[2] * x.shape[3])
        shares.append(1 - (r * a + (1 - r) * (gamma * a + (1 - gamma) * r_s)))
    return made, torch.tensor(shares, dtype=torch.float64)


def base_style_mix(x, partner, lam, generator, options):
    """For the conformance suite, with tied paths."""
    rows = len(x) if options.get("per_pair") else 1
    position = torch.rand(rows, dtype=torch.float64, generator=generator).expand(len(x)).tolist()
    rows = [style_mix(x[[i, j]], [1, 0], lam, lam, position[i], options["pair"])[0] for i, j in enumerate(partner)]
    return torch.stack(rows)


def base_style_cutmix(x, partner, lam, generator, options):
    """For the conformance suite, with a path handed in, which serves both, and a fixed γ."""
    centers = drawn_centers(len(x) if options.get("per_pair") else 1, x.shape[2:], options.get("grid", "continuous"), generator)
    centers = centers if options.get("per_pair") else centers * len(x)
    return style_cutmix(x, partner, lam, lam, centers, options["gamma"], options["pair"], options["box"])[0]
