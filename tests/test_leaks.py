"""Nothing is kept from step to step: hundreds of batches need no more memory than 100, for every registered method.

What is alive is counted: tensors, blocks of Python's allocator (the garbage collector knows no numbers in a list), and, where
glibc tells it, bytes that ``malloc`` has handed out, in which are graphs of autograd that only C++ refers to. Nothing is timed,
and the size of the process is not read, which depends on much else. The last tests hoard in several ways and must be seen.
"""

import ctypes
import gc
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import ClassVar, NamedTuple

import pytest
import torch
from torch import nn

import multimix as mm
from multimix.methods.samix.block import MixBlock
from multimix.methods.style.small_pair import small_style_pair
from oracles import seeded
from style_oracle import IDENTITY

FIRST, EVERY, STRETCHES = 100, 450, 5  # steps before the first count and between two, and how often at most
TRAINED = 20  # every so often a step is a whole one
BATCH, CLASSES, CHANNELS, SIDE = 3, 3, 2, 4
# What may come by chance in 450 steps: something kept in each would be 450 blocks at least, a graph in each that trains 50 kB.
SLACK = {"tensors": 0, "blocks": 200, "bytes": 20_000}


class Alive(NamedTuple):
    """What was made since the test began and still exists; ``bytes`` is always 0 where the C library does not tell."""

    tensors: int
    blocks: int
    bytes: int


class Mallinfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_: ClassVar = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]  # fmt: skip


def allocated():
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return 0
    ask.restype = Mallinfo
    told = ask()
    return told.uordblks + told.hblkhd


def alive():
    gc.collect()
    tensors = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
    return Alive(tensors, sys.getallocatedblocks(), allocated())


@pytest.fixture(scope="module", autouse=True)
def only_what_is_new():
    """Nothing that was there before is searched for garbage: with torch imported that takes most of the time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def grown(step):
    """What steps leave behind in every stretch, beyond chance.

    What fills up is not in all: after calls of numba's kernels some 300, 120, 130, 70, 30 blocks more (without the kernel none).
    """
    seen, least = [], dict.fromkeys(SLACK, math.inf)
    for steps in (FIRST, *[EVERY] * STRETCHES):
        for _ in range(steps):
            step()
        seen.append(alive())
        for before, now in pairwise(seen[-2:]):
            least = {name: min(more, getattr(now, name) - getattr(before, name)) for name, more in least.items()}
        if all(more <= SLACK[name] for name, more in least.items()):
            break
    return {name: more for name, more in least.items() if more > SLACK[name]}


class CloudNet(nn.Module):
    """Class scores of clouds ``[B, N, 3]``."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x):
        return self.head(x).amax(1)


def network():
    body, pool = nn.Conv2d(CHANNELS, CHANNELS, 1), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(OrderedDict(body=body, pool=pool, flat=nn.Flatten(), head=nn.Linear(CHANNELS, CLASSES)))


def made(kind, model):
    """The method, small: its own networks, grids and layers are those of 4 × 4 pixels."""
    options = {
        "alignmixup": {"layers": ("body",), "rounds": 2},
        "comixup": {"blocks": 2, "window": 2, "threads": 1},
        "manifoldmix": {"layers": (None, "body")},
        "puzzlemix": {"blocks": 2, "std": 0.1, "threads": 1},
        "recursivemix": {"features": "body", "head": "head"},
        "sagemix": {"threads": 1},
        "stylemix": {"pair": small_style_pair(CHANNELS, 2), "side": None},
        "stylecutmix": {"pair": IDENTITY, "side": None},
    }.get(kind.name, {})
    if kind is mm.NoMix:
        return kind()
    if kind is mm.SAMix:
        options = {"block": MixBlock(model, "body", CHANNELS)}
    return kind(k=2, **options)


def work(method, model):
    """One step after the other: plan, mix and target, and now and then a whole step of training, which carries things on."""
    shape = (5, 3) if method.layout == "points" else (CHANNELS, SIDE, SIDE)
    places = shape[:1] if method.layout == "points" else shape[1:]
    draws, given, turns = seeded(0), {}, count()

    def step():
        # New tensors each time, as from a data loader: what is kept of them cannot be the same again.
        x, y = torch.rand(BATCH, *shape, generator=draws), torch.randint(CLASSES, (BATCH,), generator=draws)
        if next(turns) % TRAINED == 0:
            train(method, model, x, y, draws, given)
            return
        needed = {name: torch.rand(BATCH, *places, generator=draws) for name in method.traits.needs}
        plan = method.plan(x, generator=draws, **needed, **given)
        if plan.layer is None:
            plan.mix(x)
        plan.mix_target(y, CLASSES)

    return step


def train(method, model, x, y, draws, given):
    """Loss and gradients of a batch; ``given`` receives the state for the next batch."""
    out = mm.mixed_forward(model, method, x, y, generator=draws, state=given)
    out.loss().backward()
    model.zero_grad()
    given.update(out.state)
    if isinstance(method, mm.SAMix):
        method.block.update(model)


@pytest.mark.parametrize("kind", [entry.method for entry in mm.registry.entries()], ids=lambda kind: kind.name)
def test_memory_does_not_grow(kind):
    model = CloudNet() if kind.layout == "points" else network()
    assert grown(work(made(kind, model), model)) == {}


def test_a_choice_between_methods_does_not_grow():
    model = network()
    choice = mm.OneOf((mm.CutMix(k=2), mm.InputMixup(k=3)), (0.5, 0.4))
    assert grown(work(choice, model)) == {}


def test_the_drop_in_does_not_grow():
    draws, mixer = seeded(0), mm.Mix(mm.CutMix(k=2), CLASSES, seed=0)
    assert grown(lambda: mixer(torch.rand(BATCH, CHANNELS, SIDE, SIDE, generator=draws), torch.zeros(BATCH).long())) == {}


@dataclass(frozen=True, kw_only=True)
class Hoarder(mm.InputMixup):
    """Mixup that keeps what ``keep`` makes of every batch and its plan."""

    keep: Callable
    kept: list = field(default_factory=list)

    def build(self, x, partner, lam, **given):
        plan = super().build(x, partner, lam, **given)
        self.kept.append(self.keep(x, plan))
        return plan


@pytest.mark.parametrize(
    ("keep", "kind"),
    [
        (lambda x, plan: plan, "tensors"),
        (lambda x, plan: x, "tensors"),
        (lambda x, plan: float(plan.lam[0, 0]), "blocks"),
        (lambda x, plan: id(x), "blocks"),
        (lambda x, plan: bytes(1000), "bytes"),
    ],
    ids=["plans", "batches", "numbers", "keys", "memory"],
)
def test_what_is_kept_is_seen(keep, kind):
    if kind == "bytes" and allocated() == 0:
        pytest.skip("the C library does not tell how much it has handed out")
    assert kind in grown(work(Hoarder(k=2, keep=keep), network()))


def test_a_graph_that_grows_is_seen():
    """Nodes of a graph that save no tensor are nothing that Python knows of."""
    if allocated() == 0:
        pytest.skip("the C library does not tell how much it has handed out")
    total = torch.ones((), requires_grad=True)

    def step():
        nonlocal total
        total = total * 0.5

    assert grown(step).keys() == {"bytes"}
