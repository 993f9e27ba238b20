"""Co-Mixup in plain loops, as slow as it is simple; every output is solved over all labels of all blocks at once.

Draws are made in the documented order: grid, starting labels, paths, weights of pairs, weights of single inputs.
"""

import itertools
import math

import numpy as np
import torch

import multimix as mm


def co_mixup(x, saliency, generator, *, k=1, solve=None, **options):
    """``[K·B, C, H, W]`` and ``weights [K, B, B]`` (rows as solved, before they are put into an order)."""
    blocks, part, alpha = options.pop("blocks", (4,)), options.pop("part", 20), options.pop("alpha", 2.0)
    batch, height, width = len(x), x.shape[2], x.shape[3]
    drawn = blocks[int(torch.randint(len(blocks), (), generator=generator))]
    rows, columns = (drawn, drawn) if isinstance(drawn, int) else drawn
    rows, columns = min(rows, height), min(columns, width)
    uniform = torch.rand(batch, rows, columns, dtype=torch.float64, generator=generator)
    lows = list(range(0, batch, part))
    sizes = [min(part, batch - low) for low in lows]
    lam = mm.random.sample_path(k, alpha, rows=max(1, sum(m // 2 for m in sizes)), generator=generator).tolist()
    pair = log_gamma(sum(m // 2 for m in sizes), 2 * alpha, generator)
    single = log_gamma(len(sizes), alpha, generator)
    down, across = ([side * i // n for i in range(n + 1)] for side, n in ((height, rows), (width, columns)))
    mixed = torch.zeros(k, *x.shape, dtype=torch.float64)
    weights = torch.zeros(k, batch, batch, dtype=torch.float64)
    at = 0
    for p, (low, m) in enumerate(zip(lows, sizes, strict=True)):
        half = m // 2
        held = [block_shares(saliency[low + a].double(), down, across) for a in range(m)]
        affinity = compatible([saliency[low + a].double() for a in range(m)], options.get("omega", 0.001))
        begun = [[{int(float(u) * m): 1.0} for u in uniform[low + j].flatten()] for j in range(m)]
        for step in range(k):
            weight = [0.0] * m
            for a in range(half):
                share = lam[step][at + a]
                weight[a], weight[half + a] = pair[at + a] * (1 - share), pair[at + a] * share
            if m % 2:
                weight[-1] = single[p]
            prior = [w / sum(weight) for w in weight]
            sweeps = {name: value for name, value in options.items() if name != "omega"}
            shown = solved_part(held, prior, affinity, begun, rows, columns, solve=solve or cheapest, **sweeps)
            for j in range(m):
                for block, mixture in enumerate(shown[j]):
                    r, c = divmod(block, columns)
                    y, z = slice(down[r], down[r + 1]), slice(across[c], across[c + 1])
                    for a, w in mixture.items():
                        mixed[step, low + j, :, y, z] += w * x[low + a, :, y, z].double()
                        area = (y.stop - y.start) * (z.stop - z.start) / (height * width)
                        weights[step, low + j, low + a] += w * area
        at += half
    return mixed, weights


def in_order(mixed, weights, part=20):
    """Rows such that row i holds much of sample i: again and again the largest share left decides."""
    order = list(range(len(weights[0])))
    total = weights.sum(0)
    for low in range(0, len(order), part):
        rows, inputs = (set(range(low, min(low + part, len(order)))) for _ in range(2))
        while rows:
            j, a = max(itertools.product(sorted(rows), sorted(inputs)), key=lambda ja: float(total[ja]))
            order[a] = j
            rows.remove(j)
            inputs.remove(a)
    return mixed[:, order], weights[:, order]


def log_gamma(count, shape, generator):
    gamma = torch._standard_gamma(torch.full((count,), shape + 1, dtype=torch.float64), generator=generator)
    uniform = torch.rand(count, dtype=torch.float64, generator=generator)
    return [float(g) * (1 - float(u)) ** (1 / shape) for g, u in zip(gamma, uniform, strict=True)]


def block_shares(plane, down, across):
    sums = [
        float(plane[top:bottom, left:right].sum())
        for top, bottom in itertools.pairwise(down)
        for left, right in itertools.pairwise(across)
    ]
    return [value / sum(sums) for value in sums]


def compatible(planes, omega, window=8):
    height, width = planes[0].shape
    tall, wide = min(window, height), min(window, width)
    peaks = []
    for plane in planes:
        places = itertools.product(range(height - tall + 1), range(width - wide + 1))
        peaks.append(max(places, key=lambda at: float(plane[at[0] : at[0] + tall, at[1] : at[1] + wide].sum())))
    apart = [[abs(a[0] - b[0]) + abs(a[1] - b[1]) for b in peaks] for a in peaks]
    total = sum(map(sum, apart))
    m = len(planes)
    return [[(1 - omega) * (a == b) + (omega * m * apart[a][b] / total if total else 0) for b in range(m)] for a in range(m)]


def solved_part(
    held,
    prior,
    affinity,
    shown,
    rows,
    columns,
    *,
    solve,
    beta=0.32,
    gamma=1.0,
    eta=0.05,
    tau=0.83,
    sweeps=4,
    descent=1,
    soft_labels=True,
    resolve=True,
    rule="hard",
    precedence="intended",
    borders="objective",
):
    """``shown[j][i]``, a mixture {input: weight} for every block i of every output j, after all sweeps."""
    m, blocks = len(held), rows * columns
    beta, gamma, eta, tau = beta / blocks, gamma / blocks, eta / blocks, tau * blocks
    base = [[-held[a][i] - eta * math.log(prior[a] + 1e-8) for i in range(blocks)] for a in range(m)]
    edges = [(i, i + 1) for i in range(blocks) if (i + 1) % columns] + [(i, i + columns) for i in range(blocks - columns)]
    shown = [list(output) for output in shown]
    apart = [[0.0] * m for _ in range(m)]

    def counts(output):
        return [sum(mixture.get(a, 0.0) for mixture in output) for a in range(m)]

    def own(j):
        value = sum(w * (base[a][i] + gamma * apart[j][a]) for i, mixture in enumerate(shown[j]) for a, w in mixture.items())
        return value + sum(beta * distance(shown[j][i], shown[j][n]) for i, n in edges)

    def pushed(others):
        reach = [sum(affinity[a][b] * others[b] for b in range(m)) for a in range(m)]
        over = [value > tau for value in reach]
        if rule == "soft":
            return [(reach[a] - tau) * over[a] for a in range(m)]
        if precedence == "intended":
            return [reach[a] * over[a] for a in range(m)]
        return [sum(affinity[a][b] * over[b] * others[b] for b in range(m)) for a in range(m)]

    def others_of(j):
        return [sum(column) for column in zip(*(counts(shown[o]) for o in range(m) if o != j), strict=True)] if m > 1 else [0.0]

    def worked_on():
        together = sum(c * q for j in range(m) for c, q in zip(counts(shown[j]), pushed(others_of(j)), strict=True))
        return sum(own(j) for j in range(m)) + gamma * together

    def reported():
        total = [counts(output) for output in shown]
        overlap = sum(sum(column) ** 2 for column in zip(*total, strict=True)) - sum(c**2 for row in total for c in row)
        return sum(own(j) for j in range(m)) + gamma * overlap

    def anew(j, soft):
        push = pushed(others_of(j))
        labels = [{a: 1.0} for a in range(m)]
        costs = [[base[a][i] + 2 * gamma * push[a] + gamma * apart[j][a] for i in range(blocks)] for a in range(m)]
        if soft:
            count = counts(shown[j])
            used = sorted(sorted((a for a in range(m) if count[a] > 0), key=lambda a: -count[a])[:3])
            for a, b in itertools.combinations(used, 2):
                labels.append({a: 0.5, b: 0.5})
                costs.append([(costs[a][i] + costs[b][i]) / 2 - 5e-4 for i in range(blocks)])
        near = [[beta * border(one, two, borders) for two in labels] for one in labels]
        return [labels[found] for found in solve(np.array(costs).T, np.array(near), rows, columns)]

    before, last = reported(), False
    for sweep in range(sweeps):
        for j in range(m):
            shown[j] = anew(j, soft_labels and sweep > 0)
        now = reported()
        still, before = abs(now - before) < 1e-6 * abs(now), now
        if last:
            break
        if resolve and sweep < sweeps - 1 and (still or sweep == sweeps - 2):
            for j, other in itertools.combinations(range(m), 2):
                used = [{a for a in range(m) if counts(shown[o])[a] > 0} for o in (j, other)]
                if used[0] == used[1] and len(used[0]) > 1:
                    apart[j][sorted(used[0])[0]] = apart[other][sorted(used[0])[1]] = 1.0
                    last = True
        if still and not last:
            break
    for _ in range(descent):
        changed = False
        for j in range(m):
            value, kept = worked_on(), shown[j]
            shown[j] = anew(j, soft_labels)
            if worked_on() < value - 1e-12:
                changed = True
            else:
                shown[j] = kept
        if not changed:
            break
    return shown


def distance(one, two):
    """½ ‖o − o'‖²."""
    return 0.5 * sum((one.get(a, 0.0) - two.get(a, 0.0)) ** 2 for a in {*one, *two})


def border(one, two, borders):
    if borders == "objective" or one == two:
        return distance(one, two)
    return 0.25 if len(one) != len(two) and {*one} & {*two} else 1.0


def cheapest(cost, near, rows, columns):
    """Labels of least cost: a table over the labels of the last ``columns`` blocks, no label left out."""
    labels = cost.shape[1]
    table = np.zeros([1] * columns)
    steps = []
    for r, c in itertools.product(range(rows), range(columns)):
        above = np.moveaxis(table, c, -1)[..., :, None] + (near if r else np.zeros((1, labels)))
        steps.append((above.argmin(-2), c))
        table = np.moveaxis(above.min(-2) + cost[r * columns + c], -1, c)
        if c:
            shape = [1] * columns
            shape[c - 1 : c + 1] = labels, labels
            table = table + near.reshape(shape)
    front = list(np.unravel_index(table.argmin(), table.shape))
    found = []
    for best, c in reversed(steps):
        found.append(int(front[c]))
        rest = [front[a] for a in range(columns) if a != c]
        front[c] = best[(*rest, front[c])]
    return found[::-1]


def every_labelling(cost, near, rows, columns):
    """Labels of least cost among all there are."""
    edges = [(i, i + 1) for i in range(len(cost)) if (i + 1) % columns] + [(i, i + columns) for i in range(len(cost) - columns)]

    def energy(trial):
        return sum(cost[i, a] for i, a in enumerate(trial)) + sum(near[trial[i], trial[j]] for i, j in edges)

    return min(itertools.product(range(cost.shape[1]), repeat=len(cost)), key=energy)


def base(x, saliency, generator, **options):
    """``[B, C, H, W]``: the single-interpolation form, rows in order; ``start`` makes no difference to it."""
    mixed, weights = co_mixup(x, saliency, generator, **options)
    return in_order(mixed, weights, options.get("part", 20))[0][0].to(x.dtype)
