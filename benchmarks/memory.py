"""Size of the process after 100 and after 1,000 steps of every method: plan, mix and target of a new batch each time.

    python benchmarks/memory.py                     # B = 32, 32 pixels, K = 2, about four minutes on one free thread
    python benchmarks/memory.py --methods cutmix puzzlemix --batch 128

Linux only: resident pages, read off /proc, after collecting garbage. Each method runs in a child process of its own, so that none
finds memory that another has left. RecursiveMix is given the previous batch. Memory that the C library
keeps for later counts, so some of it comes and goes; what is alive is counted exactly in tests/test_leaks.py.
"""

import argparse
import gc
import multiprocessing
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from mixing_cases import CLASSES, Case, cases, history

import multimix as mm

POINTS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--k", type=int, default=2)
    parser.add_argument("--times", type=int, nargs="+", default=[100, 1000], help="steps after which the process is looked at")
    parser.add_argument("--methods", nargs="+", help="all if left out")
    options = parser.parse_args()
    torch.set_num_threads(1)  # children of a process that has run several threads in torch hang
    clouds = f"clouds: B = {options.batch // 8}, {POINTS} points"
    print(f"B = {options.batch}, 3×{options.size}×{options.size} ({clouds}), K = {options.k}\n")
    times = " | ".join(f"after {count:,} steps" for count in options.times)
    print(f"| MB resident | {times} | more |\n|---|{'---:|' * (len(options.times) + 1)}")
    for case in cases(options.batch, options.size, options.k, POINTS):
        if options.methods is None or case.method.name in options.methods:
            sizes = in_child(case, options.times)
            shown = [f"{size / 1e6:,.1f}" for size in sizes]
            print(f"| {case.name} | {' | '.join(shown)} | {(sizes[-1] - sizes[0]) / 1e6:+.2f} |", flush=True)


def in_child(case: Case, times: list[int]) -> list[int]:
    """Bytes after each of ``times``, of a process that does nothing else."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=run, args=(case, times, sender))
    child.start()
    sender.close()
    sizes: list[int] = receiver.recv()
    child.join()
    return sizes


def run(case: Case, times: list[int], sender: Connection) -> None:
    generator = torch.Generator().manual_seed(0)
    given, sizes, done = dict(case.given), [], 0
    for until in times:
        for _ in range(until - done):
            given.update(one_step(case, given, generator))
        done = until
        gc.collect()
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    sender.send(sizes)


def one_step(case: Case, given: Mapping[str, Any], generator: torch.Generator) -> Mapping[str, Any]:
    """A batch of new numbers mixed; what the next is to be given."""
    x, z = (value if value is None else torch.rand(value.shape, generator=generator) for value in (case.x, case.z))
    assert x is not None
    y = torch.randint(CLASSES, (len(x),), generator=generator)
    plan = case.method.plan(x, generator=generator, **given)
    plan.mix(x if z is None else z)
    target = plan.mix_target(y, CLASSES)
    return history(plan, x, target) if case.method.traits.history else {}


if __name__ == "__main__":
    mm.warmup()
    main()
