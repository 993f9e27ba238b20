"""How many Python functions of the library one training step calls."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

import multimix as mm

SOURCE = str(Path(mm.__file__).parent)
X, Y = torch.rand(16, 3, 32, 32), torch.arange(16) % 10
MODEL = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
MIX = mm.Mix(mm.CutMix(k=1), num_classes=10)

STEPS = {
    "Mix": (lambda: MIX(X, Y), 45),
    "mixed_forward": (lambda: mm.mixed_forward(MODEL, mm.CutMix(k=5), X, Y), 90),
}


def python_calls(function):
    """Count the calls of functions defined in the library, by name."""
    calls = Counter()

    def count(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            path = Path(frame.f_code.co_filename).relative_to(SOURCE)
            calls[f"{path}:{frame.f_code.co_name}"] += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("name", STEPS)
def test_calls_per_step(name):
    step, limit = STEPS[name]
    step()
    calls = python_calls(step)
    listing = "\n".join(f"{count:3} {function}" for function, count in calls.most_common())
    assert 0 < calls.total() <= limit, f"{calls.total()} calls\n{listing}"


def test_calls_are_counted():
    assert python_calls(lambda: mm.losses.soft_target(Y, 10))["core/targets.py:soft_target"] == 1
    assert python_calls(lambda: torch.zeros(3).tolist()).total() == 0


if __name__ == "__main__":
    for name, (step, _) in STEPS.items():
        step()
        calls = python_calls(step)
        print(name, calls.total(), *calls.most_common(), sep="\n  ")
