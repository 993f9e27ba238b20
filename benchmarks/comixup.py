"""Co-Mixup: CPU time and objective beside the published loop (gco-wrapper, α-β swap from label 0), on the same instances.

    python benchmarks/comixup.py                        # synthetic saliency, about two minutes on one thread
    python benchmarks/comixup.py --data DIR             # CIFAR-100 and a network trained in real_saliency.py, too
    python benchmarks/comixup.py --real --grids 4       # only those, with DIR or $MULTIMIX_DATA, on one grid
    python benchmarks/comixup.py --quick                # a smoke run

The peer: ``pip install --no-deps gco-wrapper==3.0.9``, for this benchmark only (its licence is for research); without it ours is
timed alone. B = 100, parts of 20, 4 sweeps (ours: and one of descent), published weights, one thread. Medians of CPU time, and
median and quartiles of the ratio in single rounds; candidates run interleaved, each round with another batch, prior and start: 4
batches of made-up maps, 20 of real ones. Compiling is not counted. "worked on" is the objective of the sweeps, with A and τ;
"reported" the one the authors' code watches, without; both are means per part, lower is better, with standard errors over rounds.
"""

import argparse
import importlib.util
import math
import random
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import comixup_peer as peer
import real_saliency
import torch
from torch import Tensor

import multimix as mm
from multimix.geometry.grid import block_saliency
from multimix.methods.comixup.method import CoMixup, Groups, compatibility, tilted_priors

BATCH, PART = 100, 20
KEPT = 2000  # real images, so that each of 20 rounds has a batch of its own
FASTER = 10  # demanded at n = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with cifar-100-python in it; $MULTIMIX_DATA otherwise; synthetic only without")
    parser.add_argument("--cache", type=Path, help="the file that keeps real images and saliency")
    parser.add_argument("--steps", type=int, default=real_saliency.STEPS, help="of the network's training")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--grids", type=int, nargs="+", default=[2, 4, 8, 16], help="blocks a side")
    parser.add_argument("--real", action="store_true", help="leave the made-up maps out")
    parser.add_argument("--quick", action="store_true", help="3 rounds of everything")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds = 3 if options.quick else options.rounds
    there = importlib.util.find_spec("gco") is not None
    print(f"CPU time, one thread; torch {torch.__version__}, numba {version('numba')}")
    if not there:
        print("gco-wrapper is not installed: ours alone (pip install --no-deps gco-wrapper==3.0.9)")
    folder = real_saliency.data_folder(options.data)
    if options.real and folder is None:
        parser.error("no cifar-100-python/train in --data or $MULTIMIX_DATA")
    if not options.real:
        maps = [real_saliency.synthetic(seed).saliency for seed in range(4)]
        report("synthetic saliency, blob × log-normal", maps, options.grids, rounds, there)
        even = [torch.rand(BATCH, 32, 32, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
        report("saliency that tells little, uniform noise", even, options.grids, rounds, there)
    if folder is not None:
        kept = real_saliency.kept_saliency(folder, options.cache, 20 if options.quick else options.steps, KEPT)
        maps = list(kept.saliency.split(BATCH))
        report(f"CIFAR-100, saliency of a network after {kept.words}", maps, options.grids, rounds, there)


def report(title: str, maps: list[Tensor], grids: list[int], rounds: int, there: bool) -> None:
    print(f"\n{title}; {rounds} rounds over {len(maps)} batches\n")
    print("CPU ms per batch: the published loop, ours (solve), ours for K = 5, a whole plan and its mix at K = 1")
    print("   n   public     ours    ratio (quartiles)  demanded      K = 5     plan      mix")
    found = {n: figures(maps, n, rounds, there) for n in grids}
    for n, (times, _) in found.items():
        middle = {name: 1e3 * statistics.median(spent) for name, spent in times.items()}
        single = [public / ours for public, ours in zip(times.get("public", []), times["ours"], strict=False)]
        low, ratio, high = statistics.quantiles(single, n=4) if there else (math.nan,) * 3
        judged = f"≥ {FASTER}× {'met' if ratio >= FASTER else 'MISSED'}" if there and n == 4 else ""
        line = f"{n:4d} {middle.get('public', math.nan):8.1f} {middle['ours']:8.2f}"
        line = f"{line} {ratio:7.1f}× ({low:.1f} … {high:.1f})  {judged:12s}"
        print(f"{line} {middle['five']:7.1f} {middle['plan']:8.1f} {middle['mix']:8.1f}")
    if not there:
        return
    print("\nobjective, mean per part: public, ours, difference ± standard error (worked on | reported)")
    for n, (_, values) in found.items():
        words = []
        for name in peer.Scores._fields:
            public, ours = (torch.tensor([getattr(pair[side], name) for pair in values]) for side in (0, 1))
            gap = ours - public
            error = float(gap.std() / len(gap) ** 0.5)
            verdict = "not above" if float(gap.mean()) <= 0 else "ABOVE"
            words.append(
                f"{float(public.mean()):9.2f} {float(ours.mean()):9.2f} {float(gap.mean()):8.2f} ± {error:5.2f} {verdict}"
            )
        print(f"{n:4d} {' | '.join(words)}")


def figures(
    maps: list[Tensor], n: int, rounds: int, there: bool
) -> tuple[dict[str, list[float]], list[tuple[peer.Scores, peer.Scores]]]:
    """CPU seconds by name, and both scores of every round."""
    method = CoMixup(blocks=n, threads=1)
    x = torch.rand(BATCH, 3, 32, 32)
    times: dict[str, list[float]] = {}
    values = []
    for turn in range(-1, rounds):
        saliency = maps[turn % len(maps)]
        groups = instance(saliency, n, turn + 1)
        five = groups._replace(prior=tilted_priors(5, 2.0, groups.edges, sampler="iid", generator=seeded(turn + 1)))
        plan = method.plan(x, saliency=saliency, generator=seeded(turn + 1))
        calls: dict[str, Callable[[], object]] = {
            "ours": lambda groups=groups: method.solve(groups),
            "five": lambda five=five: method.solve(five),
            "plan": lambda saliency=saliency, turn=turn: method.plan(x, saliency=saliency, generator=seeded(turn + 1)),
            "mix": lambda plan=plan: plan.mix(x),
        }
        if there:
            calls["public"] = lambda groups=groups: peer.public_outputs(groups, method)
        results = {}
        for name in random.sample(list(calls), len(calls)):
            begun = time.process_time()
            results[name] = calls[name]()
            if turn >= 0:  # the first round warms up
                times.setdefault(name, []).append(time.process_time() - begun)
        shown = results["ours"]
        if there and turn >= 0:
            ours = peer.input_weights(groups, shown[0][0], shown[1][0])
            values.append((peer.scores(groups, method, results["public"]), peer.scores(groups, method, ours)))
    return times, values


def instance(saliency: Tensor, n: int, seed: int) -> Groups:
    """The batch on n × n blocks, with a prior and a start of its own."""
    edges = (*range(0, len(saliency), PART), len(saliency))
    return Groups(
        saliency=block_saliency(saliency, (n, n)),
        prior=tilted_priors(1, 2.0, edges, sampler="iid", generator=seeded(seed)),
        affinity=compatibility(saliency, edges, omega=0.001),
        start=torch.randint(PART, (len(saliency), n, n), generator=seeded(seed + 1000)),
        edges=edges,
    )


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


if __name__ == "__main__":
    mm.warmup()
    main()
