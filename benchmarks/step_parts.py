"""What benchmarks/step.py times: the parts of a training step with many rounds, whole steps with few, and what comes of them."""

import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor, nn

import multimix as mm
from multimix.lab.data import Images, Loader, Split, dataset, read
from multimix.lab.nets import network as named_network
from multimix.lab.recipes import recipe
from multimix.lab.recipes.base import arm_settings
from multimix.lab.recipes.settings import Network, Settings
from multimix.lab.training.step import squared_grad_norm, update

RECIPE = recipe("cifar100_preact_resnet18")

CIFAR100 = dataset("cifar100")
ARMS = ("none", *RECIPE.options)
# What a method draws for each batch, every one equally likely, where it matters for the time.
VARIANTS = {"manifoldmix": ("input", "stage1", "stage2"), "puzzlemix": ("2", "4", "8", "16")}
DIRECT = {("cutmix", 5, ""), ("puzzlemix", 5, "8")}  # timed whole although the sum of their parts is enough
KEPT = 4  # batches that the parts are timed with, in turn
Times = dict[str, list[float]]


class Case(NamedTuple):
    """One kind of step: a method, its K, and what it drew for the batch."""

    arm: str
    k: int = 1
    variant: str = ""

    def method(self) -> mm.Method:
        """The method that always draws this variant."""
        method: Any = arm_settings(RECIPE, RECIPE.settings("paper"), self.arm, self.k).method
        if self.arm == "manifoldmix":
            return replace(method, layers=(self.layer,))
        return replace(method, blocks=(int(self.variant),)) if self.arm == "puzzlemix" else method

    @property
    def layer(self) -> str | None:
        """Where it mixes; None is the input."""
        return self.variant if self.variant.startswith("stage") else None

    @property
    def is_needed(self) -> bool:
        """Whether it must be timed whole, since others take the time of the network from it."""
        return self.arm in ("none", "mixup") or self.layer is not None

    def key(self, part: str) -> str:
        """The name of its times."""
        return " ".join(filter(None, (self.arm, str(self.k), self.variant, part)))


def cases(arm: str, k: int) -> list[Case]:
    """Everything that a method may draw."""
    return [Case(arm, k, variant) for variant in VARIANTS.get(arm, ("",))]


def all_cases(ks: list[int]) -> list[Case]:
    """Every method at every K; no mixing once."""
    return [Case("none"), *(case for arm in ARMS[1:] for k in ks for case in cases(arm, k))]


@dataclass(frozen=True)
class Setup:
    """A network with its optimiser, and a source of batches."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    accelerator: Accelerator
    settings: Settings
    loader: Loader

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batch after batch, without end, in the memory order of the network."""
        for epoch in itertools.count():
            for x, y in self.loader.epoch(epoch):
                yield x.to(memory_format=torch.channels_last), y

    def kind(self, case: Case) -> Settings:
        """The settings of one kind of step."""
        return replace(self.settings, method=case.method())


def train_split(folder: Path | None) -> tuple[Split, str]:
    """CIFAR-100's training images, or noise of the same shape where there is no folder; and what they are in words."""
    if folder:
        return read("cifar100", folder)["train"], "CIFAR-100"
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (50_000, *CIFAR100.size), dtype=torch.uint8, generator=generator)
    names = tuple(map(str, range(CIFAR100.classes)))
    return Images(pixels, torch.arange(50_000) % CIFAR100.classes, names), "synthetic pixels (no CIFAR-100 in $MULTIMIX_DATA)"


def made(name: str, split: Split, batch: int) -> Setup:
    """The network ``name`` with start values, set up as the lab does it."""
    torch.manual_seed(0)
    settings = replace(RECIPE.settings("paper"), network=Network(name), batch=batch)
    model = named_network(name, CIFAR100.classes).to(memory_format=torch.channels_last)
    # At rate 0 a step costs the same, and the network stays what it is for all rounds.
    sgd = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=1e-4)
    accelerator = Accelerator(cpu=True)
    model, sgd = accelerator.prepare(model, sgd)
    loader = Loader(split, settings.augment.training(CIFAR100), batch=batch)
    return Setup(name, model, sgd, accelerator, settings, loader)


def measure(setup: Setup, ks: list[int], spent: Times, part_rounds: int, step_rounds: int, many: bool) -> Iterator[None]:
    """Adds CPU seconds to ``spent``, by name, and hands back control after all parts and after every round of whole steps.

    With ``many`` all kinds of steps at K = 1 and 5 are timed whole, not only those that are needed, and each once before.
    """
    stream = setup.batches()
    kept = [next(stream) for _ in range(KEPT)]
    maps = [mm.input_saliency(setup.model, x, y) for x, y in kept]
    chosen = [case for case in all_cases(ks) if case.is_needed or case in DIRECT or (many and case.k in (1, 5))]
    for case in (Case("puzzlemix", 1, "16"), *(chosen if many else ())):  # compiles, and fills what is filled once
        whole_step(setup, case, *kept[0], maps[0], {})
    features = hidden_features(setup.model, kept[0][0])
    for turn in range(part_rounds):
        timed(spent, "load", lambda: next(stream))
        timed(spent, "optimiser", lambda: (squared_grad_norm(setup.model), setup.optimizer.step()))
        for case in random.sample(all_cases(ks), len(all_cases(ks))):
            time_mixing(spent, case, *kept[turn % KEPT], maps[turn % KEPT], features)
    yield
    for turn in range(step_rounds):
        x, y = kept[turn % KEPT]
        timed(spent, "saliency", lambda x=x, y=y: mm.input_saliency(setup.model, x, y))
        for case in random.sample(chosen, len(chosen)):
            whole_step(setup, case, x, y, maps[turn % KEPT], spent)
        yield


def timed(spent: Times, name: str, call: Callable[[], object]) -> object:
    """What the call gives; its CPU time is noted."""
    start = time.process_time()
    result = call()
    spent.setdefault(name, []).append(time.process_time() - start)
    return result


def whole_step(setup: Setup, case: Case, x: Tensor, y: Tensor, saliency: Tensor, spent: Times) -> None:
    """One update of the lab, and before it the mixing alone: "cold", since the last pass has just used all caches."""
    method = case.method()
    given = {"saliency": saliency} if "saliency" in method.traits.needs else {}
    if case.layer is None:

        def mixing() -> object:
            plan = method.plan(x, **given)
            return plan.mix(x), plan.mix_target(y, CIFAR100.classes)

        timed(spent, case.key("cold"), mixing)
    key = (0, 0, len(spent.get(case.key("whole"), [])))
    settings = setup.kind(case)
    timed(spent, case.key("whole"), lambda: update(setup.accelerator, setup.model, setup.optimizer, settings, [(x, y)], key))


def time_mixing(spent: Times, case: Case, x: Tensor, y: Tensor, saliency: Tensor, features: dict[str, Tensor]) -> None:
    """Plan, pixels (or hidden features, with their way back) and target of one batch."""
    method = case.method()
    given = {"saliency": saliency} if "saliency" in method.traits.needs else {}
    plan = timed(spent, case.key("plan"), lambda: method.plan(x, **given))
    assert isinstance(plan, mm.plans.PairPlan)
    if case.layer is None:
        timed(spent, case.key("mix"), lambda: plan.mix(x))
    else:
        z = features[case.layer]
        grad = z.detach().repeat(case.k, 1, 1, 1)
        timed(spent, case.key("mix"), lambda: torch.autograd.grad(plan.mix(z), z, grad))
    timed(spent, case.key("target"), lambda: plan.mix_target(y, CIFAR100.classes))


def hidden_features(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """What each layer to mix at puts out."""
    found: dict[str, Tensor] = {}
    layers = [layer for layer in VARIANTS["manifoldmix"] if layer != "input"]

    def keep(name: str) -> Callable[..., None]:
        return lambda module, args, result: found.update({name: result.detach().clone().requires_grad_()})

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in layers]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found


def gigabytes_per_row(setup: Setup) -> float:
    """What autograd keeps for one row of the batch between forward and backward."""
    held: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.zeros(8, *CIFAR100.size).contiguous(memory_format=torch.channels_last)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = setup.model(x)
    own = {weight.untyped_storage().data_ptr() for weight in setup.model.parameters()}
    del result
    return sum(size for place, size in held.items() if place not in own) / 8 / 1e9


def free_gigabytes() -> float:
    """Memory that is there to be used, on Linux; elsewhere all there is."""
    lines = Path("/proc/meminfo")
    if lines.exists():
        found = [line.split() for line in lines.read_text().splitlines() if line.startswith("MemAvailable")]
        return int(found[0][1]) / 1e6
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


class Step(NamedTuple):
    """The parts of a kind of step in CPU seconds; "mix" and "network" of a hidden layer are apart, too."""

    load: float
    saliency: float
    plan: float
    mix: float
    target: float
    network: float
    optimiser: float

    @property
    def mixing(self) -> float:
        """Everything that would not be there without mixing, but for the saliency."""
        return self.plan + self.mix + self.target

    @property
    def whole(self) -> float:
        return sum(self)


def step_of(times: Times, arm: str, k: int, variant: str | None = None) -> Step:
    """The parts of a step: medians over rounds, averaged over what may be drawn, or of one variant."""
    found = [_step_of_case(times, case) for case in cases(arm, k) if variant in (None, case.variant)]
    return Step(*(statistics.fmean(part) for part in zip(*found, strict=True)))


def _step_of_case(times: Times, case: Case) -> Step:
    def middle(name: str) -> float:
        return statistics.median(times[name])

    def mixing(which: Case) -> list[float]:
        return [middle(which.key(part)) for part in ("plan", "mix", "target")]

    alike = [one for one in timed_whole(times, case.k) if one.layer == case.layer]
    passes = [seconds - sum(mixing(one)) - middle("optimiser") for one in alike for seconds in times[one.key("whole")]]
    network = statistics.median(passes)
    saliency = middle("saliency") if case.arm == "puzzlemix" else 0.0
    return Step(middle("load"), saliency, *mixing(case), network, middle("optimiser"))


def timed_whole(times: Times, k: int) -> list[Case]:
    """The kinds of steps that the time of the network at K is taken from: all but those with a second pass."""
    found = [case for case in all_cases([k]) if case.k == k and case.arm != "puzzlemix"]
    return [case for case in found if case.key("whole") in times]
