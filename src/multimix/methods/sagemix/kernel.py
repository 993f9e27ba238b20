"""Which point of one cloud goes with which of another, compiled: an auction with falling ε, then shortest augmenting paths.

Clouds come as ``first, second [pairs, 3, N]``, scaled so that no two points of a pair are further apart than 1; distances are
computed when they are needed, so nothing of size N × N is kept, only a sixteenth of
it. Rows ``start … stop`` of ``order [pairs, N]`` are filled.

In the auction every point i that has no mate yet takes the j where d(i, j) + price_j is least, whoever had it, and raises its
price until j is worse for i than the second best by ε. A phase ends when all have mates: then everybody is within ε of his
best choice, so the sum of distances is within N·ε of the least. Each phase starts with the prices of the one before. The places
are kept in leaves of points that are near each other: whoever is further from a leaf than two places that he knows cost, the
least price in the leaf included, need not look into it.

The exact rule goes on from the last prices. Points whose best choice is free take it; for each of the others the cheapest chain
of exchanges that ends at a free place is found (Dijkstra), and prices rise such that every point keeps having its best choice.
Since the auction's prices are nearly right, chains are short.
"""

from typing import Any

import numpy as np

from ...compiled import inner, kernel

Array = np.ndarray[Any, Any]
LEAF = 16  # points whose distances are computed at once, a power of 2


@kernel
def match(first: Array, second: Array, phases: Array, exact: bool, price: Array, order: Array, start: int, stop: int) -> None:
    """Fill ``order``: point i of the first cloud goes with point ``order[i]`` of the second; ``phases`` holds the falling ε.

    ``price [pairs, N]`` is left as the prices that certify the result.
    """
    n = first.shape[2]
    for pair in range(start, stop):
        place, owner = leaf_order(second[pair]), np.empty(n, np.int64)
        tiles, apart = leaves(first[pair], second[pair], place)
        least, known = np.zeros(len(tiles)), np.empty((n, 2), np.int64)
        for i in range(n):
            known[i, 0] = np.argmin(apart[i]) * LEAF
            known[i, 1] = known[i, 0] + 1
        for eps in phases:
            auction(first[pair], tiles, apart, eps, least, known, owner)
        for k in range(n):
            price[pair, place[k]] = tiles[k // LEAF, 3, k % LEAF]
            order[pair, owner[k]] = place[k]
        if exact:
            augment(first[pair], second[pair], price[pair], owner)
            for j in range(n):
                order[pair, owner[j]] = j


@kernel
def leaf_order(points: Array) -> Array:
    """``[N]``: the points in an order in which each ``LEAF`` in a row are near each other; halves along the longest side."""
    n = points.shape[1]
    order = np.arange(n)
    begins, ends = np.zeros(64, np.int64), np.zeros(64, np.int64)
    ends[0], count = n, 1
    while count > 0:
        count -= 1
        begin, end = begins[count], ends[count]
        if end - begin <= LEAF:
            continue
        part = order[begin:end].copy()
        axis, longest = 0, -1.0
        for d in range(3):
            low, high = np.inf, -np.inf
            for i in part:
                low, high = min(low, points[d, i]), max(high, points[d, i])
            if high - low > longest:
                axis, longest = d, high - low
        middle = begin + ((end - begin) // 2 + LEAF - 1) // LEAF * LEAF
        order[begin:end] = part[np.argpartition(points[axis][part], middle - begin)]
        begins[count], ends[count] = begin, middle
        begins[count + 1], ends[count + 1] = middle, end
        count += 2
    return order


@kernel
def leaves(first: Array, second: Array, place: Array) -> tuple[Array, Array]:
    """``tiles [leaves, 4, LEAF]``: the second cloud's coordinates and, at first, prices of 0, ∞ where a leaf has no more points;
    ``apart [N, leaves]``: no point of a leaf is nearer to point i of the first cloud.
    """
    n = len(place)
    count = (n + LEAF - 1) // LEAF
    tiles, apart = np.full((count, 4, LEAF), np.inf), np.zeros((n, count))
    low, high = np.full((3, count), np.inf), np.full((3, count), -np.inf)
    for d in range(3):
        for k in range(n):
            leaf, along = k // LEAF, second[d, place[k]]
            tiles[leaf, d, k % LEAF], tiles[leaf, 3, k % LEAF] = along, 0.0
            low[d, leaf], high[d, leaf] = min(low[d, leaf], along), max(high[d, leaf], along)
    for i in range(n):
        for d in range(3):
            here, least, most, squares = first[d, i], low[d], high[d], apart[i]
            for leaf in range(count):
                gap = max(least[leaf] - here, here - most[leaf], 0.0)
                squares[leaf] += gap * gap
    return tiles, np.sqrt(apart)


@kernel
def fill_distances(first: Array, second: Array, i: int, distance: Array) -> None:
    """``distance [N]`` becomes the distances from point i of the first cloud to all of the second."""
    x, y, z = first[0, i], first[1, i], first[2, i]
    for j in range(len(distance)):
        right, up, far = second[0, j] - x, second[1, j] - y, second[2, j] - z
        distance[j] = np.sqrt(right * right + up * up + far * far)


@kernel
def auction(first: Array, tiles: Array, apart: Array, eps: float, least: Array, known: Array, owner: Array) -> None:
    """One phase: ``owner [N]`` becomes who has each place; the prices in ``tiles``, of which ``least [leaves]`` are the least, go
    on from where they were, and so does ``known [N, 2]``, two places that were best for each point when it last looked.
    """
    n, count = len(owner), len(tiles)
    # Lanes: at each place of the leaves seen the least cost, the second least, and the leaf of the least.
    waiting, seen, lanes = np.arange(n)[::-1].copy(), np.empty(count + 1, np.int64), np.zeros((3, LEAF))
    owner[:] = -1
    left = n
    while left > 0:
        left -= 1
        i = waiting[left]
        # Whatever prices have done since, the second best costs no more than the dearer of the two.
        limit = max(offer(first, tiles, i, known[i, 0]), offer(first, tiles, i, known[i, 1]))
        found = 0
        for leaf in range(count):
            seen[found] = leaf
            found += apart[i, leaf] + least[leaf] <= limit
        x, y, z = first[0, i], first[1, i], first[2, i]
        lanes[:2] = np.inf
        for leaf in seen[:found]:
            number = float(leaf)
            for k in range(LEAF):  # all at once, without branches; in a function of its own it took half as long again
                a, b, c = tiles[leaf, 0, k] - x, tiles[leaf, 1, k] - y, tiles[leaf, 2, k] - z
                cost = np.sqrt(a * a + b * b + c * c) + tiles[leaf, 3, k]
                best, second, where = lanes[0, k], lanes[1, k], lanes[2, k]
                loser = best if cost < best else cost
                # + 0.0, or the compiler stores under masks, which takes some processors ten times as long as storing all.
                lanes[0, k] = (cost if cost < best else best) + 0.0
                lanes[1, k] = (loser if loser < second else second) + 0.0
                lanes[2, k] = (number if cost < best else where) + 0.0
        lane, other = two_least(lanes.view(np.int64)[0])
        known[i, 0], known[i, 1] = int(lanes[2, lane]) * LEAF + lane, int(lanes[2, other]) * LEAF + other
        more = min(lanes[0, other], lanes[1, lane]) - lanes[0, lane] if n > 1 else 0.0
        chosen = known[i, 0]
        bid(chosen, eps + more, tiles, least)
        if owner[chosen] >= 0:
            waiting[left] = owner[chosen]
            left += 1
        owner[chosen] = i


@inner
def offer(first: Array, tiles: Array, i: int, j: int) -> Any:
    """What place j costs point i, price included."""
    leaf, k = j // LEAF, j % LEAF
    a, b, c = tiles[leaf, 0, k] - first[0, i], tiles[leaf, 1, k] - first[1, i], tiles[leaf, 2, k] - first[2, i]
    return np.sqrt(a * a + b * b + c * c) + tiles[leaf, 3, k]


@inner
def two_least(bits: Array) -> tuple[int, int]:
    """Where the least two of ``LEAF`` numbers are, given as bits, which have the order of numbers that are not negative.

    The last bits give way to the place: beyond 14 digits no difference is seen.
    """
    least = second = np.int64(0x7FFFFFFFFFFFFFFF)
    for k in range(LEAF):
        key = (bits[k] & ~(LEAF - 1)) | k
        second = min(second, max(least, key))
        least = min(least, key)
    return least & (LEAF - 1), second & (LEAF - 1)


@inner
def bid(chosen: int, more: float, tiles: Array, least: Array) -> None:
    """Raise the price of a place by ``more``."""
    leaf, k = chosen // LEAF, chosen % LEAF
    was_least = tiles[leaf, 3, k] <= least[leaf]
    tiles[leaf, 3, k] += more
    if was_least:
        lowest = np.inf
        for k in range(LEAF):
            lowest = min(lowest, tiles[leaf, 3, k])
        least[leaf] = lowest


@kernel
def augment(first: Array, second: Array, price: Array, owner: Array) -> None:
    """``owner`` becomes an assignment of least total distance, whatever it was; the closer ``price`` is, the sooner."""
    n = len(price)
    distance, mate, waiting = np.empty(n), np.full(n, -1), np.empty(n, np.int64)
    tree = (np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64))
    owner[:] = -1
    count = 0
    for i in range(n):
        fill_distances(first, second, i, distance)
        chosen = 0
        for j in range(1, n):
            if distance[j] + price[j] < distance[chosen] + price[chosen]:
                chosen = j
        if owner[chosen] < 0:
            owner[chosen], mate[i] = i, chosen
        else:
            waiting[count] = i
            count += 1
    for k in range(count):
        enter(waiting[k], first, second, price, owner, mate, distance, tree)


@kernel
def enter(
    new: int, first: Array, second: Array, price: Array, owner: Array, mate: Array, distance: Array, tree: tuple[Array, ...]
) -> None:
    """Point ``new`` gets a mate along the cheapest chain of exchanges.

    ``tree`` is ``label`` (cost of the cheapest chain to a place), ``parent`` (the point before it) and ``places``: first those
    still open, then those settled.
    """
    label, parent, places = tree
    n = len(price)
    for j in range(n):
        label[j], places[j] = np.inf, j
    i, cost, offset, left = new, 0.0, 0.0, n
    while True:
        fill_distances(first, second, i, distance)
        if i != new:
            offset = cost - distance[mate[i]] - price[mate[i]]
        best = 0
        for k in range(left):
            j = places[k]
            onward = distance[j] + price[j] + offset
            if onward < label[j]:
                label[j], parent[j] = onward, i
            if label[j] < label[places[best]]:
                best = k
        j = places[best]
        cost = max(label[j], cost)  # rounding must not let costs fall along a chain
        label[j] = cost
        left -= 1
        places[best], places[left] = places[left], j
        if owner[j] < 0:
            break
        i = owner[j]
    for k in range(left + 1, n):
        price[places[k]] += cost - label[places[k]]
    while j >= 0:
        i = parent[j]
        owner[j] = i
        mate[i], j = j, mate[i]
