"""Puzzle mix of one λ, slowly: loops over pairs, blocks and places, a flow by scipy on chains of labels, scipy's assignment."""

import math

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

WHOLE = 1 << 20
NEVER = 1 << 29


def edges(side, count):
    return [side * i // count for i in range(count + 1)]


def puzzle_mix(
    x,
    partner,
    lam,
    saliency,
    generator,
    *,
    blocks=(2, 4, 8, 16),
    labels=3,
    beta=1.2,
    gamma=0.5,
    eta=0.2,
    neighborhood=4,
    transport="exact",
    transport_eps=0.8,
    transport_size=None,
    std=1.0,
    per_pair=False,
    moves=None,
):
    """``moves`` are the block moves of a plan, used instead of scipy's if they are as good: several may be the best."""
    drawn = blocks[int(torch.randint(len(blocks), (), generator=generator))]
    rows, columns = (drawn, drawn) if isinstance(drawn, int) else drawn
    height, width = x.shape[2:]
    grid = min(rows, height), min(columns, width)
    result = torch.empty_like(x)
    for i, j in enumerate(partner):
        options = {"beta": beta, "gamma": gamma, "neighborhood": neighborhood, "std": std}
        own_cost, pair_cost, weights = energy(x[i], x[j], saliency[i], saliency[j], grid, **options)
        levels = smallest_mask(own_cost, pair_cost, weights, grid, labels, lam, eta)
        cells = grid
        if transport_size is not None:
            cells = tuple(n * max(1, side // n // transport_size) for n, side in zip(grid, (height, width), strict=True))
        shown = {}
        for image, share, first in ((i, labels - 1 - levels, True), (j, levels, False)):
            source = {cell: cell for cell in np.ndindex(*cells)}
            if transport == "exact":
                given = None if moves is None else moves[0 if first else 1]
                source = moved(saliency[image], share, cells, transport_eps, None if given is None else given[0, i].tolist())
            shown[image, first] = source
        for y in range(height):
            for c in range(width):
                block = block_at(y, height, grid[0]), block_at(c, width, grid[1])
                m = levels[block] / (labels - 1)
                a = x[(i, slice(None), *place(shown[i, True], y, c, (height, width), cells))]
                b = x[(j, slice(None), *place(shown[j, False], y, c, (height, width), cells))]
                result[i, :, y, c] = (1 - m) * a + m * b
    return result


def block_at(place_, side, count):
    return max(k for k in range(count) if edges(side, count)[k] <= place_)


def held(saliency, grid):
    """What each block holds of the map, as a share of the whole."""
    down, across = edges(saliency.shape[0], grid[0]), edges(saliency.shape[1], grid[1])
    total = float(saliency.double().sum())
    share = np.zeros(grid)
    for r, c in np.ndindex(*grid):
        share[r, c] = float(saliency[down[r] : down[r + 1], across[c] : across[c + 1]].double().sum()) / total
    return share


def colours(image, cells):
    """Mean colour of every cell ``[C, rows, columns]``."""
    down, across = edges(image.shape[1], cells[0]), edges(image.shape[2], cells[1])
    mean = np.zeros((len(image), *cells))
    for r, c in np.ndindex(*cells):
        mean[:, r, c] = image[:, down[r] : down[r + 1], across[c] : across[c + 1]].double().mean((1, 2)).numpy()
    return mean


def energy(own, pair, own_map, pair_map, grid, *, beta, gamma, neighborhood, std):
    """Cost of showing the sample, cost of showing the partner, and the weight of every pair of neighbouring blocks."""
    height, width = own.shape[1:]
    per_block = max(1, height // grid[0] // neighborhood), max(1, width // grid[1] // neighborhood)
    cells = grid[0] * per_block[0], grid[1] * per_block[1]
    images = {"own": colours(own, cells) * std, "pair": colours(pair, cells) * std}
    b = beta / (16 * math.sqrt(grid[0] * grid[1]))
    costs = {"own": held(pair_map, grid), "pair": held(own_map, grid)}
    weights = {}
    for r, c in np.ndindex(*grid):
        for below, beside in ((1, 0), (0, 1)):
            first, second = (r, c), (r + below, c + beside)
            if second[0] >= grid[0] or second[1] >= grid[1]:
                continue

            def difference(one, other, first=first, below=below):
                if below:
                    y, cells_ = (first[0] + 1) * per_block[0], range(first[1] * per_block[1], (first[1] + 1) * per_block[1])
                    found = [np.abs(images[one][:, y - 1, c] - images[other][:, y, c]).mean() for c in cells_]
                else:
                    x, cells_ = (first[1] + 1) * per_block[1], range(first[0] * per_block[0], (first[0] + 1) * per_block[0])
                    found = [np.abs(images[one][:, c, x - 1] - images[other][:, c, x]).mean() for c in cells_]
                return b * gamma * float(np.mean(found))

            d = {(one, other): difference(one, other) for one in images for other in images}
            weights[first, second] = b + (d["own", "pair"] + d["pair", "own"] - d["own", "own"] - d["pair", "pair"]) / 2
            for shown, hidden in (("own", "pair"), ("pair", "own")):
                costs[shown][first] += (d[shown, hidden] + d[shown, shown]) / 2
                costs[shown][second] += (d[hidden, shown] + d[shown, shown]) / 2
    return costs["own"], costs["pair"], weights


def smallest_mask(own_cost, pair_cost, weights, grid, labels, lam, eta, power=2):
    """Levels of the smallest optimal mask: a cut through one chain of labels per block."""
    d, count = labels - 1, grid[0] * grid[1]
    number = {block: i for i, block in enumerate(np.ndindex(*grid))}
    source, sink = count * d, count * d + 1
    capacity = {}

    def join(a, b, room):
        capacity[a, b] = capacity.get((a, b), 0) + room

    for block, i in number.items():
        costs = []
        for level in range(labels):
            t = level / d
            prior = math.comb(d, level) * lam**level * (1 - lam) ** (d - level)
            costs.append((1 - t) * own_cost[block] + t * pair_cost[block] - eta / count * math.log(prior))
        chain = [source, *(i * d + p for p in range(d)), sink]
        for level in range(labels):
            join(chain[level], chain[level + 1], round((costs[level] - min(costs)) * WHOLE) + 1)
            join(chain[level + 1], chain[level], NEVER)
    for (first, second), weight in weights.items():
        for a, b in ((number[first], number[second]), (number[second], number[first])):
            for p in range(d):
                for q in range(p + 1):
                    gap = p - q
                    bend = (gap + 1) ** power - 2 * gap**power + abs(gap - 1) ** power if gap else 1
                    join(a * d + p, b * d + q, round(weight * WHOLE / d**power) * bend)
    for (a, b), _ in list(capacity.items()):
        capacity.setdefault((b, a), 0)
    index = np.array(list(capacity))
    graph = csr_array((np.array(list(capacity.values()), np.int32), (index[:, 0], index[:, 1])), shape=(sink + 1, sink + 1))
    left = graph - maximum_flow(graph, source, sink).flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    seen = set(breadth_first_order(left, source, return_predecessors=False).tolist())
    return np.array([sum(i * d + p in seen for p in range(d)) for i in range(count)]).reshape(grid)


def moved(saliency, share, cells, eps, given=None):
    """Where each cell of an image comes from, if it shows in a block with ``share`` above 0."""
    salient = held(saliency, cells)
    fine = [share.shape[0], share.shape[1]]
    targets = [cell for cell in np.ndindex(*cells) if share[cell[0] * fine[0] // cells[0], cell[1] * fine[1] // cells[1]] > 0]
    sources = list(np.ndindex(*cells))
    cost = np.zeros((len(targets), len(sources)))
    for t, target in enumerate(targets):
        for s, source in enumerate(sources):
            apart = sum(((a - b) / max(n - 1, 1)) ** 2 for a, b, n in zip(target, source, cells, strict=True))
            cost[t, s] = eps * apart - salient[source]
    found = {cell: cell for cell in sources}
    best = linear_sum_assignment(cost)
    for t, s in zip(*best, strict=True):
        found[targets[t]] = sources[s]
    if given is None:
        return found
    used = [given[target[0] * cells[1] + target[1]] for target in targets]
    assert len(set(used)) == len(used)
    assert sum(cost[t, s] for t, s in enumerate(used)) <= cost[best].sum() + 1e-6
    return {cell: divmod(given[cell[0] * cells[1] + cell[1]], cells[1]) for cell in sources}


def place(source, y, c, size, cells):
    """The place whose value is shown at (y, c): the same corner distance in the source cell, at most its last place."""
    index = []
    cell = block_at(y, size[0], cells[0]), block_at(c, size[1], cells[1])
    for axis, at in enumerate((y, c)):
        border = edges(size[axis], cells[axis])
        there = source[cell][axis]
        index.append(min(border[there] + at - border[cell[axis]], border[there + 1] - 1))
    return index
