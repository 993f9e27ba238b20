"""Puzzle-mix masks, transport and whole mixing: CPU time and quality beside the published flow (gco-wrapper, dense transport).

    python benchmarks/masks.py                          # synthetic images and saliency, about two minutes on one thread
    python benchmarks/masks.py --data DIR               # real ones too: CIFAR-100 and a network trained in real_saliency.py
    python benchmarks/masks.py --quick                  # a smoke run

The peer: ``pip install --no-deps gco-wrapper==3.0.9``, for this benchmark only (its licence is for research). It can abort the
process, so every table with it is made in a child process, ours and gco's calls in turn; without it ours is timed alone.

B = 100, 3 labels, beta 1.2, gamma 0.5, eta 0.2, neighborhood 4, transport eps 0.8, one thread, λ ~ Beta(1, 1). Tables show
medians of CPU time; all candidates of a table run interleaved in one process, in a new random order every round, each round
with another batch and λ. Compiling is not counted. Torch tensors go in and quantising is counted, for gco as well. "worst" is
gco's quickest round over our slowest tenth.
"""

import argparse
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mask_peers as peers
import real_saliency
import torch
from real_saliency import Batch, derangement, synthetic
from torch import Tensor

import multimix as mm
from multimix.methods.puzzlemix.masks import cut_terms, solve_masks
from multimix.methods.puzzlemix.method import assigned_blocks

BATCH, BETA, GAMMA, ETA, NEIGHBORHOOD, EPS = 100, 1.2, 0.5, 0.2, 4, 0.8
GRIDS = (2, 4, 8, 16)
FASTER = {4: 40, 8: 25, 16: 15}  # demanded at K = 5
MOST_FOR_FIVE, TRANSPORT, WHOLE = 3.0, 50, 80.0  # K = 5 over K = 1; times faster at n = 16; ms at n = 16
Calls = dict[str, Callable[[], object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with cifar-100-python in it; $MULTIMIX_DATA otherwise; synthetic only without")
    parser.add_argument("--cache", type=Path, help="the file that keeps real images and saliency")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--quick", action="store_true", help="3 rounds of everything")
    parser.add_argument("--child", nargs=3, metavar=("FILE", "N", "GCO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # λ
    rounds = 3 if options.quick else options.rounds
    if options.child:
        file, n, with_gco = options.child
        print(json.dumps(mask_figures([Batch(*part) for part in torch.load(file)], int(n), rounds, with_gco == "yes")))
        return
    versions = {name: version(name) for name in ("torch", "numba", "gco-wrapper") if is_there(name.split("-")[0])}
    print("CPU time, one thread;", ", ".join(f"{name} {number}" for name, number in versions.items()))
    if not is_there("gco"):
        print("gco-wrapper is not installed: ours alone (pip install --no-deps gco-wrapper==3.0.9)")
    report("synthetic 1/f images, blob × log-normal saliency", [synthetic(seed) for seed in range(4)], rounds)
    print_large(max(3, rounds // 3))
    folder = real_saliency.data_folder(options.data)
    if folder is None:
        print("\nno real data: --data DIR or $MULTIMIX_DATA with cifar-100-python in it")
        return
    kept = real_saliency.kept_saliency(folder, options.cache, 20 if options.quick else real_saliency.STEPS)
    parts = zip(kept.images.split(BATCH), kept.saliency.split(BATCH), strict=True)
    batches = [Batch(x, saliency, derangement(len(x), seed)) for seed, (x, saliency) in enumerate(parts)]
    report(f"CIFAR-100, saliency of a network after {kept.words}", batches, rounds)


def report(title: str, batches: list[Batch], rounds: int) -> None:
    print(f"\n{'=' * 120}\n{title}; {len(batches)} batches of {len(batches[0].x)}, {rounds} rounds\n")
    print_concentration(batches)
    print_masks(batches, rounds)
    print_transport(batches, max(3, rounds // 4))
    print_whole(batches, rounds)


def path(k: int) -> Tensor:
    """``[k, 1]``: uniform and ascending, shared by the batch."""
    return torch.rand(k, 1, dtype=torch.float64).sort(0).values


def our_terms(batch: Batch, n: int) -> Any:
    blocks = peers.block_saliency(batch.saliency.double(), n)
    return cut_terms(batch.x, batch.partner, blocks, neighborhood=NEIGHBORHOOD, beta=BETA, gamma=GAMMA)


def print_concentration(batches: list[Batch]) -> None:
    saliency = torch.cat([batch.saliency for batch in batches])
    print("largest block / mean block of the saliency\n   n   median     p90     max   images above 21.5")
    for n in GRIDS:
        most = peers.block_saliency(saliency, n).flatten(1).max(1).values * n * n
        print(f"{n:4d} {most.median():8.1f} {most.quantile(0.9):7.1f} {most.max():7.1f} {(most > 21.47).float().mean():19.1%}")


# Masks: everything with gco in it happens in a child process


def is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def print_masks(batches: list[Batch], rounds: int) -> None:
    found = dict(zip(GRIDS, (child_figures(batches, n, rounds) for n in GRIDS), strict=True))
    print("\nmasks, CPU ms per batch: the published flow, its gco calls alone (integers ready), ours")
    print("   n   K      gco  (calls)     ours    ratio    worst  demanded            K = 5 / K = 1 of ours")
    for n, figures in found.items():
        for k in (1, 5):
            ours, gco, calls = (figures["times"].get(f"{name} {k}", []) for name in ("ours", "gco", "calls"))
            line = f"{n:4d} {k:3d} {middle(gco):>8s} {middle(calls):>8s} {middle(ours, 3):>8s}"
            if gco:
                ratio = statistics.median(gco) / statistics.median(ours)
                line += (
                    f" {ratio:7.1f}× {min(gco) / slowest(ours):7.1f}×  {verdict(ratio, FASTER.get(n) if k == 5 else None):18s}"
                )
            if k == 5:
                growth = statistics.median(ours) / statistics.median(figures["times"]["ours 1"])
                line = f"{line:74s}{growth:5.2f} of ≤ {MOST_FOR_FIVE:g} {'met' if growth <= MOST_FOR_FIVE else 'MISSED'}"
            print(line)
    if not any(figures["quality"] for figures in found.values()):
        return
    print("\nquality on gco's own integers: its energy over the optimum of exactly these (ours), K = 5")
    print("   n   masks  overflow  suboptimal  mean gap   max gap   gap with overflow (mean, max)   not convex   ours ≤ gco")
    for n, figures in found.items():
        if q := figures["quality"]:
            never = "always" if q["worse"] == 0 else f"VIOLATED {q['worse']}×"
            print(
                f"{n:4d} {q['masks']:7d} {q['overflow']:9.2%} {q['suboptimal']:11.1%} {q['mean']:9.3%} {q['max']:9.2%}"
                f" {q['wrapped_mean']:19.2%} {q['wrapped_max']:9.1%} {q['not_convex']:13d}   {never}"
            )


def child_figures(batches: list[Batch], n: int, rounds: int) -> dict[str, Any]:
    """``mask_figures`` in a child process, without gco when gco ends it."""
    command = [sys.executable, __file__, "--rounds", str(rounds), "--child"]
    with tempfile.TemporaryDirectory() as folder:
        torch.save([tuple(batch) for batch in batches], Path(folder) / "batches.pt")
        for with_gco in ("yes", "no") if is_there("gco") else ("no",):
            run = subprocess.run([*command, f"{folder}/batches.pt", str(n), with_gco], capture_output=True, text=True)
            if run.returncode == 0:
                return json.loads(run.stdout.splitlines()[-1])
            if with_gco == "yes":
                words = (run.stderr.splitlines() or ["no words"])[-1]
                print(f"gco ended the process at n = {n} (code {run.returncode}, {words}): ours alone there")
    raise RuntimeError(run.stderr)


def mask_figures(batches: list[Batch], n: int, rounds: int, with_gco: bool) -> dict[str, Any]:
    """Seconds of every round, and the quality of gco's masks."""
    terms = [our_terms(batch, n) for batch in batches]
    public = [
        peers.public_terms(batch.x, batch.partner, peers.block_saliency(batch.saliency, n), BETA, GAMMA, NEIGHBORHOOD)
        for batch in batches
    ]
    for mine, theirs in zip(terms, public, strict=True):
        torch.testing.assert_close(mine.cost.float(), theirs.pair - theirs.own, rtol=0, atol=1e-5 / n)
        torch.testing.assert_close((mine.down.float(), mine.right.float()), (theirs.down, theirs.right), rtol=1e-4, atol=0)

    def calls(turn: int) -> Calls:
        mine, theirs = terms[turn % len(terms)], public[turn % len(terms)]
        found: Calls = {}
        for k in (1, 5):
            lam = path(k)
            found[f"ours {k}"] = lambda lam=lam: solve_masks(mine, lam, eta=ETA, threads=1)
            if with_gco:
                ready = [problem for share in lam[:, 0].tolist() for problem in peers.public_problems(theirs, share, ETA)]
                found[f"gco {k}"] = lambda lam=lam: peers.gco_masks(theirs, lam, ETA)
                found[f"calls {k}"] = lambda ready=ready: [peers.gco_levels(problem) for problem in ready]
        return found

    times = interleaved(calls, rounds)
    return {"times": times, "quality": peers.gco_quality(public, [path(5) for _ in public], ETA) if with_gco else None}


# Transport, and the whole


def print_transport(batches: list[Batch], rounds: int) -> None:
    print("\ntransport of one image, CPU ms per 100 masks: dense published rule, the library's copy of it, exact assignment")
    print(
        "   n    dense     copy    exact    ratio  demanded       J identity       rule      exact   rule worse   moved   agree"
    )
    for n in (4, 8, 16):
        cases = []
        for batch in batches:
            lam = torch.rand(1, len(batch.x), dtype=torch.float64)
            visible = solve_masks(our_terms(batch, n), lam, eta=ETA) < peers.D  # where the own image is seen
            cases.append((visible, peers.block_saliency(batch.saliency.double(), n)))

        def calls(turn: int, cases: list[tuple[Tensor, Tensor]] = cases) -> Calls:
            visible, saliency = cases[turn % len(cases)]
            seen, single = visible[0].float(), saliency.float()
            return {
                "dense": lambda: peers.dense_transport(seen, single, EPS),
                "rule": lambda: assigned_blocks(visible, saliency, EPS, rule="reference", threads=1),
                "exact": lambda: assigned_blocks(visible, saliency, EPS, threads=1),
            }

        times = interleaved(calls, rounds)
        ratio = statistics.median(times["dense"]) / statistics.median(times["exact"])
        line = f"{n:4d} {middle(times['dense']):>8s} {middle(times['rule'], 3):>8s} {middle(times['exact'], 3):>8s} {ratio:7.1f}×"
        print(f"{line}  {verdict(ratio, TRANSPORT if n == 16 else None):14s} {peers.transport_quality(cases, EPS)}")


def print_whole(batches: list[Batch], rounds: int) -> None:
    """Terms, masks, both transports and the mix, at 32 pixels."""

    def calls(turn: int) -> Calls:
        batch, lam = batches[turn % len(batches)], path(5)
        found: Calls = {}
        for n in GRIDS:
            plan = whole_plan(batch, n, lam)
            found[f"whole {n}"] = lambda n=n: whole_plan(batch, n, lam).mix(batch.x)
            found[f"mix {n}"] = lambda plan=plan: plan.mix(batch.x)
        return found

    times = interleaved(calls, rounds)
    print("\nwhole mixing (terms, masks, two transports, mix), K = 5, CPU ms per batch\n   n    whole  mix alone  demanded")
    for n in GRIDS:
        whole = 1e3 * statistics.median(times[f"whole {n}"])
        judged = f"≤ {WHOLE:g} {'met' if whole <= WHOLE else 'MISSED'}" if n == 16 else ""
        print(f"{n:4d} {whole:8.1f} {middle(times[f'mix {n}'], 2):>10s}  {judged}")


def print_large(rounds: int) -> None:
    """224 pixels: planning and mixing apart, the latter beside a copy of the output."""
    batch = synthetic(0, 32, 224)
    source = torch.rand(5 * 32, 3, 224, 224)
    out = torch.empty_like(source)

    def calls(_: int) -> Calls:
        lam = path(5)
        found: Calls = {"copy": lambda: out.copy_(source)}
        for n in GRIDS:
            plan = whole_plan(batch, n, lam)
            found[f"plan {n}"] = lambda n=n: whole_plan(batch, n, lam)
            found[f"mix {n}"] = lambda plan=plan: plan.mix(batch.x)
        return found

    times = interleaved(calls, rounds)
    copy = statistics.median(times["copy"])
    print(f"\n224 pixels, B = 32, K = 5, CPU ms; copying the output takes {1e3 * copy:.1f}\n   n     plan      mix   × copy")
    for n in GRIDS:
        plan, mix = times[f"plan {n}"], times[f"mix {n}"]
        print(f"{n:4d} {middle(plan):>8s} {middle(mix):>8s} {statistics.median(mix) / copy:8.2f}")


def whole_plan(batch: Batch, n: int, lam: Tensor) -> mm.plans.PairPlan:
    method = mm.PuzzleMix(k=5, blocks=(n,))
    return method.plan(batch.x, saliency=batch.saliency, partner=batch.partner, lam=lam)


# Times


def interleaved(calls: Callable[[int], Calls], rounds: int) -> dict[str, list[float]]:
    """Name → CPU seconds of every round; ``calls(turn)`` prepares what a round times."""
    for call in calls(0).values():
        call()
    spent: dict[str, list[float]] = {}
    for turn in range(rounds):
        found = calls(turn)
        for name in random.sample(list(found), len(found)):
            start = time.process_time()
            result = found[name]()
            spent.setdefault(name, []).append(time.process_time() - start)
            del result
    return spent


def middle(times: list[float], digits: int = 1) -> str:
    return f"{1e3 * statistics.median(times):.{digits}f}" if times else "–"


def slowest(times: list[float]) -> float:
    """The nine tenths quantile."""
    return sorted(times)[min(len(times) - 1, int(0.9 * len(times)))]


def verdict(ratio: float, demanded: float | None) -> str:
    return "" if demanded is None else f"≥ {demanded}× {'met' if ratio >= demanded else 'MISSED'}"


if __name__ == "__main__":
    main()
