"""Which block is shown at each visible place, compiled: the cheapest assignment, and the published bidding rule.

Both fill rows ``start … stop`` of ``source [masks, blocks]``, which comes in as the identity. ``visible [masks, blocks]`` says
which places show; mask m moves blocks of row m mod B of ``saliency [B, blocks]``. ``down [rows]`` and ``right [columns]`` hold
what a move by 0, 1, 2 … blocks along each axis costs, ε included.

The cheapest assignment is found by shortest augmenting paths. Every visible place starts with its own block. Blocks of hidden
places enter one by one, each along the cheapest chain of moves, at whose end some block leaves; to be left out costs nothing.
Three dual variables per visible place, ``price`` of the place, ``rise`` of the block shown there (its dual plus its saliency s)
and ``leave`` = s − rise, are kept such that for all blocks i shown somewhere and all visible places j

    move(i, j) − rise_i + price_j ≥ 0, equal where i is shown at j;    leave_i ≥ leaving,

and s_i − move(i, j) ≤ price_j + leaving for every block i left out: the conditions for an optimum. Prices and ``leaving`` only
grow, so a block that cannot enter at one time never can.

The first prices, ``floor``, are the least s_r + (cost of single steps from j to r) over visible r. A jump costs at least what
its single steps cost, so they satisfy the conditions, and sweeps over the grid give them. They are nearly exact at once: few
blocks try to enter, and those search few places.
"""

from typing import Any

import numpy as np

from ...compiled import kernel

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, Array, Array]


@kernel
def exact(visible: Array, saliency: Array, down: Array, right: Array, source: Array, start: int, stop: int) -> None:
    """Fill ``source`` with the assignment that minimises the sum over visible j of move(source_j, j) − s[source_j]."""
    blocks = visible.shape[1]
    floor = np.empty(blocks)
    duals = (np.empty(blocks), np.empty(blocks), np.empty(blocks))
    tree = (np.full(blocks, np.inf), np.empty(blocks, np.int64), np.empty(blocks, np.int64))
    price, rise, leave = duals
    for mask in range(start, stop):
        shown, s, block = visible[mask], saliency[mask % len(saliency)], source[mask]
        fill_floor(floor, shown, s, down, right)
        for j in range(blocks):
            price[j] = floor[j] if shown[j] else np.inf
            rise[j] = floor[j]
            leave[j] = s[j] - floor[j] if shown[j] else np.inf
        leaving = 0.0
        for hidden in range(blocks):
            if shown[hidden] or s[hidden] <= floor[hidden] + leaving:
                continue
            if enter(hidden, s[hidden], leaving, down, right, floor, block, duals, tree):
                leaving = lowest(leave, leaving)


@kernel
def fill_floor(floor: Array, shown: Array, s: Array, down: Array, right: Array) -> None:
    """``floor`` becomes the least s_r + (cost of single steps to r) over visible r, inf if there is none."""
    rows, columns = len(down), len(right)
    for j in range(rows * columns):
        floor[j] = s[j] if shown[j] else np.inf
    if columns > 1:
        for first in range(0, rows * columns, columns):
            for j in range(first + 1, first + columns):
                floor[j] = min(floor[j], floor[j - 1] + right[1])
            for j in range(first + columns - 2, first - 1, -1):
                floor[j] = min(floor[j], floor[j + 1] + right[1])
    if rows > 1:
        for j in range(columns, rows * columns):
            floor[j] = min(floor[j], floor[j - columns] + down[1])
        for j in range((rows - 1) * columns - 1, -1, -1):
            floor[j] = min(floor[j], floor[j + columns] + down[1])


@kernel
def lowest(leave: Array, bound: float) -> float:
    """The minimum of ``leave``, which is at least ``bound`` up to rounding."""
    low = np.inf
    for j in range(len(leave)):
        low = min(low, leave[j])
        if low <= bound:
            return bound
    return low


@kernel
def enter(
    hidden: int, s: float, leaving: float, down: Array, right: Array, floor: Array, block: Array, duals: Arrays, tree: Arrays
) -> bool:
    """Whether block ``hidden`` of saliency ``s`` gets a place; the cheapest chain of moves from it is carried out.

    ``tree`` is ``label`` (cost of the cheapest chain to a place, inf outside a search), ``parent`` (the place before it) and
    ``order``: the places reached, first those settled, then those open.
    """
    price, rise, leave = duals
    label, parent, order = tree
    limit, j, settled, reached = cheapest_chain(hidden, s, leaving, down, right, floor, block, duals, tree)
    for k in range(settled):
        gap = max(limit - label[order[k]], 0.0)
        price[order[k]] += gap
        rise[order[k]] += gap
        leave[order[k]] -= gap
    for k in range(reached):
        label[order[k]] = np.inf
    if j < 0:
        return False
    while parent[j] >= 0:
        before = parent[j]
        block[j], rise[j], leave[j] = block[before], rise[before], leave[before]
        j = before
    block[j], rise[j], leave[j] = hidden, limit, s - limit
    return True


@kernel
def cheapest_chain(
    hidden: int, s: float, leaving: float, down: Array, right: Array, floor: Array, block: Array, duals: Arrays, tree: Arrays
) -> tuple[float, int, int, int]:
    """Cost of the cheapest chain from ``hidden`` (Dijkstra), its last place or −1, how many places are settled, how many reached.

    The first chain is to stay hidden. Costs are in excess of ``leaving``, so nothing beyond the cheapest chain is settled.
    """
    price, rise, leave = duals
    label, parent, order = tree
    rows, columns = len(down), len(right)
    limit, last, settled, reached = s - leaving, -1, 0, 0
    place, i, cost, offset = -1, hidden, 0.0, 0.0  # block i, at this place, is reached at this cost; offset: less its rise
    while True:
        # A place r rows and c columns from i has at least the price floor_i less r and c single steps: that bounds the window.
        row, column, high, wide = i // columns, i % columns, 1, 1
        while high < rows - 1 and offset + floor[i] + down[high + 1] - (high + 1) * down[1] < limit:
            high += 1
        while wide < columns - 1 and offset + floor[i] + right[wide + 1] - (wide + 1) * right[1] < limit:
            wide += 1
        for y in range(max(row - high, 0), min(row + high + 1, rows)):
            for x in range(max(column - wide, 0), min(column + wide + 1, columns)):
                j = y * columns + x
                onward = offset + down[abs(y - row)] + right[abs(x - column)] + price[j]
                # Settled places have labels up to cost. Rounding must not reach them anew: the tree would close to a ring.
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
def reference(visible: Array, saliency: Array, down: Array, right: Array, source: Array, start: int, stop: int) -> None:
    """Fill ``source`` by the published rule: rounds of bids at cost move(i, j) − s_i < 0, as many as the longer side has blocks.

    A loser adds 1 to its cost at that place, which makes it no longer negative: it goes on to the next cheapest place. A winner
    repeats its bid. So only losers need a new bid, and a place can hold its winner until a cheaper bid arrives.
    """
    blocks = visible.shape[1]
    cost, bid = np.empty(blocks), np.empty(blocks, np.int64)
    holder, waiting = np.empty(blocks, np.int64), np.empty(blocks, np.int64)
    for mask in range(start, stop):
        shown, s = visible[mask], saliency[mask % len(saliency)]
        cost[:], bid[:], holder[:], waiting[:] = -np.inf, -1, -1, np.arange(blocks)
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


@kernel
def next_bid(i: int, cost: float, bid: int, shown: Array, s: float, down: Array, right: Array) -> tuple[float, int]:
    """Cost and place of the cheapest negative bid of block i after ``cost, bid``, ties by place; 0 and −1 if there is none."""
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
