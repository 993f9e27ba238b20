"""Co-Mixup's compiled sweeps again, in NumPy: a hundred times slower.

The same labels where an output is solved exactly. Moves between two labels are solved by elimination, too, since a minimum cut in
plain Python would take longer; on grids wider than 16 blocks a move whose table would get too large is left out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Left = list[Ints]

MOST_STATES = 2048  # as in the compiled kernel
MOST_MOVE_STATES = 1 << 18


class _Part:
    """m inputs and m outputs; ``shown [2, m, N]`` is worked on in place."""

    def __init__(self, base: Floats, affinity: Floats, shown: Ints, beside: Ints, weights: Mapping[str, Any]) -> None:
        self.base, self.affinity, self.shown, self.beside, self.weights = base, affinity, shown, beside, weights
        self.whole = np.rint(base * weights["scale"]).astype(np.int64)
        self.apart = np.zeros((len(base), len(base)))
        self.joined = [(i, int(j)) for i, row in enumerate(beside) for j in row[[0, 2]] if j >= 0]

    @property
    def count(self) -> Floats:
        """``[m, m]``: how often output j shows input k."""
        eye = np.eye(len(self.base))
        found: Floats = 0.5 * (eye[self.shown[0]] + eye[self.shown[1]]).sum(1)
        return found

    def solve(self) -> None:
        w = self.weights
        before, last = self.objective(), False
        for sweep in range(w["sweeps"]):
            self.sweep(soft=w["soft_labels"] and sweep > 0)
            now = self.objective()
            still = abs(now - before) < w["tolerance"] * abs(now)
            before = now
            if last:
                break
            if w["resolve"] and sweep < w["sweeps"] - 1 and (still or sweep == w["sweeps"] - 2):
                last = self.keep_apart()
            if still and not last:
                break
        for _ in range(w["descent"]):
            if not self.sweep(soft=w["soft_labels"], descent=True):
                break

    def sweep(self, *, soft: bool, descent: bool = False) -> bool:
        changed = False
        for j in range(len(self.base)):
            kept = self.shown[:, j].copy()
            before = self.output_cost(j) + self.pushed_together() if descent else 0.0
            labels, parents = self.solve_output(j, soft)
            m = len(self.base)
            of_label = np.array([(k, k) for k in range(m)] + parents)
            self.shown[:, j] = of_label[labels].T
            if descent:
                better = self.output_cost(j) + self.pushed_together() < before
                changed |= better
                if not better:
                    self.shown[:, j] = kept
        return changed

    def solve_output(self, j: int, soft: bool) -> tuple[Ints, list[tuple[int, int]]]:
        """The label of every block of output j, and the pairs that labels from m on stand for."""
        w, m, count = self.weights, len(self.base), self.count
        others = count.sum(0) - count[j]
        reach = (self.affinity * others).sum(1)
        over = reach > w["tau"]
        if w["rule"] == 1:
            pushed = (self.affinity * (over * others)).sum(1)
        else:
            pushed = over * (reach - w["tau"] if w["rule"] == 2 else reach)
        push = np.rint((2 * w["gamma"] * pushed + w["gamma"] * self.apart[j]) * w["scale"]).astype(np.int64)
        cost = (self.whole + push[:, None]).T
        parents: list[tuple[int, int]] = []
        if soft:
            used = min(3, int((count[j] > 0).sum()))
            top = sorted(np.argsort(-count[j], kind="stable")[:used].tolist())
            parents = [(a, b) for at, a in enumerate(top) for b in top[at + 1 :]]
        bonus = int(np.rint(w["bonus"] * w["scale"]))
        halves = [((cost[:, a] + cost[:, b]) // 2 - bonus)[:, None] for a, b in parents]
        near = _borders(m, parents, w["own_borders"]) * int(np.rint(w["beta"] * w["scale"] / 4))
        label = self.shown[0, j].copy()
        for e, (a, b) in enumerate(parents):
            label[(self.shown[0, j] == a) & (self.shown[1, j] == b)] = m + e
        found, _ = solve_board(np.concatenate([cost, *halves], 1), near, self.beside, label)
        return found, parents

    def pushed_together(self) -> float:
        w, count = self.weights, self.count
        reach = count @ self.affinity.T
        others = reach.sum(0) - reach
        over = others > w["tau"]
        if w["rule"] == 1:
            return float(w["gamma"] * (reach * over * (count.sum(0) - count)).sum())
        return float(w["gamma"] * (count * over * (others - w["tau"] if w["rule"] == 2 else others)).sum())

    def output_cost(self, j: int) -> float:
        w, eye = self.weights, np.eye(len(self.base))
        o = 0.5 * (eye[self.shown[0, j]] + eye[self.shown[1, j]])
        border = sum(((o[i] - o[n]) ** 2).sum() for i, n in self.joined)
        return float((o * (self.base.T + w["gamma"] * self.apart[j])).sum() + 0.5 * w["beta"] * border)

    def objective(self) -> float:
        count = self.count
        overlap = (count.sum(0) ** 2).sum() - (count**2).sum()
        return sum(self.output_cost(j) for j in range(len(self.base))) + float(self.weights["gamma"] * overlap)

    def keep_apart(self) -> bool:
        used = self.count > 0
        for j in range(len(used)):
            for other in range(j + 1, len(used)):
                if used[j].sum() > 1 and (used[j] == used[other]).all():
                    inputs = np.flatnonzero(used[j])
                    self.apart[j, inputs[0]] = self.apart[other, inputs[1]] = 1
        return bool(self.apart.any())


def _borders(m: int, parents: list[tuple[int, int]], own: bool) -> Ints:
    """``[labels, labels]``: quarters of β."""
    o = np.concatenate([np.eye(m), *[0.5 * (np.eye(m)[a] + np.eye(m)[b])[None] for a, b in parents]])
    near = np.rint(2 * ((o[:, None] - o[None]) ** 2).sum(2)).astype(np.int64)
    return (
        near if own else np.where((near == 1) & ((np.arange(len(o)) < m)[:, None] | (np.arange(len(o)) < m)), 1, 4 * (near > 0))
    )


def solve_board(cost: Ints, near: Ints, beside: Ints, label: Ints) -> tuple[Ints, int]:
    """The labels that cost least, and whether that is certain (1) or moves between two labels were needed (0)."""
    cost, label, exact = cost.copy(), label.copy(), 1
    left = _settled(cost, near, beside)
    for i, options in enumerate(left):
        if len(options) == 1:
            label[i] = options[0]
    for island in _islands(left, beside):
        found = _eliminated(island, cost, near, beside, left, MOST_STATES)
        if found is None:
            exact = 0
            _move(island, cost, near, beside, left, label)
        else:
            label[island] = found
    return label, exact


def _settled(cost: Ints, near: Ints, beside: Ints) -> Left:
    """The labels that every block may have; ``cost`` then includes borders with settled blocks."""
    joined = (beside >= 0).sum(1)
    bound = cost.min(1) + joined * near[0].max()
    left = [np.flatnonzero(cost[i] <= bound[i]) for i in range(len(cost))]
    folded = np.zeros(len(cost), bool)
    changed = True
    while changed:
        changed = False
        for i, options in enumerate(left):
            if folded[i]:
                continue
            around = [j for j in beside[i] if j >= 0 and not folded[j]]
            if len(options) > 1:
                best = options[cost[i, options].argmin()]
                lead = cost[i, options] - cost[i, best]
                for j in around:
                    lead = lead + (near[options][:, left[j]] - near[best, left[j]]).min(1)
                left[i] = options[(lead <= 0) | (options == best)]
                changed |= len(left[i]) < len(options)
            if len(left[i]) == 1:
                folded[i] = changed = True
                for j in around:
                    cost[j, left[j]] += near[left[i][0], left[j]]
    return left


def _islands(left: Left, beside: Ints) -> list[list[int]]:
    seen: set[int] = set()
    found = []
    for i, options in enumerate(left):
        if len(options) == 1 or i in seen:
            continue
        island = [i]
        seen.add(i)
        for j in island:
            new = [int(n) for n in beside[j] if n >= 0 and len(left[n]) > 1 and int(n) not in seen]
            seen.update(new)
            island.extend(new)
        found.append(sorted(island))
    return found


def _eliminated(cells: list[int], cost: Ints, near: Ints, beside: Ints, left: Left, most: int) -> list[int] | None:
    """The best labels of ``cells``, given that nothing else matters; None if a table would get too large."""
    inside = set(cells)
    table: Ints = np.zeros((), np.int64)
    front: list[int] = []
    gone: list[tuple[int, list[int], NDArray[np.intp]]] = []
    for i in cells:
        if table.size * len(left[i]) > most:
            return None
        table = table[..., None] + cost[i, left[i]]
        front.append(i)
        for j in beside[i, [1, 3]].tolist():
            if j in inside:
                shape = [1] * len(front)
                shape[front.index(j)], shape[-1] = len(left[j]), len(left[i])
                table = table + near[left[j]][:, left[i]].reshape(shape)
        for j in [f for f in front if not any(n in inside and n > i for n in beside[f].tolist())]:
            axis = front.index(j)
            front.remove(j)
            gone.append((j, front.copy(), table.argmin(axis)))
            table = table.min(axis)
    picked: dict[int, int] = {}
    for j, others, best in reversed(gone):
        picked[j] = int(best[tuple(picked[other] for other in others)])
    return [int(left[j][picked[j]]) for j in cells]


def _move(island: list[int], cost: Ints, near: Ints, beside: Ints, left: Left, label: Ints) -> None:
    """Labels of an island that no move between two labels makes cheaper, in place."""
    pairs = [(i, int(j)) for i in island for j in beside[i, [0, 2]] if j >= 0 and len(left[j]) > 1]

    def energy(trial: Ints) -> int:
        return int(cost[island, trial[island]].sum() + sum(near[trial[i], trial[j]] for i, j in pairs))

    starts = [label.copy(), label.copy()]
    starts[1][island] = [left[i][cost[i, left[i]].argmin()] for i in island]
    starts[0][island] = [label[i] if label[i] in left[i] else starts[1][i] for i in island]
    everywhere = [a for a in left[island[0]] if all(a in left[i] for i in island)]
    if everywhere:
        starts.append(label.copy())
        starts[2][island] = min(everywhere, key=lambda a: int(cost[island, a].sum()))
    label[island] = min(starts, key=energy)[island]
    known = sorted({int(a) for i in island for a in left[i]})
    improved = True
    while improved:
        improved = False
        for at, first in enumerate(known):
            for second in known[at + 1 :]:
                inside = [i for i in island if label[i] in (first, second) and first in left[i] and second in left[i]]
                if not inside:
                    continue
                own = cost.copy()
                for i in inside:
                    for j in beside[i].tolist():
                        if j >= 0 and len(left[j]) > 1 and j not in inside:
                            own[i] += near[label[j]]
                two = [np.array([first, second]) for _ in left]
                found = _eliminated(inside, own, near, beside, two, MOST_MOVE_STATES)
                trial = label.copy()
                if found is not None:
                    trial[inside] = found
                if energy(trial) < energy(label):
                    label[:] = trial
                    improved = True
