"""Which point of one cloud goes with which of another, compiled: an auction with falling ε, then shortest augmenting paths.

Clouds come as ``first, second [pairs, 3, N]``, scaled so that no two points of a pair are further apart than 1; distances are
computed when they are needed, so nothing of size N × N is kept. Rows ``start … stop`` of ``order [pairs, N]`` are filled.

In the auction every point i that has no mate yet takes the j where d(i, j) + price_j is least, whoever had it, and raises its
price until j is worse for i than the second best by ε. A phase ends when all have mates: then everybody is within ε of his
best choice, so the sum of distances is within N·ε of the least. Each phase starts with the prices of the one before.

The exact rule goes on from the last prices. Points whose best choice is free take it; for each of the others the cheapest chain
of exchanges that ends at a free place is found (Dijkstra), and prices rise such that every point keeps having its best choice.
Since the auction's prices are nearly right, chains are short.
"""

from typing import Any

import numpy as np

from ...compiled import kernel

Array = np.ndarray[Any, Any]


@kernel
def match(first: Array, second: Array, phases: Array, exact: bool, price: Array, order: Array, start: int, stop: int) -> None:
    """Fill ``order``: point i of the first cloud goes with point ``order[i]`` of the second; ``phases`` holds the falling ε.

    ``price [pairs, N]`` comes in as zeros and is left as the prices that certify the result.
    """
    n = first.shape[2]
    for pair in range(start, stop):
        owner = np.empty(n, np.int64)
        for eps in phases:
            auction(first[pair], second[pair], eps, price[pair], owner)
        if exact:
            augment(first[pair], second[pair], price[pair], owner)
        for j in range(n):
            order[pair, owner[j]] = j


@kernel
def fill_distances(first: Array, second: Array, i: int, distance: Array) -> None:
    """``distance [N]`` becomes the distances from point i of the first cloud to all of the second."""
    x, y, z = first[0, i], first[1, i], first[2, i]
    for j in range(len(distance)):
        right, up, far = second[0, j] - x, second[1, j] - y, second[2, j] - z
        distance[j] = np.sqrt(right * right + up * up + far * far)


@kernel
def auction(first: Array, second: Array, eps: float, price: Array, owner: Array) -> None:
    """One phase: ``owner [N]`` becomes who has each point of the second cloud; ``price`` goes on from where it was."""
    n = len(price)
    distance, waiting = np.empty(n), np.arange(n)[::-1].copy()
    owner[:] = -1
    count = n
    while count > 0:
        count -= 1
        i = waiting[count]
        fill_distances(first, second, i, distance)
        best, runner_up, chosen = np.inf, np.inf, -1
        for j in range(n):
            cost = distance[j] + price[j]
            if cost < runner_up:
                if cost < best:
                    best, runner_up, chosen = cost, best, j
                else:
                    runner_up = cost
        price[chosen] += eps + (runner_up - best if n > 1 else 0.0)
        if owner[chosen] >= 0:
            waiting[count] = owner[chosen]
            count += 1
        owner[chosen] = i


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
