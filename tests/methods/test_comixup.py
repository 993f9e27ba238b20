"""Co-Mixup's solver: one output against all labellings, whole parts against plain loops, objectives, the peer."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import comixup_numpy
import comixup_oracle as oracle
from multimix.geometry.grid import block_saliency
from multimix.methods.comixup import kernel
from multimix.methods.comixup.method import CoMixup, Groups, compatibility, neighbors, salient_places
from oracles import seeded

RULES = ["beta", "gamma", "eta", "tau", "sweeps", "soft_labels", "resolve", "rule", "precedence", "borders", "descent"]
OPTIONS = [
    {},
    {"rule": "soft"},
    {"precedence": "reference", "borders": "reference"},
    {"soft_labels": False, "resolve": False, "descent": 0},
    {"sweeps": 1, "descent": 2, "gamma": 0.0},
    {"beta": 0.0, "eta": 1.0, "tau": 0.3},
]


def some_maps(batch, size, seed, power=3.0):
    """Blobs, the more pronounced the larger ``power``."""
    coarse = torch.rand(batch, 1, 6, 6, generator=seeded(seed)) ** power
    fine = torch.nn.functional.interpolate(coarse, size=size, mode="bilinear").squeeze(1)
    return fine * torch.rand(batch, *size, generator=seeded(seed + 10)) + 1e-3


def some_groups(batch, grid, seed, *, part=20, k=1, power=3.0, size=(16, 24)):
    maps, edges = some_maps(batch, size, seed, power), (*range(0, batch, part), batch)
    prior = torch.rand(k, batch, dtype=torch.float64, generator=seeded(seed + 1)) + 0.05
    for low, high in itertools.pairwise(edges):
        prior[:, low:high] /= prior[:, low:high].sum(1, keepdim=True)
    count = torch.tensor(edges).diff()
    start = torch.rand(batch, *grid, generator=seeded(seed + 2)) * count.repeat_interleave(count)[:, None, None]
    return Groups(block_saliency(maps, grid), prior, compatibility(maps, edges, omega=0.05), start.long(), edges)


def oracle_weights(groups, rules, solve=oracle.cheapest):
    """``[K, B, N, B]`` by plain loops."""
    k, batch, (rows, columns) = len(groups.prior), len(groups.saliency), groups.saliency.shape[1:]
    found = torch.zeros(k, batch, rows * columns, batch, dtype=torch.float64)
    options = {name: getattr(rules, name) for name in RULES}
    for p, (low, high) in enumerate(itertools.pairwise(groups.edges)):
        m = high - low
        drawn = [[{int(a): 1.0} for a in groups.start[low + j].flatten()] for j in range(m)]
        for step in range(k):
            held = groups.saliency[low:high].flatten(1).tolist()
            prior, affinity = groups.prior[step, low:high].tolist(), groups.affinity[p, :m, :m].tolist()
            shown = oracle.solved_part(held, prior, affinity, drawn, rows, columns, solve=solve, **options)
            for j, i in itertools.product(range(m), range(rows * columns)):
                for a, w in shown[j][i].items():
                    found[step, low + j, i, low + a] += w
    return found


def weights_of(shown, batch):
    first, second = (torch.nn.functional.one_hot(part.flatten(2), batch).double() for part in shown[:2])
    return 0.5 * (first + second)


def random_board(rng, most=3):
    rows, columns, m = (int(n) for n in rng.integers(1, (4, 4, most + 1)))
    parents = [(0, 1)] if m == 2 else list(itertools.combinations(range(3), 2)) if m > 2 else []
    cost = rng.integers(0, 60, (rows * columns, m))
    halves = [((cost[:, a] + cost[:, b]) // 2 - 2)[:, None] for a, b in parents]
    near = comixup_numpy._borders(m, parents, bool(rng.integers(2))) * 4
    return np.concatenate([cost, *halves], 1), near, rows, columns


def energy(cost, near, beside, label):
    joined = [(i, j) for i in range(len(cost)) for j in beside[i, [0, 2]] if j >= 0]
    return sum(cost[i, a] for i, a in enumerate(label)) + sum(near[label[i], label[j]] for i, j in joined)


def test_one_output_against_all_labellings():
    rng = np.random.default_rng(0)
    tried = 0
    for _ in range(150):
        cost, near, rows, columns = random_board(rng)
        beside = neighbors(rows, columns)
        found, exact = comixup_numpy.solve_board(cost, near, beside, np.zeros(len(cost), np.int64))
        assert exact == 1
        if cost.shape[1] ** len(cost) > 5000:
            best = oracle.cheapest(cost, near, rows, columns)
        else:
            best = oracle.every_labelling(cost, near, rows, columns)
            tried += 1
        assert energy(cost, near, beside, found) == energy(cost, near, beside, best)
    assert tried > 30


def test_moves_leave_no_better_move():
    """Costs so even that tables get too large: no choice between two labels may improve what moves have found."""
    rng = np.random.default_rng(1)
    beside, labels = neighbors(4, 4), 9
    gaps = []
    for _ in range(5):
        cost = rng.integers(0, 12, (16, labels))
        near = comixup_numpy._borders(labels, [], True) * 3
        found, exact = comixup_numpy.solve_board(cost, near, beside, np.zeros(16, np.int64))
        assert exact == 0
        value = energy(cost, near, beside, found)
        for a, b in itertools.combinations(range(labels), 2):
            own = np.full_like(cost, 10**6)
            own[np.arange(16), found] = cost[np.arange(16), found]
            free = np.isin(found, (a, b))
            own[free, a], own[free, b] = cost[free, a], cost[free, b]
            assert energy(cost, near, beside, oracle.cheapest(own, near, 4, 4)) >= value
        gaps.append(value / energy(cost, near, beside, oracle.cheapest(cost, near, 4, 4)) - 1)
    assert min(gaps) >= 0
    assert np.mean(gaps) < 0.05


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("batch", "part", "grid"), [(7, 3, (3, 3)), (5, 20, (2, 2)), (1, 4, (3, 2)), (4, 4, (1, 6))], ids=str)
def test_parts_against_plain_loops(options, batch, part, grid):
    rules = CoMixup(**options)
    for seed in range(2):
        groups = some_groups(batch, grid, seed, part=part, k=3)
        shown = rules.solve(groups)
        torch.testing.assert_close(weights_of(shown, batch), oracle_weights(groups, rules), atol=1e-12, rtol=0)


def test_brute_force_on_a_tiny_part():
    groups, rules = some_groups(3, (2, 2), 5), CoMixup()
    torch.testing.assert_close(
        weights_of(rules.solve(groups), 3), oracle_weights(groups, rules, oracle.every_labelling), atol=1e-12, rtol=0
    )


def solve_slowly(part, board, weights):
    """In place of the compiled kernel."""
    shown = np.stack([part.first, part.second])
    slow = comixup_numpy._Part(part.base.T, part.affinity, shown, part.beside, weights._asdict())
    slow.solve()
    part.first[:], part.second[:] = shown


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("grid", [(4, 4), (2, 8), (6, 3)], ids=str)
def test_numpy_agrees(options, grid, monkeypatch):
    rules = CoMixup(threads=1, **options)
    for power in (0.5, 6.0):  # with moves, and without
        groups = some_groups(13, grid, 2, part=9, k=2, power=power)
        ours = rules.solve(groups)
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "solve_part", solve_slowly)
            slow = rules.solve(groups)
        assert torch.equal(ours[0], slow[0])
        assert torch.equal(ours[1], slow[1])


def test_a_step_is_the_step_alone():
    groups = some_groups(9, (4, 4), 3, k=3)
    whole = CoMixup().solve(groups)
    for k in range(3):
        alone = CoMixup().solve(groups._replace(prior=groups.prior[k : k + 1]))
        assert torch.equal(whole[0][k], alone[0][0])
        assert torch.equal(whole[1][k], alone[1][0])


def unmixed_rows():
    """``[K, parts]``: how many rows of a part show one sample only, at each of five steps along a path of priors."""
    maps = some_maps(1600, (16, 24), 0)
    plan = CoMixup(k=5).plan(torch.zeros(1600, 1, 16, 24), saliency=maps, generator=seeded(1))
    first, second = plan.first.flatten(2), plan.second.flatten(2)
    single = (first == first[..., :1]).all(2) & (second == first[..., :1]).all(2)
    return single.double().reshape(5, -1, 20).sum(2)


def test_the_first_and_the_last_step_have_one_law():
    """Fails by chance in 1 of 1,000."""
    rows = unmixed_rows()
    assert stats.ttest_rel(rows[0], rows[4]).pvalue > 1e-3
    assert stats.ttest_rel(rows[0], rows[2]).pvalue > 1e-3


def test_parts_do_not_see_each_other_nor_threads():
    groups = some_groups(12, (4, 4), 4, part=5)
    whole = CoMixup(threads=1).solve(groups)
    split = CoMixup(threads=3).solve(groups)
    assert torch.equal(whole[0], split[0])
    changed = groups._replace(saliency=torch.cat([groups.saliency[:5], groups.saliency[5:].flip(0)]))
    other = CoMixup().solve(changed)
    assert torch.equal(other[0][:, :5], whole[0][:, :5])
    assert not torch.equal(other[0][:, 5:], whole[0][:, 5:])


def test_inputs_in_another_order_give_the_same_outputs():
    """Without ties to break by index: no half-half labels, which are three of many, and nobody asked to differ."""
    groups, rules = some_groups(8, (4, 4), 6, power=6.0), CoMixup(soft_labels=False, resolve=False)
    order = torch.randperm(8, generator=seeded(1))
    back = order.argsort()
    turned = groups._replace(
        saliency=groups.saliency[order],
        prior=groups.prior[:, order],
        affinity=groups.affinity[:, order][:, :, order],
        start=back[groups.start],
    )
    assert torch.equal(order[rules.solve(turned)[0]], rules.solve(groups)[0])


def test_descent_never_raises_the_objective():
    peer = load_peer()
    for seed in range(6):
        groups = some_groups(10, (4, 4), seed)
        values = []
        for descent in range(4):
            rules = CoMixup(descent=descent, resolve=False)
            shown = rules.solve(groups)
            values.append(peer.scores(groups, rules, peer.input_weights(groups, shown[0][0], shown[1][0])).worked_on)
        assert (np.diff(values) <= 1e-9).all()


def test_outputs_of_the_same_inputs_are_asked_to_differ():
    def alike(resolve):
        count = 0
        for seed in range(30):
            groups = some_groups(4, (3, 3), seed, power=6.0)
            shown = CoMixup(resolve=resolve, tau=1e3, descent=0).solve(groups)
            sets = [frozenset(weights_of(shown, 4)[0, j].sum(0).nonzero().flatten().tolist()) for j in range(4)]
            count += sum(one == two and len(one) > 1 for one, two in itertools.combinations(sets, 2))
        return count

    assert alike(True) < alike(False)


def test_soft_labels_are_halves_of_two():
    groups = some_groups(20, (4, 4), 0)
    soft = weights_of(CoMixup().solve(groups), 20)
    assert set(soft.unique().tolist()) == {0.0, 0.5, 1.0}
    assert (soft.sum(3) == 1).all()
    assert set(weights_of(CoMixup(soft_labels=False).solve(groups), 20).unique().tolist()) == {0.0, 1.0}
    assert set(weights_of(CoMixup(sweeps=1, descent=0).solve(groups), 20).unique().tolist()) == {0.0, 1.0}


def test_compatibility():
    maps = some_maps(7, (9, 13), 0)
    found = compatibility(maps, (0, 4, 7), omega=0.2)
    for p, (low, high) in enumerate(((0, 4), (4, 7))):
        expected = torch.tensor(oracle.compatible(list(maps[low:high].double()), 0.2), dtype=torch.float64)
        torch.testing.assert_close(found[p, : high - low, : high - low], expected)
    assert (found[1, 3] == 0).all()
    same = compatibility(maps[:1].expand(3, 9, 13), (0, 3), omega=0.2)
    torch.testing.assert_close(same[0], 0.8 * torch.eye(3, dtype=torch.float64))


def test_the_most_salient_window_is_the_first_of_the_largest():
    """Windows of any length at every stride; equal ones, whose first counts, and a map that is smaller than the window."""
    maps = (5 * torch.rand(40, 11, 14, generator=seeded(0))).floor() / 3
    maps[:3] = 0.1
    for window, stride in ((1, 1), (2, 1), (3, 2), (5, 3), (7, 1), (8, 8), (20, 1)):
        tall, wide = min(window, 11), min(window, 14)
        found = salient_places(maps, window=window, stride=stride)
        for plane, place in zip(maps.double(), found.tolist(), strict=True):
            sums = {
                (r, c): float(plane[stride * r : stride * r + tall, stride * c : stride * c + wide].mul(3).round().sum())
                for r in range((11 - tall) // stride + 1)
                for c in range((14 - wide) // stride + 1)
            }
            assert sums[place[0], place[1]] == max(sums.values())
        assert found[:3].tolist() == [[0, 0]] * 3


def test_large_weights_do_not_overflow():
    groups = some_groups(6, (4, 4), 0)
    shown = CoMixup(gamma=1e12).solve(groups)
    assert (weights_of(shown, 6).sum(3) == 1).all()


def test_not_above_the_published_loop():
    pytest.importorskip("gco", reason="the published loop needs gco-wrapper: pip install --no-deps gco-wrapper==3.0.9")
    peer, rules = load_peer(), CoMixup()
    gaps = []
    for seed in range(8):
        groups = some_groups(20, (4, 4), seed, size=(32, 32))
        shown = rules.solve(groups)
        ours = peer.scores(groups, rules, peer.input_weights(groups, shown[0][0], shown[1][0]))
        public = peer.scores(groups, rules, peer.public_outputs(groups, rules))
        gaps.append([a - b for a, b in zip(ours, public, strict=True)])
    worked_on, reported = np.array(gaps).T
    assert worked_on.mean() < 0
    # The other one says nothing about thresholds and compatibility, so it may be above here and there.
    assert reported.mean() <= 2 * reported.std() / len(gaps) ** 0.5


def load_peer():
    """``benchmarks/comixup_peer.py``, which has the objectives written out in torch."""
    path = Path(__file__).parents[2] / "benchmarks/comixup_peer.py"
    spec = importlib.util.spec_from_file_location("comixup_peer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_whole_numbers_and_others_share_one_kernel():
    groups = some_groups(4, (3, 3), 0)
    CoMixup().solve(groups)
    kinds = len(kernel.solve_part.signatures)
    rules = CoMixup(beta=1, gamma=1, tau=1, eta=0, rule="soft")
    rules.solve(groups._replace(prior=groups.prior.float()))
    assert len(kernel.solve_part.signatures) == kinds
