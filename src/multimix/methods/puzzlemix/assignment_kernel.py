"""Which block is shown at each place, compiled: the optimal assignment and the published rule.

Both change rows of ``source [masks, blocks]``, the identity at first. Mask m moves blocks of row
m mod B of ``saliency [B, blocks]``. ``down [rows]`` and ``right [columns]`` hold the cost of a
move by 0, 1, 2 … blocks along each axis, ε included.

The optimal assignment is found by shortest augmenting paths. Every visible place starts with its
own block. Blocks of hidden places enter one by one, each along the cheapest chain of moves, at
whose end a block leaves; leaving a block out costs nothing. Three dual variables per visible place,
``price`` of the place, ``rise`` of the block shown there (its dual plus its saliency s) and
``leave`` = s − rise, satisfy for all blocks i shown somewhere and all visible places j

    move(i, j) − rise_i + price_j ≥ 0, equal where i is shown at j;    leave_i ≥ leaving,

and s_i − move(i, j) ≤ price_j + leaving for every block i left out: the conditions for an optimum.
Prices and ``leaving`` only grow, so a block that cannot enter at one time never can.

The first prices, ``floor``, are the least s_r + (cost of single steps from j to r) over visible r.
A jump costs at least as much as its single steps, so they satisfy the conditions. They are nearly
exact: few blocks try to enter, and those search few places.
"""

from typing import Any

import numpy as np

from ...core.compiled import inner, kernel

Array = np.ndarray[Any, Any]


@kernel
def exact(
    visible: Array,
    saliency: Array,
    down: Array,
    right: Array,
    floor: Array,
    duals: Array,
    source: Array,
    label: Array,
    tree: Array,
    start: int,
    stop: int,
) -> None:
    """Minimize Σ over visible j of move(source_j, j) − s[source_j], for masks ``start … stop − 1``.

    ``floor [masks, blocks]`` are the first prices, ``duals [masks, 3, blocks]`` price, rise and
    leave. ``label [blocks]`` is memory for the cost of the cheapest chain to a place, infinite at
    first. ``tree [2, blocks]`` is memory for the place before it and the places reached, first
    those settled, then those open.
    """
    blocks = visible.shape[1]
    parent, order = tree[0], tree[1]
    for mask in range(start, stop):
        s, block = saliency[mask % len(saliency)], source[mask]
        price, rise, leave = duals[mask, 0], duals[mask, 1], duals[mask, 2]
        leaving = 0.0
        for hidden in range(blocks):
            if visible[mask, hidden] or s[hidden] <= floor[mask, hidden] + leaving:
                continue
            limit, j, settled, reached = cheapest_chain(
                hidden, s[hidden], leaving, down, right, floor[mask], block,
                price, rise, leave, label, parent, order,
            )  # fmt: skip
            for k in range(settled):
                gap = max(limit - label[order[k]], 0.0)
                price[order[k]] += gap
                rise[order[k]] += gap
                leave[order[k]] -= gap
            for k in range(reached):
                label[order[k]] = np.inf
            if j < 0:
                continue
            while parent[j] >= 0:
                before = parent[j]
                block[j], rise[j], leave[j] = block[before], rise[before], leave[before]
                j = before
            block[j], rise[j], leave[j] = hidden, limit, s[hidden] - limit
            low = np.inf
            for k in range(blocks):
                low = min(low, leave[k])
                if low <= leaving:
                    break
            leaving = max(low, leaving)


@inner
def cheapest_chain(
    hidden: int,
    s: float,
    leaving: float,
    down: Array,
    right: Array,
    floor: Array,
    block: Array,
    price: Array,
    rise: Array,
    leave: Array,
    label: Array,
    parent: Array,
    order: Array,
) -> tuple[float, int, int, int]:
    """Find the cheapest chain of moves from ``hidden`` by Dijkstra's algorithm.

    The first chain is to stay hidden. Costs are in excess of ``leaving``, so nothing beyond the
    cheapest chain is settled. Returns its cost, its last place or −1, the number of places settled
    and the number of places reached.
    """
    rows, columns = len(down), len(right)
    limit, last, settled, reached = s - leaving, -1, 0, 0
    # Block i, at this place, is reached at this cost; the offset is the cost less its rise.
    place, i, cost, offset = -1, hidden, 0.0, 0.0
    while True:
        # A place r rows and c columns from i has at least the price floor_i less r and c single
        # steps: that bounds the window.
        row, column, high, wide = i // columns, i % columns, 1, 1
        start = offset + floor[i]
        while high < rows - 1 and start + down[high + 1] - (high + 1) * down[1] < limit:
            high += 1
        while wide < columns - 1 and start + right[wide + 1] - (wide + 1) * right[1] < limit:
            wide += 1
        for y in range(max(row - high, 0), min(row + high + 1, rows)):
            for x in range(max(column - wide, 0), min(column + wide + 1, columns)):
                j = y * columns + x
                onward = offset + down[abs(y - row)] + right[abs(x - column)] + price[j]
                # Settled places have labels up to cost. If rounding reached them again, the tree
                # would close to a ring.
                if onward < limit and onward < label[j] and cost < label[j]:
                    if label[j] == np.inf:
                        order[reached] = j
                        reached += 1
                    label[j] = max(onward, cost)
                    parent[j] = place
                    if label[j] + leave[j] - leaving < limit:
                        limit, last = label[j] + leave[j] - leaving, j
        best = settled
        for k in range(settled + 1, reached):
            if label[order[k]] < label[order[best]]:
                best = k
        if settled == reached or label[order[best]] >= limit:
            return limit, last, settled, reached
        place = order[best]
        order[best], order[settled] = order[settled], place
        settled += 1
        i, cost, offset = block[place], label[place], label[place] - rise[place]


@kernel
def reference(
    visible: Array,
    saliency: Array,
    down: Array,
    right: Array,
    source: Array,
    start: int,
    stop: int,
) -> None:
    """Apply the published rule: max(rows, columns) rounds of bids at cost move(i, j) − s_i < 0.

    A loser adds 1 to its cost at that place, which is then no longer negative: it bids for the next
    cheapest place. A winner repeats its bid. So only losers need a new bid, and a place keeps its
    winner until a cheaper bid arrives.
    """
    blocks = visible.shape[1]
    cost, bid = np.empty(blocks), np.empty(blocks, np.int64)
    holder, waiting = np.empty(blocks, np.int64), np.empty(blocks, np.int64)
    for mask in range(start, stop):
        shown, s = visible[mask], saliency[mask % len(saliency)]
        for i in range(blocks):
            cost[i], bid[i], holder[i], waiting[i] = -np.inf, -1, -1, i
        count = blocks
        for _ in range(max(len(down), len(right))):
            losers = 0
            for k in range(count):
                i = waiting[k]
                cost[i], bid[i] = next_bid(i, cost[i], bid[i], shown, s[i], down, right)
                if bid[i] < 0:
                    continue
                rival = holder[bid[i]]
                if rival < 0 or cost[i] < cost[rival] or (cost[i] == cost[rival] and i < rival):
                    holder[bid[i]] = i
                    i = rival
                if i >= 0:
                    waiting[losers] = i
                    losers += 1
            count = losers
        for j in range(blocks):
            if holder[j] >= 0:
                source[mask, j] = holder[j]


@inner
def next_bid(
    i: int, cost: float, bid: int, shown: Array, s: float, down: Array, right: Array
) -> tuple[float, int]:
    """Cost and place of the cheapest negative bid of block i after ``cost, bid``, or 0 and −1."""
    rows, columns = len(down), len(right)
    row, column = i // columns, i % columns
    best, where = 0.0, -1
    for y in range(rows):
        if down[abs(y - row)] >= s:
            continue
        for x in range(columns):
            j = y * columns + x
            value = down[abs(y - row)] + right[abs(x - column)] - s
            if shown[j] and value < best and (value > cost or (value == cost and j > bid)):
                best, where = value, j
    return best, where
