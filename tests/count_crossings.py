"""For tests/core/test_devices.py, in a process of its own: every method on the pretend accelerator; prints JSON.

``count`` and ``train`` (with a model, its loss and its gradients): downloads, blocking and other uploads and operations of the
second of two equal steps; the first one copies constants.
``agree``: how far results on the device are from those on the CPU; with ``narrow`` it has no float64.
"""

import json
import os
import sys
from collections import OrderedDict
from functools import partial

import simdev
import torch
import track
from torch import nn

import multimix as mm
from multimix.methods.samix.block import NewBlock
from multimix.testing import Case, cases, past, saliency, seeded

B, K, CLASSES = 6, 3, 4


def batch_of(known):
    size = (B, 3, 24, 20) if known.mixes("images") else (B, 16, 3)
    return torch.rand(size, generator=seeded(1)), torch.arange(B) % CLASSES


def given_for(method, x, y, device):
    """Saliency and history where the method needs them, as a model on the device would have made them."""
    maps = saliency(x) if x.ndim == 4 else torch.rand(x.shape[:2], generator=seeded(2))
    given = dict.fromkeys(method.traits.needs, maps) | past(method, x, CLASSES, y)
    return {name: value.to(device) for name, value in given.items()}


def step(method, x, y, given):
    """Plan, mixed batch and target, as a training step has them."""
    plan = method.plan(x, generator=seeded(0), **given)
    mixed, target = plan.mix(x), plan.mix_target(y, CLASSES)
    return plan.lam, mixed, target


def all_cases():
    return [case for known in mm.registry.entries() for case in (cases(known) if known.mixes("images") else [Case(known, {})])]


def count(case):
    method = case.make(K)
    method.modules.to("sim")
    x, y = batch_of(case.entry)
    given, x, y = given_for(method, x, y, "sim"), x.to("sim"), y.to("sim")
    for _ in range(2):
        with track.Track() as crossings:
            step(method, x, y, given)
    return told_of(crossings)


def told_of(crossings):
    found, sizes = crossings.summary()
    return {
        "downloads": found["D2H"],
        "blocking": found["H2D"],
        "uploads": found["H2D"] + found["H2D async"],
        "uploaded": sizes["H2D"] + sizes["H2D async"],
        "operations": crossings.ops,
        "where": [str(row) for row in crossings.table()],
    }


def network():
    torch.manual_seed(0)
    layers = {"body": nn.Conv2d(3, 4, 3), "act": nn.Tanh(), "pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
    return nn.Sequential(OrderedDict(**layers, head=nn.Linear(4, CLASSES))).to("sim")


def train(method):
    method.modules.to("sim")
    x, y = torch.rand(B, 3, 24, 20, generator=seeded(1)), torch.arange(B) % CLASSES
    given = {name: value.to("sim") for name, value in past(method, x, CLASSES, y).items()}
    if method.traits.own_loss is not None and given:
        given["history_logits"] = torch.rand(B, CLASSES, generator=seeded(2)).to("sim")
    model, x, y = network(), x.to("sim"), y.to("sim")
    for _ in range(2):
        with track.Track() as crossings:
            out = mm.mixed_forward(model, method, x, y, generator=seeded(0), **given)
            out.loss().backward()
    return told_of(crossings)


def trained():
    """One of each method for images, and those whose loss or noise takes more."""
    kinds = [known for known in mm.registry.entries() if known.mixes("images")]
    plain = [(str(case), case.make(K)) for known in kinds for case in [next(cases(known))]]
    more = [
        mm.PuzzleMix(k=K, adv_p=1.0, clean_weight=1.0),
        mm.create("sage", k=K, update_ratio=0.5),
        mm.create("recursivemix", k=K, features="act", head="head"),
        mm.create("alignmixup", k=K, layers=("body",), input_share=0.0),
        mm.create("samix", k=K, block=NewBlock("body")).bind(network().cpu(), torch.rand(2, 3, 24, 20)),
    ]
    return [*plain, *((str(method), method) for method in more)]


def distance(case):
    x, y = batch_of(case.entry)
    here = case.make(K)
    expected = step(here, x, y, given_for(here, x, y, "cpu"))
    there = case.make(K)
    there.modules.to("sim")
    found = step(there, x.to("sim"), y.to("sim"), given_for(there, x, y, "sim"))
    there.modules.to("cpu")
    return {
        "types": [str(value.dtype) for value in found],
        "apart": [float((a.double() - b.cpu().double()).abs().max()) for a, b in zip(expected, found, strict=True)],
    }


def main(task):
    if task == "narrow":
        simdev.ext.refuse_f64(True)
    if task == "train":
        todo = [(label, method.name, partial(train, method)) for label, method in trained()]
    else:
        todo = [(str(case), case.entry.name, partial(count if task == "count" else distance, case)) for case in all_cases()]
    print(json.dumps({label: {"name": name, **tried(work)} for label, name, work in todo}))


def tried(work):
    """One method's failure is not that of the others."""
    try:
        return work()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


main(sys.argv[1])
sys.stdout.flush()
os._exit(0)  # the usual way out may end in a crash: the pretend device has a thread for gradients that nobody joins
