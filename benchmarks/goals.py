"""Every speed demand on the library in one table: what, against whom, the ratio with quartiles, met or missed.

    python benchmarks/goals.py                                   # all groups, half an hour of CPU on one thread
    python benchmarks/goals.py --groups small memory step import # some of them
    python benchmarks/goals.py --json goals.json --figure goals.png

CPU time on one thread; candidates of a line run interleaved in one process, in a new random order every round. Peers that are not
installed (timm, gco-wrapper) and data that are not there ($MULTIMIX_DATA) leave their lines out, and say so.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from mixing import timm_candidates
from mixing_cases import CLASSES
from torch import Tensor

import multimix as mm

BATCH = 128


class Line(NamedTuple):
    """One demand: ``value`` with quartiles, in ``unit``; ``aim`` is the most it may be, or with ``least`` the least."""

    group: str
    what: str
    against: str
    aim: float
    value: float
    low: float
    high: float
    unit: str = "×"
    least: bool = False

    @property
    def is_met(self) -> bool:
        return self.value >= self.aim if self.least else self.value <= self.aim

    @property
    def distance(self) -> float:
        """How many times the aim was missed, below 1 where it is met."""
        if self.aim == 0:
            return 1 + self.value
        return self.aim / self.value if self.least else self.value / self.aim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--rounds", type=int, default=1, help="times as many rounds as usual")
    parser.add_argument("--networks", nargs="+", default=["preact_resnet18_small", "preact_resnet18"], help="of the group step")
    parser.add_argument("--json", type=Path, help="add the lines to those in this file, in place of older ones of their group")
    parser.add_argument("--figure", type=Path, help="draw all lines, those in the file too, to this PNG file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    print("| | | against | aim | measured (quartiles) | |\n|---|---|---|---:|---:|---|")
    for group in options.groups:
        for line in GROUPS[group](options):
            lines.append(line)
            print(in_words(line), flush=True)
    if options.json:
        old = [Line(*values) for values in json.loads(options.json.read_text())] if options.json.exists() else []
        lines = [line for line in old if line.group not in options.groups] + lines
        options.json.write_text(json.dumps(lines, ensure_ascii=False, indent=0))
    print(f"\n{sum(line.is_met for line in lines)} of {len(lines)} met")
    if options.figure:
        from goals_figure import goals_figure

        options.figure.write_bytes(goals_figure(lines))


def in_words(line: Line) -> str:
    digits = 2 if line.value < 10 else 0
    numbers = f"{line.value:.{digits}f} ({line.low:.{digits}f} … {line.high:.{digits}f}) {line.unit}"
    sign, verdict = "≥" if line.least else "≤", "met" if line.is_met else "**missed**"
    return f"| {line.group} | {line.what} | {line.against} | {sign} {line.aim:g} {line.unit} | {numbers} | {verdict} |"


def interleaved(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every call, by name; the first round is not counted, nor is giving results back."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name in random.sample(list(calls), len(calls)):
            start = time.process_time()
            result = calls[name]()
            seconds = time.process_time() - start
            del result
            if turn:
                spent[name].append(seconds)
    return spent


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    if len(values) < 2:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def ratios(ours: list[float], theirs: list[float], scale: float = 1.0) -> tuple[float, float, float]:
    """Quartiles of the ratio round by round."""
    return quartiles([scale * a / b for a, b in zip(ours, theirs, strict=True)])


def small(options: argparse.Namespace) -> Iterator[Line]:
    """Mix with targets beside timm's batch mode, 32 px."""
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(CLASSES, (BATCH,))
    peers = {row.name.split(",")[0]: row.call for row in timm_candidates(x, y, 1)}
    if not peers:
        print("| small | timm is not installed | | | | |")
        return
    for k, aim in ((1, 1.3), (5, 0.6)):
        calls: dict[str, Callable[[], object]] = dict(peers)
        for name in ("mixup", "cutmix"):
            mixer = mm.Mix(mm.create(name, k=k), CLASSES)
            calls[name] = lambda mixer=mixer: mixer(x, y)
        spent = interleaved(calls, 400 * options.rounds)
        for name in ("mixup", "cutmix"):
            of_timm = spent[f"timm {name}"]
            yield Line(
                "small", f"`Mix({name}, k={k})`, 32 px, per image", "timm, batch mode", aim, *ratios(spent[name], of_timm, 1 / k)
            )


def memory(options: argparse.Namespace) -> Iterator[Line]:
    """Mix with targets, 224 px: K = 1 beside timm's batch mode, K = 5 beside a copy of its output."""
    x, y = torch.randn(BATCH, 3, 224, 224), torch.randint(CLASSES, (BATCH,))
    mixers = {(name, k): mm.Mix(mm.create(name, k=k), CLASSES) for name in ("mixup", "cutmix", "fmix") for k in (1, 5)}
    calls: dict[str, Callable[[], object]] = {row.name.split(",")[0]: row.call for row in timm_candidates(x, y, 1)}
    if calls:
        calls |= {name: lambda mixer=mixers[name, 1]: mixer(x, y) for name in ("mixup", "cutmix")}
        spent = interleaved(calls, 15 * options.rounds)
        for name in ("mixup", "cutmix"):
            found = ratios(spent[name], spent[f"timm {name}"])
            yield Line("memory", f"`Mix({name}, k=1)`, 224 px", "timm, batch mode", 1.0, *found)
    else:
        print("| memory | timm is not installed | | | | |")
    out, source = torch.zeros(5 * BATCH, 3, 224, 224), torch.rand(5 * BATCH, 3, 224, 224)
    aims = {"mixup": 1.5, "cutmix": 2.2, "fmix": 2.2}
    calls = {name: lambda mixer=mixers[name, 5]: mixer(x, y) for name in aims}
    spent = interleaved({"copy": lambda: out.copy_(source), **calls}, 15 * options.rounds)
    for name, aim in aims.items():
        yield Line("memory", f"`Mix({name}, k=5)`, 224 px", "copy of the output", aim, *ratios(spent[name], spent["copy"]))


def comixup(options: argparse.Namespace) -> Iterator[Line]:
    """Ours beside the published loop on saliency of CIFAR-100."""
    import comixup as co
    import real_saliency
    from masks import is_there

    folder = real_saliency.data_folder(None)
    if folder is None or not is_there("gco"):
        print("| comixup | needs gco-wrapper and CIFAR-100 in $MULTIMIX_DATA | | | | |")
        return
    maps = list(real_saliency.kept_saliency(folder, None, real_saliency.STEPS, co.KEPT).saliency.split(co.BATCH))
    for n, aim in ((4, 15), (8, 10), (16, 5)):
        times, _, _ = co.figures(maps, n, 10 * options.rounds, True)
        found = ratios(times["public"], times["ours"])
        yield Line("comixup", f"co-mixup, {n} × {n} blocks, real saliency", "published loop", aim, *found, least=True)


def puzzlemix(options: argparse.Namespace) -> Iterator[Line]:
    """Ours beside the published solver alone, integers ready."""
    import masks

    if masks.is_there("gco"):
        for n, aim in ((4, 40), (8, 25), (16, 15)):
            times = masks.child_figures([masks.synthetic(seed) for seed in range(4)], n, 10 * options.rounds)["times"]
            found = ratios(times["calls 5"], times["ours 5"])
            yield Line("puzzlemix", f"puzzle masks, {n} × {n} blocks, K = 5", "gco's calls alone", aim, *found, least=True)
    else:
        print("| puzzlemix | gco-wrapper is not installed | | | | |")


def step(options: argparse.Namespace) -> Iterator[Line]:
    """A whole step of training with input mixup at K = 5 beside K = 1, B = 100, 32 px, freed memory kept as the lab does it."""
    mm.keep_memory()
    from multimix.lab.nets import network

    for name in options.networks:
        torch.manual_seed(0)
        net = network(name, CLASSES).to(memory_format=torch.channels_last)
        sgd = torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=1e-4)
        x = torch.randn(100, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        y = torch.randint(CLASSES, (100,))

        def update(k: int, net: torch.nn.Module = net, sgd: torch.optim.SGD = sgd, x: Tensor = x, y: Tensor = y) -> None:
            mm.mixed_forward(net, mm.InputMixup(k=k), x, y, num_classes=CLASSES).loss(mm.losses.softmax_bce).backward()
            sgd.step()
            sgd.zero_grad()

        rounds = (8 if name.endswith("_small") else 3) * options.rounds
        spent = interleaved({"1": lambda update=update: update(1), "5": lambda update=update: update(5)}, rounds)
        yield Line("step", f"a step with {name}, K = 5", "K = 1", 5.2, *ratios(spent["5"], spent["1"]))


def imports(options: argparse.Namespace) -> Iterator[Line]:
    """Processes that import multimix or ask for help beside one that imports torch."""
    from imports import MOST_RATIO, MOST_SECONDS, measured

    taken = measured(7 * options.rounds)
    ours, torchs = taken["import multimix"], taken["import torch"]
    yield Line("import", "`import multimix`", "`import torch`", MOST_RATIO, *ratios(ours, torchs))
    beyond = [asked - alone for asked, alone in zip(taken["multimix --help"], torchs, strict=True)]
    yield Line("import", "`multimix --help`, beyond `import torch`", "", MOST_SECONDS, *quartiles(beyond), unit="s")


def device(options: argparse.Namespace) -> Iterator[Line]:
    """Stalls, uploads and downloads of every method on a pretend accelerator, counted by tests."""
    tests = Path(__file__).parents[1] / "tests/core/test_devices.py"
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", str(tests)], capture_output=True, text=True, cwd=tests.parents[1])
    if "s" in run.stdout.splitlines()[0].split(" ")[0]:
        print("| device | not counted: there is no pretend accelerator, $MULTIMIX_SIMDEVICE is not set | | | | |")
        return
    found = re.search(r"(\d+) failed", run.stdout)
    failed = float(found[1]) if found else float(run.returncode != 0)
    yield Line("device", "host syncs and uploads of a step: tests that fail", "", 0, failed, failed, failed, unit="")


GROUPS: dict[str, Callable[[argparse.Namespace], Iterator[Line]]] = {
    "small": small,
    "memory": memory,
    "comixup": comixup,
    "puzzlemix": puzzlemix,
    "step": step,
    "device": device,
    "import": imports,
}

if __name__ == "__main__":
    main()
