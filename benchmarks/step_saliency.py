"""What shortens the saliency pass of puzzle-mix: the cost of a step at K = 1, and what becomes of maps and masks.

    python benchmarks/step_saliency.py                           # steps, start weights, a minute of CPU
    python benchmarks/step_saliency.py --runs RUN OTHER          # and maps: two runs of one recipe from two seeds, trained by
        multimix train superclasses --scale small --method none --seeds 0 1

Steps: B = 100, 32 px, softmax-BCE, SGD, one thread, CPU time, interleaved, beside a step that is given its map. Maps: those of
the first run on its own training images, beside its exact maps: correlation over 8 × 8 blocks, mean over images, and the share of
mask blocks that differ with the same pairs and λ, mean over the published grids. The other run says what is far: it is the same
network, data and settings, from another seed.
"""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from goals import interleaved, ratios
from real_saliency import data_folder
from torch import Tensor, nn

import multimix as mm
from multimix.geometry.blocks import BlockPlan
from multimix.geometry.grid import block_saliency
from multimix.lab.data.loader import Loader
from multimix.lab.nets import network
from multimix.lab.training.checkpoint import load_run
from multimix.lab.training.run import splits_of

STD, GRIDS, BATCH, BATCHES = 0.26, (2, 4, 8, 16), 100, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="preact_resnet18_small")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--runs", nargs=2, metavar=("RUN", "OTHER"), help="folders of two runs")
    parser.add_argument("--data", help="the folder of the data sets, else $MULTIMIX_DATA")
    options = parser.parse_args()
    torch.set_num_threads(1)
    mm.keep_memory()
    if options.rounds:
        time_steps(options.network, options.rounds)
    if options.runs:
        compare_maps(*options.runs, options.data)


def time_steps(name: str, rounds: int) -> None:
    torch.manual_seed(0)
    model = network(name, 100).to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=1e-4)
    x = torch.rand(BATCH, 3, 32, 32).sub(0.5).div(STD).contiguous(memory_format=torch.channels_last)
    y = torch.randint(100, (BATCH,))
    method, given = mm.PuzzleMix(std=STD), mm.input_saliency(model, x, y)
    clean = mm.PuzzleMix(std=STD, clean_weight=1.0, clean_scale="per_class")

    def update(method: mm.Method, saliency: Callable[[], Tensor] | None = None) -> Callable[[], None]:
        def call() -> None:
            maps = {} if saliency is None else {"saliency": saliency()}
            mm.mixed_forward(model, method, x, y, num_classes=100, **maps).loss(mm.losses.softmax_bce).backward()
            sgd.step()
            sgd.zero_grad()

        return call

    calls: dict[str, Callable[[], object]] = {
        "the map is given": update(method, lambda: given),
        "exact": update(method),
        "saliency_pool=2": update(mm.PuzzleMix(std=STD, saliency_pool=2)),
        "exact in bfloat16": update(method, lambda: saliency(model, x, y, bfloat16=True)),
        "cutmix": update(mm.CutMix()),
        "a clean loss, maps from its pass": update(clean),
        "a clean loss, maps from a pass of their own": update(clean, lambda: mm.input_saliency(model, x, y)),
    }
    spent = interleaved(calls, rounds)
    for what, seconds in spent.items():
        middle, low, high = ratios(seconds, spent["the map is given"])
        print(f"{what}: {middle:.2f} ({low:.2f} … {high:.2f}) times a step with the map given", flush=True)


def compare_maps(run: str, other: str, data: str | None) -> None:
    first, second = load_run(run), load_run(other)
    settings = first.settings
    folder = data_folder(data)
    assert folder is not None, "the images of the run: --data or $MULTIMIX_DATA"
    entry = settings.data.entry()
    split = splits_of(settings.data, folder, folder)["train"]
    split = split if settings.data.per_class is None else split.subset(settings.data.per_class, settings.data.subset_seed)
    loader = Loader(split, settings.augment.training(entry), batch=BATCH).epoch(0)
    batches = [batch for batch, _ in zip(loader, range(BATCHES), strict=False)]
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    std = entry.std
    exact = saliency(first.network, x, y)
    candidates = {
        "saliency_pool=2": saliency(first.network, x, y, pool=2),
        "saliency_pool=4": saliency(first.network, x, y, pool=4),
        "exact in bfloat16": saliency(first.network, x, y, bfloat16=True),
        "another seed": saliency(second.network, x, y),
        "no map: all places alike": torch.ones_like(exact),
    }
    masks = levels(x, exact, std)
    print(f"{len(x)} images; of the exact masks' rows {unmixed(masks):.0%} are unmixed")
    for what, maps in candidates.items():
        found = levels(x, maps, std)
        changed = torch.stack([(a != b).double().mean() for a, b in zip(found, masks, strict=True)]).mean()
        alike = correlation(maps, exact)
        print(f"{what}: correlation {alike:.3f}, {changed:.1%} of mask blocks differ, {unmixed(found):.0%} unmixed")


def saliency(model: nn.Module, x: Tensor, y: Tensor, *, pool: int | None = None, bfloat16: bool = False) -> Tensor:
    lower: AbstractContextManager[object] = torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext()
    with lower:
        return mm.input_saliency(model, x, y, pool=pool)


def levels(x: Tensor, maps: Tensor, std: tuple[float, ...]) -> list[Tensor]:
    """The levels of all mask blocks at K = 1, for every grid, always with the same pairs and λ."""
    found = []
    for blocks in GRIDS:
        method = mm.PuzzleMix(blocks=blocks, std=std, transport="none")
        plan = method.plan(
            x, saliency=maps, generator=torch.Generator().manual_seed(0), lam=torch.linspace(0.02, 0.98, len(x))[None]
        )
        assert isinstance(plan, BlockPlan)
        found.append(plan.levels)
    return found


def unmixed(masks: list[Tensor]) -> float:
    rows = [mask.flatten(2) for mask in masks]
    return float(torch.stack([(row.amin(2) == row.amax(2)).double().mean() for row in rows]).mean())


def correlation(maps: Tensor, exact: Tensor) -> float:
    a, b = (block_saliency(values, (8, 8)).flatten(1).double() for values in (maps, exact))
    return float(nn.functional.cosine_similarity(a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)).mean())


if __name__ == "__main__":
    main()
