"""Which point of one cloud goes with which of another, compiled: an auction, then augmenting paths.

Clouds are ``first, second [pairs, 3, N]``, scaled so that no two points of a pair are farther apart
than 1. Distances are computed when they are needed, so nothing of size N × N is stored, only a
sixteenth of it.

In the auction every point i without a mate takes the j with the least d(i, j) + price_j, whoever
had it, and raises the price until j is worse for i than the second best by ε. A phase ends when all
have mates: then every point is within ε of its best choice, so the sum of distances is within N·ε
of the least. Each phase starts with the prices of the one before. Places are stored in leaves of
points near each other. A leaf is skipped if its distance and its least price together exceed the
cost of two known places.

The exact rule continues from the last prices. Points whose best choice is free take it. For each of
the others Dijkstra's algorithm finds the cheapest chain of exchanges that ends at a free place, and
prices rise such that every point keeps its best choice. The auction's prices are nearly right, so
chains are short.
"""

from typing import Any

import numpy as np

from ...core.compiled import inner, kernel

Array = np.ndarray[Any, Any]
LEAF = 16
"""Points whose distances are computed at once, a power of 2."""


@kernel
def match(
    first: Array,
    second: Array,
    place: Array,
    tiles: Array,
    boxes: Array,
    phases: Array,
    exact: bool,
    price: Array,
    order: Array,
    start: int,
    stop: int,
) -> None:
    """Fill ``order [pairs, N]``: point i of the first cloud goes with ``order[i]`` of the second.

    Args:
        first: ``[pairs, 3, N]``.
        second: ``[pairs, 3, N]``.
        place: ``[pairs, N]``, the points of the second cloud leaf by leaf.
        tiles: ``[pairs, leaves, 4, LEAF]``, their coordinates and prices.
        boxes: ``[pairs, 2, 3, leaves]``, the least and greatest coordinates of each leaf.
        phases: The falling ε of the auction.
        exact: Whether augmenting paths follow the auction.
        price: ``[pairs, N]``, the prices that certify the result.
        order: The result.
        start: First pair.
        stop: Behind the last pair.
    """
    n, count = first.shape[2], tiles.shape[1]
    apart, least = np.empty((n, count)), np.empty(count)
    known, owner = np.empty((n, 2), np.int64), np.empty(n, np.int64)
    for pair in range(start, stop):
        fill_apart(first[pair], boxes[pair], apart, known)
        for leaf in range(count):
            least[leaf] = 0.0
        for eps in phases:
            auction(first[pair], tiles[pair], apart, eps, least, known, owner)
        for k in range(n):
            price[pair, place[pair, k]] = tiles[pair, k // LEAF, 3, k % LEAF]
            order[pair, owner[k]] = place[pair, k]
        if exact:
            augment(first[pair], second[pair], price[pair], owner)
            for j in range(n):
                order[pair, owner[j]] = j


@inner
def fill_apart(first: Array, boxes: Array, apart: Array, known: Array) -> None:
    """Fill ``apart [N, leaves]``, bounds of distances, and ``known``, two places nearby."""
    for i in range(len(apart)):
        nearest = 0
        for leaf in range(apart.shape[1]):
            squares = 0.0
            for d in range(3):
                low, high = boxes[0, d, leaf] - first[d, i], first[d, i] - boxes[1, d, leaf]
                gap = max(low, high, 0.0)
                squares += gap * gap
            apart[i, leaf] = np.sqrt(squares)
            if apart[i, leaf] < apart[i, nearest]:
                nearest = leaf
        known[i, 0], known[i, 1] = nearest * LEAF, nearest * LEAF + 1


@inner
def auction(
    first: Array, tiles: Array, apart: Array, eps: float, least: Array, known: Array, owner: Array
) -> None:
    """Run one phase: ``owner [N]`` becomes the point that has each place.

    The prices in ``tiles``, their minima ``least [leaves]``, and ``known [N, 2]``, two places that
    were best for each point, continue from the phase before.
    """
    n, count = len(owner), len(tiles)
    waiting, seen = np.empty(n, np.int64), np.empty(count + 1, np.int64)
    # At each place of the leaves seen the least cost, the second least, and the leaf of the least.
    lanes = np.empty((3, LEAF))
    bits = lanes.view(np.int64)
    for k in range(n):
        owner[k], waiting[k] = -1, n - 1 - k
    left = n
    while left > 0:
        left -= 1
        i = waiting[left]
        # Prices only rise, so the second best costs no more than the dearer of the two.
        limit = max(offer(first, tiles, i, known[i, 0]), offer(first, tiles, i, known[i, 1]))
        near = 0
        for leaf in range(count):
            seen[near] = leaf
            near += apart[i, leaf] + least[leaf] <= limit
        x, y, z = first[0, i], first[1, i], first[2, i]
        for k in range(LEAF):
            lanes[0, k], lanes[1, k], lanes[2, k] = np.inf, np.inf, 0.0
        for leaf in seen[:near]:
            number = float(leaf)
            for k in range(LEAF):  # vectorized, without branches; slower in a function
                a, b, c = tiles[leaf, 0, k] - x, tiles[leaf, 1, k] - y, tiles[leaf, 2, k] - z
                cost = np.sqrt(a * a + b * b + c * c) + tiles[leaf, 3, k]
                best, second, where = lanes[0, k], lanes[1, k], lanes[2, k]
                loser = best if cost < best else cost
                # + 0.0 keeps the compiler from masked stores, which are slow on some processors.
                lanes[0, k] = (cost if cost < best else best) + 0.0
                lanes[1, k] = (loser if loser < second else second) + 0.0
                lanes[2, k] = (number if cost < best else where) + 0.0
        lane, other = two_least(bits[0])
        known[i, 0] = int(lanes[2, lane]) * LEAF + lane
        known[i, 1] = int(lanes[2, other]) * LEAF + other
        more = min(lanes[0, other], lanes[1, lane]) - lanes[0, lane] if n > 1 else 0.0
        chosen = known[i, 0]
        raise_price(chosen, eps + more, tiles, least)
        if owner[chosen] >= 0:
            waiting[left] = owner[chosen]
            left += 1
        owner[chosen] = i


@inner
def offer(first: Array, tiles: Array, i: int, j: int) -> Any:
    """The cost of place j for point i, price included."""
    leaf, k = j // LEAF, j % LEAF
    a, b = tiles[leaf, 0, k] - first[0, i], tiles[leaf, 1, k] - first[1, i]
    c = tiles[leaf, 2, k] - first[2, i]
    return np.sqrt(a * a + b * b + c * c) + tiles[leaf, 3, k]


@inner
def two_least(bits: Array) -> tuple[int, int]:
    """Where the least two of ``LEAF`` numbers are, given as bits.

    Bits have the order of numbers that are not negative. The last ones are replaced by the place:
    differences beyond 14 digits do not count.
    """
    least = second = np.int64(0x7FFFFFFFFFFFFFFF)
    for k in range(LEAF):
        key = (bits[k] & ~(LEAF - 1)) | k
        second = min(second, max(least, key))
        least = min(least, key)
    return least & (LEAF - 1), second & (LEAF - 1)


@inner
def raise_price(chosen: int, more: float, tiles: Array, least: Array) -> None:
    """Raise the price of a place by ``more``."""
    leaf, k = chosen // LEAF, chosen % LEAF
    was_least = tiles[leaf, 3, k] <= least[leaf]
    tiles[leaf, 3, k] += more
    if was_least:
        lowest = np.inf
        for k in range(LEAF):
            lowest = min(lowest, tiles[leaf, 3, k])
        least[leaf] = lowest


@inner
def fill_distances(first: Array, second: Array, i: int, distance: Array) -> None:
    """The distances from point i of the first cloud to all of the second."""
    x, y, z = first[0, i], first[1, i], first[2, i]
    for j in range(len(distance)):
        right, up, far = second[0, j] - x, second[1, j] - y, second[2, j] - z
        distance[j] = np.sqrt(right * right + up * up + far * far)


@inner
def augment(first: Array, second: Array, price: Array, owner: Array) -> None:
    """``owner`` becomes an assignment of least total distance."""
    n = len(price)
    distance, label = np.empty(n), np.empty(n)
    mate, waiting = np.empty(n, np.int64), np.empty(n, np.int64)
    parent, places = np.empty(n, np.int64), np.empty(n, np.int64)
    for j in range(n):
        owner[j], mate[j] = -1, -1
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
    for new in waiting[:count]:
        # The cheapest chain of exchanges: the cost to reach each place, the point before it, and
        # the places, first those still open, then those settled.
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
