"""CPU time per produced image, as a multiple of copying the output: every method, K = 1 and 5, 32 and 224 pixels.

    python benchmarks/mixing.py                     # both allocator settings, about three minutes on one thread
    python benchmarks/mixing.py --sizes 32 --rounds 400

All candidates of a table run interleaved in one process, in a new random order every round; the table shows medians of CPU time.
Drawing the plan counts; puzzlemix has 8 × 8 blocks and is given a random map (benchmarks/masks.py is about its masks). "reused"
writes into one output buffer (``plan.mix(x, out=buffer)``), "fresh" allocates the output.
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
from collections.abc import Callable
from pathlib import Path

import torch

import multimix as mm

OPTIONS = {"manifoldmix": {"layers": (None,)}, "puzzlemix": {"blocks": (8,), "std": 0.1}}
THP = "THP_MEM_ALLOC_ENABLE"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 224])
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=0, help="0: 300 at 32 pixels, 25 above")
    parser.add_argument("--allocator", choices=["both", "this"], default="both", help="this: only the current environment's")
    options = parser.parse_args()
    if options.allocator == "both":
        print(import_time())
        for setting in ("0", "1"):
            command = [sys.executable, __file__, *sys.argv[1:], "--allocator", "this"]
            subprocess.run(command, env={**os.environ, THP: setting}, check=True)
        return
    torch.set_num_threads(options.threads)
    huge = "huge pages" if os.environ.get(THP) == "1" else "default allocator"
    for size in options.sizes:
        for k in options.ks:
            rounds = options.rounds or (300 if size <= 64 else 25)
            title = f"B = {options.batch}, 3×{size}×{size}, K = {k}, {options.threads} thread(s), {huge}, {rounds} rounds"
            print_table(title, medians(candidates(options.batch, size, k), rounds), options.batch * k)


def candidates(batch: int, size: int, k: int) -> dict[str, Callable[[], object]]:
    """Name → one whole mixing of a batch, draws included."""
    x, y = torch.randn(batch, 3, size, size), torch.randint(100, (batch,))
    out, source = torch.empty(k * batch, 3, size, size), torch.randn(k * batch, 3, size, size)
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Callable[[], object]] = {
        "copy of the output": lambda: out.copy_(source),
        "fresh copy (clone)": lambda: source.clone(),
    }
    for kind in mm.METHODS:
        if kind is mm.NoMix:
            continue
        method = mm.create(kind.name, k=k, **OPTIONS.get(kind.name, {}))
        given = {"saliency": torch.rand(batch, size, size) ** 4} if "saliency" in method.needs else {}
        found[f"{kind.name}, reused"] = lambda m=method, given=given: m.plan(x, generator=generator, **given).mix(x, out=out)
        found[f"{kind.name}, fresh"] = lambda m=method, given=given: m.plan(x, generator=generator, **given).mix(x)
    own_boxes = mm.CutMix(k=k, per_pair=True)
    found["cutmix per pair, reused"] = lambda: own_boxes.plan(x, generator=generator).mix(x, out=out)
    for name in ("mixup", "cutmix"):
        for check in (False, True):
            mixer = mm.Mix(mm.create(name, k=k), 100, reuse_buffer=True, check=check)
            found[f"Mix({name}): targets{' and check' if check else ''}, reused"] = lambda m=mixer: m(x, y)
    return {**found, **timm_candidates(x, y, k)}


def timm_candidates(x: torch.Tensor, y: torch.Tensor, k: int) -> dict[str, Callable[[], object]]:
    """timm's batch mode, targets included; it mixes in place and has no K, so for K > 1 it is called K times on a copy."""
    spec = importlib.util.find_spec("timm")
    if spec is None or spec.submodule_search_locations is None:
        return {}
    path = Path(spec.submodule_search_locations[0]) / "data/mixup.py"
    file = importlib.util.spec_from_file_location("timm_mixup", path)
    assert file is not None
    assert file.loader is not None
    module = importlib.util.module_from_spec(file)
    file.loader.exec_module(module)

    def run(mixer: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> object:
        if k == 1:
            return mixer(x, y)
        return torch.cat([mixer(x.clone(), y)[0] for _ in range(k)])

    mixup = module.Mixup(mixup_alpha=1.0, cutmix_alpha=0.0, label_smoothing=0.0, num_classes=100)
    cutmix = module.Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=100)
    return {"timm mixup, batch mode (in place)": lambda: run(mixup), "timm cutmix, batch mode (in place)": lambda: run(cutmix)}


def medians(found: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Name → median CPU seconds of a call."""
    spent: dict[str, list[float]] = {name: [] for name in found}
    order = list(found)
    for call in found.values():
        call()
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            start = time.process_time()
            result = found[name]()
            spent[name].append(time.process_time() - start)
            del result
    return {name: statistics.median(times) for name, times in spent.items()}


def print_table(title: str, spent: dict[str, float], images: int) -> None:
    copy = spent["copy of the output"]
    print(f"\n{title}\n{'':46s} {'ms':>9s} {'µs/image':>9s} {'× copy':>7s}")
    for name, seconds in spent.items():
        print(f"{name:46s} {1e3 * seconds:9.3f} {1e6 * seconds / images:9.2f} {seconds / copy:7.2f}")


def import_time() -> str:
    """What ``import multimix`` adds to ``import torch``: median of five processes."""
    code = "import torch, time; start = time.perf_counter(); import multimix; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", code]
    runs = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(5)]
    return f"import multimix adds {statistics.median(runs):.3f} s to import torch (median of 5)"


if __name__ == "__main__":
    main()
