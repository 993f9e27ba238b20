"""CPU time of every method as a multiple of copying its output, and of plan and mix apart: K = 1 and 5, 32 and 224 pixels.

    python benchmarks/mixing.py                     # both allocator settings, about five minutes on one free thread
    python benchmarks/mixing.py --sizes 32 --rounds 400 --allocator this

All candidates run interleaved in one process, in a new random order every round; those with a solver or a network take part in
some rounds only, evenly spread. Tables show medians of CPU time and in parentheses quartiles, as multiples of the median of the
copy. Drawing the plan counts; what is given to it is said in mixing_cases.py (benchmarks/masks.py is about puzzle masks,
benchmarks/comixup.py about co-mixup). With huge pages only methods without a solver or a network run.
timm's batch mode runs beside ours if timm is installed (``pip install --no-deps timm==1.0.30``; torchvision is not needed).
"""

import argparse
import importlib.util
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from mixing_cases import CLASSES, LARGE, WORK, Case, cases
from torch import Tensor

import multimix as mm

THP = "THP_MEM_ALLOC_ENABLE"
COPY, CLONE = "copy of the output", "fresh copy (clone)"
Stages = tuple[float, float]
"""CPU seconds of the plan and of the rest of a call."""


@dataclass(frozen=True)
class Row:
    """One candidate: ``call`` runs it once, ``copied`` names the row that copies its output."""

    name: str
    call: Callable[[], Stages]
    copied: str = COPY
    work: bool = False
    """Whether a solver or a network is in it: then it takes part in some rounds only."""


class Measured(NamedTuple):
    """Quartiles of the whole call as multiples of the copy, and medians of plan and mix in seconds."""

    low: float
    middle: float
    high: float
    plan: float
    mix: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 224])
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=0, help="0: 100 at 32 pixels; above, 17 at K = 1 and 5 at K = 5")
    parser.add_argument("--work-rounds", type=int, default=0, help="with a solver or a network; 0: 10 at 32 pixels, 3 above")
    parser.add_argument("--allocator", choices=["both", "this"], default="both", help="this: only the current environment's")
    options = parser.parse_args()
    if options.allocator == "both":
        print(import_time())
        for setting in ("0", "1"):
            command = [sys.executable, __file__, *sys.argv[1:], "--allocator", "this"]
            subprocess.run(command, env={**os.environ, THP: setting}, check=True)
        return
    torch.set_num_threads(options.threads)
    huge = os.environ.get(THP) == "1"
    found = {}
    for size in options.sizes:
        for k in options.ks:
            rounds = options.rounds or (100 if size <= LARGE else 15 // k + 2)
            some = min(rounds, options.work_rounds or (10 if size <= LARGE else 3))
            start = time.process_time()
            rows = [row for row in candidates(options.batch, size, k) if not (huge and row.work)]
            found[f"{size} px, K = {k}"] = measured(rows, rounds, some)
            spent = time.process_time() - start
            print(f"{size} px, K = {k}: {rounds} rounds, {some} with a solver or a network, {spent:.0f} s of CPU", flush=True)
    print(f"\n## {'Huge pages' if huge else 'Default allocator'}, B = {options.batch}, {options.threads} thread(s)")
    print_tables(found)


def candidates(batch: int, size: int, k: int) -> list[Row]:
    """Copies of every shape that comes out, every method, the drop-in, and timm."""
    generator = torch.Generator().manual_seed(0)
    buffers: dict[str, Tensor] = {}
    rows = []
    for case in [
        *cases(batch, size, k),
        Case("cutmix per pair", mm.CutMix(k=k, per_pair=True), torch.rand(batch, 3, size, size)),
    ]:
        steps = 1 if isinstance(case.method, mm.NoMix) else k
        shape = [steps * len(case.source), *case.source.shape[1:]]
        copied = COPY if shape == [k * batch, 3, size, size] else f"copy of {shape}"
        if copied not in buffers:
            buffers[copied] = torch.empty(shape)
            rows += copies(copied, buffers[copied])
        rows.append(Row(case.name, planned(case, generator), copied, case.work is not None))
    x, y = torch.randn(batch, 3, size, size), torch.randint(CLASSES, (batch,))
    for name in ("mixup", "cutmix"):
        mixer = mm.Mix(mm.create(name, k=k), CLASSES)
        rows.append(Row(f"Mix({name}), with targets", whole(lambda m=mixer: m(x, y))))
    return rows + timm_candidates(x, y, k)


def copies(name: str, out: Tensor) -> list[Row]:
    source = torch.randn_like(out)
    rows = [Row(name, whole(lambda: out.copy_(source)), name)]
    return [*rows, Row(CLONE, whole(lambda: source.clone()))] if name == COPY else rows


def planned(case: Case, generator: torch.Generator) -> Callable[[], Stages]:
    def call() -> Stages:
        start = time.process_time()
        plan = case.plan(generator)
        between = time.process_time()
        mixed = plan.mix(case.source)
        stages = between - start, time.process_time() - between
        del mixed  # giving memory back is not timed
        return stages

    return call


def whole(run: Callable[[], object]) -> Callable[[], Stages]:
    def call() -> Stages:
        start = time.process_time()
        result = run()
        spent = time.process_time() - start
        del result
        return 0.0, spent

    return call


def timm_candidates(x: Tensor, y: Tensor, k: int) -> list[Row]:
    """timm's batch mode, targets included; it mixes in place and has no K, so for K > 1 it is called K times on a copy."""
    spec = importlib.util.find_spec("timm")
    if spec is None or spec.submodule_search_locations is None:
        return []
    path = Path(spec.submodule_search_locations[0]) / "data/mixup.py"
    file = importlib.util.spec_from_file_location("timm_mixup", path)
    assert file is not None
    assert file.loader is not None
    module = importlib.util.module_from_spec(file)
    file.loader.exec_module(module)

    def run(mixer: Callable[..., tuple[Tensor, Tensor]]) -> object:
        if k == 1:
            return mixer(x, y)
        return torch.cat([mixer(x.clone(), y)[0] for _ in range(k)])

    mixup = module.Mixup(mixup_alpha=1.0, cutmix_alpha=0.0, label_smoothing=0.0, num_classes=CLASSES)
    cutmix = module.Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=CLASSES)
    return [
        Row("timm mixup, batch mode (in place)", whole(lambda: run(mixup))),
        Row("timm cutmix, batch mode (in place)", whole(lambda: run(cutmix))),
    ]


def measured(rows: list[Row], rounds: int, some: int) -> dict[str, Measured]:
    """Name → what ``rounds`` rounds gave, ``some`` of them for rows with a solver or a network."""
    spent: dict[str, list[Stages]] = {row.name: [] for row in rows}
    for row in rows:
        row.call()
    with_work = {turn * rounds // some for turn in range(some)}
    for turn in range(rounds):
        for row in random.sample(rows, len(rows)):
            if turn in with_work or not row.work:
                spent[row.name].append(row.call())
    copied = {row.name: statistics.median(map(sum, spent[row.copied])) for row in rows}
    return {name: summary(stages, copied[name]) for name, stages in spent.items()}


def summary(stages: list[Stages], copy: float) -> Measured:
    low, middle, high = statistics.quantiles(map(sum, stages), n=4, method="inclusive")
    plan, mix = (statistics.median(part) for part in zip(*stages, strict=True))
    return Measured(low / copy, middle / copy, high / copy, plan, mix)


def print_tables(found: dict[str, dict[str, Measured]]) -> None:
    """In Markdown, as in docs/archive/benchmarks.md."""
    names = [name for name in next(iter(found.values())) if not name.startswith("copy of [")]
    plain = [name for name in names if name not in WORK and name not in (COPY, CLONE)]
    print_table("× copy of the output", found, [CLONE, *plain], times_copy)
    solved = [name for name in names if name in WORK]
    if solved:
        print_table("× copy of the output, with a solver or a network", found, solved, times_copy)
    methods = [name for name in names if not name.startswith(("Mix(", "timm ")) and name not in (COPY, CLONE)]
    print_table("CPU ms, plan + mix", found, [COPY, *methods], plan_and_mix)


def print_table(title: str, found: dict[str, dict[str, Measured]], names: Iterable[str], cell: Callable[[Measured], str]) -> None:
    print(f"\n| {title} | {' | '.join(found)} |\n|---|{'---:|' * len(found)}")
    for name in names:
        shown = f"{name} ({WORK[name]})" if name in WORK else name
        print(f"| {shown} | {' | '.join(cell(table[name]) for table in found.values())} |")


def times_copy(row: Measured) -> str:
    digits = 2 if row.middle < 10 else 0
    return f"{row.middle:,.{digits}f} ({row.low:,.{digits}f} … {row.high:,.{digits}f})"


def plan_and_mix(row: Measured) -> str:
    return " + ".join(f"{1e3 * part:,.{2 if part < 0.01 else 0}f}" for part in (row.plan, row.mix) if part > 0)


def import_time() -> str:
    """What ``import multimix`` adds to ``import torch``, CPU time: median of five processes."""
    code = "import torch, time; start = time.process_time(); import multimix; print(time.process_time() - start)"
    command = [sys.executable, "-c", code]
    runs = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(5)]
    return f"import multimix adds {statistics.median(runs):.3f} s of CPU to import torch (median of 5)"


if __name__ == "__main__":
    mm.warmup()
    main()
