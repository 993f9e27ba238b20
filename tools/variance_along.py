"""The variance of the gradient along one training of the study, for several ways of drawing λ: docs/study.md, arm 4.

    python tools/variance_along.py --out multimix-variance-along

One network of the recipe ``superclasses`` is trained with input mixup, K = 1, in float32. After some of its epochs the variance
of the gradient of a batch of 50 pairs is measured at fixed weights, in evaluation mode, and written to a table. Epochs that are
in the table already are not measured again.
"""

import argparse
import csv
from pathlib import Path

import torch
from torch import nn

import multimix as mm
from multimix.core.sampling import seeded
from multimix.lab.commands.options import data_folder
from multimix.lab.data import Loader
from multimix.lab.recipes import recipe
from multimix.lab.studies.variance.measure import measure_variance
from multimix.lab.training.loop import as_stored
from multimix.lab.training.step import START, seed_everything

SEED, AFTER = 1000, (1, 20, 40, 80, 120, 160)
FIELDS = ("epoch", "way", "k", "variance", "half", "squared_norm", "replicates")


def ways(alpha: float) -> dict[str, tuple[mm.PairMethod, tuple[int, ...], int]]:
    """Name → method, Ks, and pairs of a batch as a multiple of 50."""
    return {
        "iid": (mm.InputMixup(alpha=alpha), (1, 2, 5), 1),
        "stratified": (mm.InputMixup(alpha=alpha, sampler="stratified"), (5,), 1),
        "antithetic": (mm.InputMixup(alpha=alpha, sampler="antithetic"), (2, 5), 1),
        "a path for every pair": (mm.InputMixup(alpha=alpha, per_pair=True), (1, 5), 1),
        "5 times the pairs": (mm.InputMixup(alpha=alpha), (1,), 5),
        "cutmix": (mm.CutMix(alpha=alpha), (1, 5), 1),
        "manifold mixup, stage 1": (mm.ManifoldMixup(alpha=alpha, layers=("stage1",)), (1, 5), 1),
        "manifold mixup, stage 3": (mm.ManifoldMixup(alpha=alpha, layers=("stage3",)), (1, 5), 1),
    }


def trained(settings, split, until: list[int]):
    """The network after each of the epochs ``until``, which ascend."""
    seed_everything(START, SEED)
    net = settings.network.built(len(split.classes), 3)
    options = settings.optimizer
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=options.momentum, nesterov=True, weight_decay=options.weight_decay)
    loader = Loader(split, settings.augment.training(settings.data.entry()), batch=settings.batch, seed=SEED)
    method, updates = mm.InputMixup(alpha=1.0), len(split) // settings.batch
    for epoch in range(max(until)):
        net.train()
        for step, (x, y) in enumerate(loader.epoch(epoch)):
            for group in sgd.param_groups:
                group["lr"] = settings.schedule.at_epoch(epoch + step / updates)
            out = mm.mixed_forward(net, method, x, y, generator=seeded(SEED, epoch, step))
            sgd.zero_grad()
            out.loss(nn.functional.cross_entropy).backward()
            sgd.step()
        if epoch + 1 in until:
            yield epoch + 1, net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="where CIFAR-100 is (default: $MULTIMIX_DATA, or data)")
    parser.add_argument("--out", type=Path, default=Path("multimix-variance-along"), help="where the table goes")
    parser.add_argument("--replicates", type=int, default=200, help="batches that each variance is measured with")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = recipe("superclasses").settings("small")
    entry = settings.data.entry()
    split = entry.read(data_folder(options.data))["train"].subset(settings.data.per_class, settings.data.subset_seed)
    split = as_stored(split, None)
    everything = Loader(split, settings.augment.evaluation(entry), batch=len(split), seed=SEED)
    x, y = next(iter(everything.epoch(0)))
    table = options.out / "variance-along.csv"
    options.out.mkdir(parents=True, exist_ok=True)
    known = {int(row["epoch"]) for row in csv.DictReader(table.open())} if table.exists() else set()
    for epoch, net in trained(settings, split, [after for after in AFTER if after not in known]):
        rows = []
        for way, (method, ks, times) in ways(1.0).items():
            found = measure_variance(net, method, x, y, ks=ks, batch=50 * times, replicates=options.replicates, seed=epoch)
            rows += [(epoch, way, one.k, *one.variance, one.squared_norm.value, options.replicates) for one in found]
            print(*rows[-len(found) :], sep="\n", flush=True)
        with table.open("a", newline="") as file:
            writer = csv.writer(file)
            writer.writerows(rows if known else [FIELDS, *rows])
        known.add(epoch)


if __name__ == "__main__":
    main()
