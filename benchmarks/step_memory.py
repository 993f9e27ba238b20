"""A step at K = 5 in one pass, in parts of K, and with checkpointed blocks: CPU time and the most memory that tensors take.

    python benchmarks/step_memory.py                                        # the small network, a minute of CPU
    python benchmarks/step_memory.py --network preact_resnet18 --batch 8    # the paper's

32 px, input mixup, softmax-BCE, one thread, channels-last, start weights; time interleaved, freed memory kept. The checkpoints
are those of docs/loop.md, one for each residual block. Memory as torch hands it out: what the C library and oneDNN take beside
comes on top. "Off by" is the largest distance of a weight's gradient from that of the one pass, in its norms.
"""

import argparse
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from goals import interleaved, ratios
from torch import Tensor, nn
from torch.profiler import profile

import multimix as mm
from multimix.lab.nets import network

PAGE = Path(__file__).parents[1] / "docs" / "loop.md"
FORMS = {"one pass": None, "parts of one interpolation": 1, "checkpointed blocks": None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="preact_resnet18_small")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    mm.keep_memory()
    x = torch.randn(options.batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(100, (options.batch,))
    models = {form: made(options.network, form) for form in FORMS}
    steps = {form: partial(step, models[form], x, y, parts) for form, parts in FORMS.items()}
    bytes_taken = {form: most_bytes(call) for form, call in steps.items()}
    exact = gradients(models["one pass"])
    off = {
        form: max(float((a - b).norm() / b.norm()) for a, b in zip(gradients(model), exact, strict=True))
        for form, model in models.items()
    }
    spent = interleaved(steps, options.rounds)
    for form in FORMS:
        middle, low, high = ratios(spent[form], spent["one pass"])
        print(f"{form}: {middle:.2f} ({low:.2f} … {high:.2f}) times, {bytes_taken[form] / 1e6:.0f} MB, off by {off[form]:.2g}")


def made(name: str, form: str) -> nn.Module:
    torch.manual_seed(0)
    model = network(name, 100).to(memory_format=torch.channels_last)
    if form == "checkpointed blocks":
        (block_of_page,) = (
            block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def checkpointed" in block
        )
        names: dict[str, Any] = {"nn": nn}
        exec(block_of_page.split("\nblocks = ")[0], names)
        for stage in (part for part_name, part in model.named_children() if part_name.startswith("stage")):
            for block in stage.children():
                names["checkpointed"](block)
    return model


def step(model: nn.Module, x: Tensor, y: Tensor, parts: int | None) -> None:
    model.zero_grad()
    generator = torch.Generator().manual_seed(0)
    for part in mm.mixed_parts(model, mm.InputMixup(k=5), x, y, steps=parts, num_classes=100, generator=generator):
        part.loss(mm.losses.softmax_bce).backward()


def most_bytes(call: partial[None]) -> int:
    """The most that torch's tensors took at a time during the call, beyond what they took before."""
    with profile(profile_memory=True) as profiled:
        call()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]
    taken = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        taken += event.nbytes()
        most = max(most, taken)
    return most


def gradients(model: nn.Module) -> list[Tensor]:
    return [weight.grad for weight in model.parameters() if weight.grad is not None]


if __name__ == "__main__":
    main()
