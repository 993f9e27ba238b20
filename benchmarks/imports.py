"""What ``import multimix`` and ``multimix --help`` cost beyond ``import torch``, in CPU seconds of processes of their own.

Byte code is kept, as pip keeps that of every installed package: else a checkout would be compiled in each process, torch not.
"""

import os
import resource
import statistics
import subprocess
import sys

RUNS = 7
MOST_RATIO, MOST_SECONDS = 1.15, 1.0
HELP = "import sys; from multimix.lab.cli import main; sys.argv = ['multimix', '--help']; main()"


def cpu_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    around = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=around)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(runs: int = RUNS) -> dict[str, list[float]]:
    """Name → seconds of every run."""
    codes = {"import torch": "import torch", "import multimix": "import multimix", "multimix --help": HELP}
    for code in codes.values():
        cpu_seconds(code)  # byte code is made, files go into the cache
    taken: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(runs):  # in turn, so that a busy machine is busy for all
        for name, code in codes.items():
            taken[name].append(cpu_seconds(code))
    return taken


def main() -> None:
    taken = measured()
    middle = {name: statistics.median(values) for name, values in taken.items()}
    for name, values in taken.items():
        low, _, high = statistics.quantiles(values, n=4)
        print(f"{name}: {middle[name]:.2f} s ({low:.2f} … {high:.2f})")
    ratio = middle["import multimix"] / middle["import torch"]
    beyond = middle["multimix --help"] - middle["import torch"]
    print(f"import multimix / import torch: {ratio:.2f}, {verdict(ratio, MOST_RATIO)}")
    print(f"multimix --help beyond import torch, in s: {beyond:.2f}, {verdict(beyond, MOST_SECONDS)}")


def verdict(value: float, most: float) -> str:
    return f"at most {most:g}: {'met' if value <= most else 'missed'}"


if __name__ == "__main__":
    main()
