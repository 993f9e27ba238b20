"""Slow, independent versions of AlignMixup, SAGE, GuidedMixup and AttentiveMix: plain loops over pairs, places and offsets."""

import math

import torch

from oracles import places


def sinkhorn(cost, eps, rounds, tolerance):
    """Plans for a list of cost matrices (lists of lists), by Python's own numbers; the stop rule looks at all of them."""
    pairs, n, m = len(cost), len(cost[0]), len(cost[0][0])
    u, v = [[0.0] * n for _ in range(pairs)], [[0.0] * m for _ in range(pairs)]

    def soft_min(values):
        least = min(values)
        return least - eps * math.log(sum(math.exp((least - value) / eps) for value in values))

    for _ in range(rounds):
        change = 0.0
        for b in range(pairs):
            new = [-eps * math.log(n) + soft_min([cost[b][i][j] - v[b][j] for j in range(m)]) for i in range(n)]
            change += sum(abs(a - c) for a, c in zip(new, u[b], strict=True)) / pairs
            u[b] = new
            v[b] = [-eps * math.log(m) + soft_min([cost[b][i][j] - u[b][i] for i in range(n)]) for j in range(m)]
        if change < tolerance:
            break
    return [[[math.exp((u[b][i] + v[b][j] - cost[b][i][j]) / eps) for j in range(m)] for i in range(n)] for b in range(pairs)]


def aligned_mix(z, partner, lam, moves, eps=0.1, rounds=100, tolerance=0.1):
    """``z [B, C, *size]`` in float64 or float32, mixed at one share; ``moves[i]``: the sample is brought to the partner."""
    columns = z.double().reshape(*z.shape[:2], -1)
    n = columns.shape[2]
    cost = [((columns[i][:, :, None] - columns[j][:, None, :]) ** 2).sum(0).tolist() for i, j in enumerate(partner)]
    plan = sinkhorn(cost, eps, rounds, tolerance)
    result = torch.empty_like(columns)
    for i, j in enumerate(partner):
        for p in range(n):
            if i == j:
                result[i, :, p] = columns[i, :, p]
            elif moves[i]:
                brought = sum(n * plan[i][q][p] * columns[i, :, q] for q in range(n))
                result[i, :, p] = (1 - lam) * brought + lam * columns[j, :, p]
            else:
                brought = sum(n * plan[i][p][q] * columns[j, :, q] for q in range(n))
                result[i, :, p] = (1 - lam) * columns[i, :, p] + lam * brought
    return result.reshape(z.shape).to(z.dtype)


def align_mixup(x, partner, lam, generator, per_pair=False, direction="coin", input_share=0.5, **options):
    at_input = float(torch.rand((), generator=generator, dtype=torch.float64)) < input_share
    torch.randint(1, (), generator=generator)
    heads = torch.rand(len(x) if per_pair else 1, generator=generator, dtype=torch.float64) < 0.5
    if at_input:
        return torch.stack([(1 - lam) * x[i] + lam * x[j] for i, j in enumerate(partner)])
    moves = [bool(heads[i if per_pair else 0]) if direction == "coin" else direction == "sample" for i in range(len(x))]
    return aligned_mix(x, partner, lam, moves, **options)


def smooth_map(saliency, blur_size, blur_sigma):
    """One map ``[*size]``: blurred with the weights that fall inside, then divided by its sum; even if it is 0."""
    size, reach = tuple(saliency.shape), blur_size // 2
    saliency = saliency.double()
    if float(saliency.sum()) == 0:
        return torch.full(size, 1 / math.prod(size), dtype=torch.float64)
    result = torch.zeros(size, dtype=torch.float64)
    for here in places(size):
        total = mass = 0.0
        for offset in places((blur_size,) * len(size)):
            there = tuple(h + o - reach for h, o in zip(here, offset, strict=True))
            if all(0 <= t < side for t, side in zip(there, size, strict=True)):
                weight = math.exp(-sum((o - reach) ** 2 for o in offset) / (2 * blur_sigma**2))
                total, mass = total + weight * float(saliency[there]), mass + weight
        result[here] = total / mass
    return result / result.sum()


def drawn_shifts(size, positions, stay, generator):
    spans = [range(-side + 1, side) for side in size]
    every = [()]
    for span in spans:
        every = [(*head, along) for head in every for along in span]
    count = max(1, int(positions * len(every)))
    chosen = [every[i] for i in torch.randperm(len(every), generator=generator)[:count].tolist()]
    return [(0,) * len(size), *chosen] if stay else chosen


def sage_pair(own, pair, rhos, shifts):
    """The best shift and, for each ρ, the share of the sample at every place (a dict), for two maps that sum to 1."""
    size = tuple(own.shape)

    def masks(shift, rho):
        share, score = {}, 0.0
        for here in places(size):
            there = tuple(h - s for h, s in zip(here, shift, strict=True))
            a = rho * float(own[here])
            if not all(0 <= t < side for t, side in zip(there, size, strict=True)):
                share[here], score = 1.0, score + a
                continue
            b = (1 - rho) * float(pair[there])
            share[here] = a / (a + b) if a + b > 0 else rho
            score += a * share[here] + b * (1 - share[here])
        return share, score

    scores = [sum(masks(shift, rho)[1] for rho in rhos) for shift in shifts]
    best = max(range(len(shifts)), key=lambda n: scores[n])
    return shifts[best], [masks(shifts[best], rho)[0] for rho in rhos], scores


def in_cells(values, sides):
    """The sums of a map over cells with ``sides``, place by place."""
    cells = torch.zeros([math.ceil(side / of) for side, of in zip(values.shape, sides, strict=True)], dtype=torch.float64)
    for here in places(tuple(values.shape)):
        cells[tuple(at // of for at, of in zip(here, sides, strict=True))] += float(values[here])
    return cells


def nearest_cells(shift, sides):
    """The whole number of cells next to a translation, of two the even one."""
    near = [[(abs(along - m * of), m % 2, m) for m in range(-999, 999)] for along, of in zip(shift, sides, strict=True)]
    return tuple(min(options)[2] for options in near)


def best_by_cells(own, pair, rhos, shifts, sides):
    """The score of every translation where it is brought to whole cells, for two maps that sum to 1."""
    own, pair = in_cells(own, sides), in_cells(pair, sides)
    return sage_pair(own, pair, rhos, [nearest_cells(shift, sides) for shift in shifts])[2]


def sage_path(x, partner, lams, saliency, generator, bound=0.6, positions=0.01, stay=True, blur_size=5, blur_sigma=1.0):
    """Images ``[K·B, …]`` and label shares of the partner ``[K][B]``; ``lams [K]`` are shared by the batch."""
    size = tuple(x.shape[2:])
    shifts = drawn_shifts(size, positions, stay, generator)
    maps = [smooth_map(s, blur_size, blur_sigma) for s in saliency]
    mixed, shares = torch.empty(len(lams), *x.shape, dtype=torch.float64), [[0.0] * len(x) for _ in lams]
    for i, j in enumerate(partner):
        allowed = shifts if i != j else [(0,) * len(size)]
        shift, masks, _ = sage_pair(maps[i], maps[j], [bound * (1 - lam) for lam in lams], allowed)
        for k, mask in enumerate(masks):
            for here in places(size):
                there = tuple(h - s for h, s in zip(here, shift, strict=True))
                at, m = (slice(None), *here), mask[here]
                mixed[(k, i, *at)] = m * x[(i, *at)].double()
                if m < 1:
                    mixed[(k, i, *at)] += (1 - m) * x[(j, slice(None), *there)].double()
            shares[k][i] = 1 - sum(mask.values()) / len(mask)
    return mixed.flatten(0, 1).to(x.dtype), shares


def sage(x, partner, lam, saliency, generator, per_pair=False, **options):
    return sage_path(x, partner, [lam], saliency, generator, **options)[0]


def guided_mixup(x, partner, lam, saliency, per_pair=False, pairing="far", blur_size=7, blur_sigma=3.0):
    maps = [smooth_map(s, blur_size, blur_sigma) for s in saliency]
    result = x.clone()
    for i, j in enumerate(partner):
        for here in places(tuple(x.shape[2:])):
            at, a, b = (slice(None), *here), (1 - lam) * float(maps[i][here]), lam * float(maps[j][here])
            m = b / (a + b) if a + b > 0 else lam
            result[(i, *at)] = (1 - m) * x[(i, *at)] + m * x[(j, *at)]
    return result


def distances(maps):
    """How far apart any two maps are, by loops."""
    return [[math.sqrt(float(((a.double() - b.double()) ** 2).sum())) for b in maps] for a in maps]


def is_far_cycle(partner, apart, start, slack):
    """Whether ``partner`` goes from ``start`` once through all, each followed by one that is as far as any of those left."""
    here, left = start, [i for i in range(len(partner)) if i != start]
    while left:
        there = partner[here]
        if there not in left or apart[here][there] < max(apart[here][i] for i in left) - slack:
            return False
        left.remove(there)
        here = there
    return partner[here] == start


def attentive_mix(x, partner, lam, saliency, generator, per_pair=False, cells=7, beta=None):
    size = tuple(x.shape[2:])
    grid = [min(cells, side) for side in size]
    count, rows = math.prod(grid), len(x) if per_pair else 1
    order = torch.rand(rows, count, generator=generator).argsort(dim=1).tolist()
    up = (torch.rand(rows, generator=generator) < 0.5).tolist()
    borders = [[side * c // n for c in range(n + 1)] for side, n in zip(size, grid, strict=True)]
    result = x.clone()
    for i, j in enumerate(partner):
        row = i if per_pair else 0
        members, mean = [], []
        for cell in places(tuple(grid)):
            inside = [
                here
                for here in places(size)
                if all(edges[c] <= h < edges[c + 1] for h, c, edges in zip(here, cell, borders, strict=True))
            ]
            members.append(inside)
            mean.append(sum(float(saliency[(j, *here)]) for here in inside) / len(inside))
        wanted = math.ceil(lam * count) if up[row] else math.floor(lam * count)
        ranked = sorted(range(count), key=lambda c: (-mean[c], order[row].index(c)))
        for cell in ranked[:wanted]:
            for here in members[cell]:
                result[(i, slice(None), *here)] = x[(j, slice(None), *here)]
    return result
