"""One training step of the lab, part by part: loading, saliency, plan, mixing, network, optimiser; per method and K.

    python benchmarks/step.py                                    # PreActResNet18 and its small sibling, about 15 minutes of CPU
    python benchmarks/step.py --networks preact_resnet18_small   # the small one alone, three minutes
    python benchmarks/step.py --quick                            # a smoke run

CIFAR-100 from $MULTIMIX_DATA, or pixels of the same shapes; B = 100, 32 px, flip, crop with padding 2, softmax-BCE, SGD with
Nesterov, channels-last, start weights. CPU time on one thread; everything of a table runs interleaved in one process, in a new
random order every round; medians.

"Whole" is ``multimix.lab.training.step.update``, as in training. Mixup is timed whole at every K, manifold mixup at every K and
hidden layer, no mixing once, others at some K. The network is what is left of them without the other parts, which have many
rounds of their own; K·B rows cost it the same whoever mixed them, so all steps with the same K and layer are taken together, and
every method's step is the sum of its parts. "whole / sum" says how well that holds where it was timed whole. Methods that draw a
layer or a grid of blocks are averaged over what they draw.
"""

import argparse
import json
import platform
import resource
import statistics
from pathlib import Path
from typing import Any

import torch
from real_saliency import data_folder
from step_parts import (
    ARMS,
    Case,
    Step,
    Times,
    cases,
    free_gigabytes,
    gigabytes_per_row,
    made,
    measure,
    step_of,
    train_split,
)

MIXING, LOADING = 0.03, 0.10  # largest shares of a step; the second is our own number for "no bottleneck"
ROOM = 2.0  # times what autograd keeps, for gradients and work space


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["preact_resnet18_small", "preact_resnet18"])
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 3, 5, 7, 9], help="1 and 5 must be among them")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of whole steps; the small network has 3 times, parts 20 times as many"
    )
    parser.add_argument("--quick", action="store_true", help="one round of the small network at K = 1 and 5")
    parser.add_argument("--json", type=Path, help="write all times to this file, after every round")
    parser.add_argument("--from", type=Path, dest="kept", help="show the times of such a file instead of measuring")
    parser.add_argument("--figure", type=Path, help="draw time against K to this PNG file")
    options = parser.parse_args()
    if options.quick:
        options.networks, options.ks, options.rounds = ["preact_resnet18_small"], [1, 5], 1
    if not {1, 5} <= set(options.ks):
        parser.error("the demands are about K = 1 and 5: both must be among --ks")
    content = json.loads(options.kept.read_text()) if options.kept else run(options)
    report(content)
    if options.figure:
        from step_figure import time_figure

        options.figure.write_bytes(time_figure(content))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All times of all networks, and what they were taken of."""
    torch.set_num_threads(1)
    split, words = train_split(data_folder(None))
    machine = f"{processor()}, torch {torch.__version__}, one thread"
    content = {"data": words, "batch": options.batch, "machine": machine, "networks": {}}
    for name in options.networks:  # a small one first: the peak of memory is that of the process so far
        setup = made(name, split, options.batch)
        small = name.endswith("_small")
        need = ROOM * gigabytes_per_row(setup) * options.batch
        ks = [k for k in options.ks if k <= 5 or k * need < free_gigabytes() / 2]
        for k in options.ks:
            if k not in ks:
                print(f"{name} at K = {k} is left out: about {k * need:.1f} GB of {free_gigabytes():.1f} free ones")
        rounds = options.rounds * (3 if small and not options.quick else 1)
        found = content["networks"][name] = {"ks": ks, "times": {}, "peak_gigabytes": 0.0}
        for _ in measure(setup, ks, found["times"], 20 * options.rounds, rounds, many=small and not options.quick):
            found["peak_gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            if options.json:
                options.json.write_text(json.dumps(content))  # a run that is stopped can be shown as far as it came
    return content


def processor() -> str:
    """What the machine says it is."""
    lines = Path("/proc/cpuinfo")
    names = [line for line in lines.read_text().splitlines() if line.startswith("model name")] if lines.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()


def report(content: dict[str, Any]) -> None:
    print(f"{content['data']}, B = {content['batch']}, 32 px; {content['machine']}; CPU time")
    finished = {name: found for name, found in content["networks"].items() if "saliency" in found["times"]}
    for name, found in finished.items():
        print_parts(name, found)
        print_growth(found)
    print("\ndemands")
    for name, found in finished.items():
        print_demands(name, found, content["batch"])


def print_parts(name: str, found: dict[str, Any]) -> None:
    """A line for every method, K = 1 and 5, and for each layer of manifold mixup."""
    times: Times = found["times"]
    rounds = len(times["none 1 whole"])
    print(
        f"\n{'=' * 130}\n{name}: CPU ms of a step; parts {len(times['load'])} rounds, whole steps {rounds}; "
        f"at most {found['peak_gigabytes']:.1f} GB\n"
        f"{'':20s}   K    load saliency    plan     mix  target   network optimiser      step  spread   mixing saliency  loading"
        "  whole / sum"
    )
    for arm in ARMS:
        for k in (1, 5) if arm != "none" else (1,):
            print(line(times, arm, k, step_of(times, arm, k), cases(arm, k)))
            if arm == "manifoldmix":
                for case in cases(arm, k):
                    print(line(times, f"  at {case.variant}", k, step_of(times, arm, k, case.variant), [case]))


def line(times: Times, label: str, k: int, step: Step, those: list[Case]) -> str:
    parts = "".join(
        f"{1e3 * part:{width}.{digits}f}"
        for part, width, digits in zip(step, (8, 9, 8, 8, 8, 10, 10), (2, 0, 2, 2, 2, 0, 1), strict=True)
    )
    shares = "".join(f"{share:9.2%}" for share in (step.mixing / step.whole, step.saliency / step.whole, step.load / step.whole))
    whole = [case for case in those if case.key("whole") in times]
    summed = sum(step_of(times, case.arm, k, case.variant).whole - step.load for case in whole)
    direct = f"{sum(statistics.median(times[case.key('whole')]) for case in whole) / summed:12.3f}" if whole else ""
    spread = f"{max(spread_of(times[case.key('whole')]) for case in whole):8.1%}" if whole else f"{'':8s}"
    return f"{label:20s} {k:3d}{parts}{1e3 * step.whole:10.0f}{spread}{shares}{direct}"


def spread_of(values: list[float]) -> float:
    """Half the distance between the quartiles (of few rounds: the extremes), relative to the median."""
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 7 else (min(values), 0, max(values))
    return (high - low) / 2 / statistics.median(values)


def print_growth(found: dict[str, Any]) -> None:
    """Time of a step, so of an epoch, against K."""
    times, ks = found["times"], found["ks"]
    unit = step_of(times, "none", 1).whole
    print(f"\ntime of an epoch against K; no mixing = 1 (500 steps of it: {500 * unit / 60:.1f} minutes of one core)")
    print(f"{'':20s}" + "".join(f"{f'K = {k}':>8s}" for k in ks) + "      relative to the method's own K = 1")
    for arm in ARMS[1:]:
        whole = [step_of(times, arm, k).whole for k in ks]
        ours, own = ("".join(f"{value / to:8.2f}" for value in whole) for to in (unit, whole[0]))
        print(f"{arm:20s}{ours}      {own}")


def print_demands(name: str, found: dict[str, Any], batch: int) -> None:
    times: Times = found["times"]
    for arm in ("mixup", "cutmix"):
        step, case = step_of(times, arm, 5), Case(arm, 5)
        cold = statistics.median(times[case.key("cold")])
        share = max(step.mixing, cold) / step.whole
        words = f"mixing of {arm}, K = 5: {share:.3%} of a step ({1e3 * step.mixing:.1f} ms; right after a pass {1e3 * cold:.1f})"
        judge(name, share <= MIXING, words, f"{MIXING:.0%}")
    mixup, manifold = (step_of(times, arm, 5).whole for arm in ("mixup", "manifoldmix"))
    low, high = rounds_apart(times)
    words = f"manifold mixup, K = 5: {manifold / mixup:.3f} of input mixup's step ({low:.2f} … {high:.2f} round by round)"
    judge(name, manifold < mixup, words, "1")
    for arm, k in (("none", 1), ("mixup", 1)):
        step = step_of(times, arm, k)
        words = f"loading: {step.load / step.whole:.2%} of a step of {arm}, K = {k}; {batch / step.load:,.0f} images/s alone"
        judge(name, step.load / step.whole <= LOADING, words, f"{LOADING:.0%}")


def rounds_apart(times: Times) -> tuple[float, float]:
    """The smallest and largest ratio of manifold to input mixup at K = 5 in one round of whole steps."""
    hidden = [times[case.key("whole")] for case in cases("manifoldmix", 5) if case.layer is not None]
    ratios = [
        statistics.fmean([mixup, *(layer[i] for layer in hidden)]) / mixup for i, mixup in enumerate(times["mixup 5 whole"])
    ]
    return min(ratios), max(ratios)


def judge(name: str, is_met: bool, words: str, most: str) -> None:
    print(f"{'MET   ' if is_met else 'MISSED'} {name}: {words}; at most {most}")


if __name__ == "__main__":
    main()
