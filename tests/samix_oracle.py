"""SAMix in plain loops, in float64: the masks of one pair after the other, and the losses of a block."""

import math

import torch


def embedded(rho, kappa):
    if kappa is None:
        return rho
    return (4 / 3 * rho**3 - 2 * rho**2 + (kappa + 1) * rho) / (kappa + 1 / 3)


def linear(weight, columns, bias=None):
    """``weight [out][in]`` on each of ``columns [in][P]``."""
    places = len(columns[0])
    return [
        [sum(w * columns[c][p] for c, w in enumerate(row)) + (bias[o] if bias else 0.0) for p in range(places)]
        for o, row in enumerate(weight)
    ]


def values(block, z, partner, shares, training):
    """The value ``[B][P]`` of the partner's places, batch norm over the whole batch."""
    first, last = block.value_in.weight[:, :, 0].tolist(), block.value_out.weight[:, :, 0].tolist()
    inner = [linear(first, [[(2 - shares[i]) * v for v in row] for row in z[partner[i]]]) for i in range(len(z))]
    found = [[0.0] * len(z[0][0]) for _ in z]
    for c in range(len(first)):
        if training:
            numbers = [v for sample in inner for v in sample[c]]
            mean = sum(numbers) / len(numbers)
            variance = sum((v - mean) ** 2 for v in numbers) / len(numbers)
        else:
            mean, variance = float(block.norm.running_mean[c]), float(block.norm.running_var[c])
        for i, sample in enumerate(inner):
            for p, v in enumerate(sample[c]):
                normed = (v - mean) / math.sqrt(variance + block.norm.eps)
                normed = normed * block.norm.weight.tolist()[c] + block.norm.bias.tolist()[c]
                found[i][p] += last[0][c] * (normed if normed > 0 else math.exp(normed) - 1)
    return found


def attended(block, own, other, share, value):
    """Σ_p' softmax_p'(q_p · k_p' / √c) v_p' for every place p of one pair."""
    stacked = [[(1 + share) * v for v in row] for row in own] + [[(2 - share) * v for v in row] for row in other]
    q = linear(block.query.weight[:, :, 0].tolist(), stacked, block.query.bias.tolist())
    k = linear(block.key.weight[:, :, 0].tolist(), stacked, block.key.bias.tolist())
    result = []
    for p in range(len(value)):
        scores = [sum(q[c][p] * k[c][o] for c in range(len(q))) / math.sqrt(len(q)) for o in range(len(value))]
        weights = [math.exp(s - max(scores)) for s in scores]
        result.append(sum(w * v for w, v in zip(weights, value, strict=True)) / sum(weights))
    return result


def upsampled(cells, size):
    """``cells [h][w]`` at the centres of ``size`` pixels, linear in between, even beyond the outer centres."""

    def between(i, many, few):
        at = max((i + 0.5) * few / many - 0.5, 0.0)
        low = min(int(at), few - 1)
        return low, min(low + 1, few - 1), at - low

    rows = []
    for y in range(size[0]):
        y0, y1, ty = between(y, size[0], len(cells))
        row = []
        for x in range(size[1]):
            x0, x1, tx = between(x, size[1], len(cells[0]))
            top = (1 - tx) * cells[y0][x0] + tx * cells[y0][x1]
            bottom = (1 - tx) * cells[y1][x0] + tx * cells[y1][x1]
            row.append((1 - ty) * top + ty * bottom)
        rows.append(row)
    return rows


def masks(block, z, partner, rho, size):
    """``[B][H][W]``: the partner's share; ``rho`` one number for each pair."""
    h, w = z.shape[2:]
    columns = z.double().flatten(2).tolist()
    shares = [embedded(r, block.kappa) for r in rho]
    training = block.training and len(z) * h * w > 1
    value = values(block, columns, partner, shares, training)
    found = []
    for i in range(len(z)):
        flat = attended(block, columns[i], columns[partner[i]], shares[i], value[i])
        cells = upsampled([flat[r * w : (r + 1) * w] for r in range(h)], size)
        found.append([[1 / (1 + math.exp(-v)) for v in row] for row in cells])
    return found


def rescaled(mask, rho):
    numbers = [v for row in mask for v in row]
    shown = sum(1 - v for v in numbers) / len(numbers)
    if shown > rho:
        return [[1 - (1 - v) * rho / shown for v in row] for row in mask]
    return [[v * (1 - rho) / (1 - shown) for v in row] for row in mask]


def path(block, x, z, partner, lam, *, coin=False, margin=0.08, monotone=False):
    """``mixed [K][B][C][H][W]`` and ``masks [K][B][H][W]`` at the shares ``lam`` of the batch."""
    size, images = tuple(x.shape[2:]), x.double().tolist()
    steps = []
    for share in lam:
        step = masks(block, z, partner, [1 - share] * len(x), size)
        for i in range(len(x)):
            if coin:
                step[i] = rescaled(step[i], 1 - share)
            if share <= margin or 1 - share <= margin:
                step[i] = [[share] * size[1] for _ in range(size[0])]
            if monotone and steps:
                before = steps[-1][i]
                step[i] = [[max(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(step[i], before, strict=True)]
        steps.append(step)
    mixed = [
        [
            [
                [[(1 - m) * a + m * b for m, a, b in zip(*rows, strict=True)] for rows in zip(step[i], own, other, strict=True)]
                for own, other in zip(images[i], images[partner[i]], strict=True)
            ]
            for i in range(len(x))
        ]
        for step in steps
    ]
    return mixed, steps


def mask_loss(masks, rho, slack, variance, average):
    """Of ``masks [B][H][W]`` at ``rho`` for each."""
    flat = [[v for row in mask for v in row] for mask in masks]
    if average == "batch":
        flat, rho = [[v for mask in flat for v in mask]], [sum(rho) / len(rho)]
    total = 0.0
    for numbers, r in zip(flat, rho, strict=True):
        mean = sum(numbers) / len(numbers)
        spread = sum((v - mean) ** 2 for v in numbers) / len(numbers)
        total += max(abs(1 - mean - r) - slack, 0) - variance * spread
    return total / len(flat)


def fixed_masks(x, partner, rho, *, kappa=0.25, cell=2, sharpness=2.0):
    """``[B][H][W]`` of a FixedBlock: means over channels and cells, above their own mean, widened."""
    height, width = x.shape[2:]
    h, w = math.ceil(height / cell), math.ceil(width / cell)
    found = []
    for i in range(len(x)):
        grey = x[partner[i]].double().mean(0).tolist()
        cells = [[0.0] * w for _ in range(h)]
        for r in range(h):
            for c in range(w):
                rows = range(r * height // h, math.ceil((r + 1) * height / h))
                columns = range(c * width // w, math.ceil((c + 1) * width / w))
                cells[r][c] = sum(grey[a][b] for a in rows for b in columns) / (len(rows) * len(columns))
        even = sum(map(sum, cells)) / (h * w)
        factor = sharpness * (2 - embedded(rho, kappa))
        wide = upsampled([[factor * (v - even) for v in row] for row in cells], (height, width))
        found.append([[1 / (1 + math.exp(-v)) for v in row] for row in wide])
    return found


def fixed_samix(x, partner, lam, generator, *, per_pair=False, rescale_p=0.25, margin=0.08, **_):
    """One interpolation of the batch with a FixedBlock as it comes; the coin is all that is drawn."""
    coins = (torch.rand(len(x) if per_pair else 1, generator=generator, dtype=torch.float64) < rescale_p).tolist()
    masks = fixed_masks(x, partner, 1 - lam)
    mixed = torch.empty_like(x)
    for i in range(len(x)):
        mask = rescaled(masks[i], 1 - lam) if coins[i % len(coins)] else masks[i]
        if lam <= margin or 1 - lam <= margin:
            mask = [[lam] * x.shape[3] for _ in range(x.shape[2])]
        m = torch.tensor(mask, dtype=torch.float64)
        mixed[i] = ((1 - m) * x[i].double() + m * x[partner[i]].double()).to(x.dtype)
    return mixed
