"""What every method for images promises, as checks of a registered method: those of this package, and one of your own.

    from multimix.testing import check_method

    check_method("mymix")

Each check runs on every one of the method's ``examples``. A promise that it names among its ``exceptions`` is not asked for.
"""

import pickle
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from .batch import mixed_forward
from .forward import mixed_chunks, mixed_logits
from .methods import Method, NoMix, PairMethod
from .methods.registry import Entry, Promise, entry
from .plan import Plan
from .sampling import sample_path

SIZES = ((5, (7, 11)), (1, (4, 6)))  # batch and places: odd, not square, and a single sample


class Case(NamedTuple):
    """A registered method with some options."""

    entry: Entry
    options: Mapping[str, Any]

    def make(self, k: int = 5) -> Method:
        """The method for K steps."""
        return self.entry.method(**{**self.options, "k": k})

    def promises(self, promise: Promise) -> bool:
        """Whether the method gives this promise."""
        return promise not in self.entry.exceptions

    @property
    def mixes_pairs(self) -> bool:
        """Whether pair and path may be given."""
        return issubclass(self.entry.method, PairMethod)

    def plan(self, x: Tensor, k: int = 5, seed: int = 0, **given: Any) -> Plan:
        """The plan for ``x``, with what the method needs beside it: uneven maps for saliency, the batch itself for a history."""
        method = self.make(k)
        needs = {name: saliency(x) for name in method.traits.needs}
        return method.plan(x, generator=seeded(seed), **{**needs, **past(method, x), **given})

    def __str__(self) -> str:
        return " ".join([self.entry.name, *(f"{name}={value}" for name, value in self.options.items())])


def check_method(name: str) -> None:
    """Raise AssertionError unless the method registered as ``name`` keeps every promise, with each of its ``examples``."""
    known = entry(name)
    if not known.mixes("images"):
        raise ValueError(f"the checks are for methods that mix images, and {name} mixes {known.layout}")
    for case in cases(known):
        for title, check in CHECKS.items():
            try:
                check(case)
            except AssertionError as error:  # noqa: PERF203
                raise AssertionError(f"{case}: {title}: {error}") from error


def cases(known: Entry) -> Iterator[Case]:
    """The method with each of its examples; those that mix pairs with and without a path for every pair."""
    for options in known.examples:
        for per_pair in (False, True) if issubclass(known.method, PairMethod) else (None,):
            yield Case(known, options if per_pair is None else {**options, "per_pair": per_pair})


def seeded(seed: int) -> torch.Generator:
    """A generator for the CPU."""
    return torch.Generator().manual_seed(seed)


def saliency(x: Tensor) -> Tensor:
    """A map ``[B, …]`` for every sample, none of them even, the same in every precision."""
    return torch.rand(len(x), *x.shape[2:], generator=seeded(77)) ** 3 + 1e-3


def past(method: Method, x: Tensor, classes: int = 3, label: Tensor | None = None) -> dict[str, Any]:
    """What a method that looks back would know of the batch before: this one in reverse."""
    label = torch.zeros(len(x), dtype=torch.long) if label is None else label
    old = {"history_x": x.flip(0), "history_target": torch.eye(classes)[label.flip(0)]}
    return {name: value for name, value in old.items() if name in method.traits.history}


def images(batch: int, size: tuple[int, ...], channels: int = 2) -> Tensor:
    """Noise ``[B, C, *size]``, the same every time."""
    return torch.randn(batch, channels, *size, generator=seeded(0))


def source_images(batch: int, size: tuple[int, ...]) -> Tensor:
    """Image i is 1 in channel i and 0 elsewhere, so that a mixed image shows how much of each sample it holds."""
    channels = max(batch, 2)
    return torch.eye(batch, channels).reshape(batch, channels, *[1] * len(size)).expand(batch, channels, *size).contiguous()


class _Pooled(nn.Module):
    """Mean over places: class scores of "images" whose channel c is the share of sample c."""

    def forward(self, z: Tensor) -> Tensor:
        return z.flatten(2).mean(2)


def probe() -> nn.Module:
    """A network with a layer ``body`` whose scores for :func:`source_images` are the shares of the samples."""
    return nn.Sequential(OrderedDict(body=nn.Identity(), head=_Pooled()))


def check_shapes(case: Case) -> None:
    for batch, size in SIZES:
        x = images(batch, size)
        plan = case.plan(x)
        assert plan.k == (1 if case.entry.method is NoMix else 5), f"k is {plan.k}"
        mixed, target = plan.mix(x), plan.mix_target(torch.zeros(batch, dtype=torch.long), 3)
        assert (mixed.shape, mixed.dtype) == ((plan.k * batch, 2, *size), x.dtype), f"mixed {mixed.dtype} {list(mixed.shape)}"
        assert (plan.lam.shape, plan.lam.dtype) == ((plan.k, batch), torch.float64), (
            f"lam {plan.lam.dtype} {list(plan.lam.shape)}"
        )
        assert target.shape == (plan.k * batch, 3), f"target {list(target.shape)}"
        if plan.layer is None:
            assert plan.mask.shape == (plan.k, batch, 1, *size), f"mask {list(plan.mask.shape)}"


def check_target_is_the_pixel_share(case: Case) -> None:
    for batch, size in SIZES:
        x, y = source_images(batch, size), torch.arange(batch)
        for k, seed in ((1, 0), (5, 1), (5, 2)):
            _check_shares(case, x, y, k, seed)


def _check_shares(case: Case, x: Tensor, y: Tensor, k: int, seed: int) -> None:
    method = case.make(k)
    shares, target = mixed_logits(probe(), method, x, y, generator=seeded(seed), **past(method, x, max(2, len(x)), y))
    assert len(target) == k * len(x) or isinstance(method, NoMix), f"{len(target)} rows"
    assert_close(target.sum(1), torch.ones(len(target)))
    assert (target >= 0).all(), "a target is negative"
    if case.promises("target is the pixel share"):
        assert_close(shares, target, atol=1e-6, rtol=0)
    else:
        assert (target.argmax(1) == y.repeat(k)).all(), "the label changes"


def check_order_in_k(case: Case) -> None:
    if case.promises("order in k"):
        for batch, size in SIZES:
            for seed in range(3):
                plan = case.plan(images(batch, size), seed=seed)
                assert (plan.lam.diff(dim=0) >= 0).all(), "lam falls"
                assert (plan.mask.diff(dim=0) >= 0).all(), "masks are not nested"


def check_end_points(case: Case) -> None:
    if case.mixes_pairs:
        for batch, size in SIZES:
            x = images(batch, size)
            plan: Any = case.plan(x, seed=3, lam=[0.0, 1.0])
            at_0, at_1 = mixed_forward(nn.Sequential(OrderedDict(body=nn.Identity())), plan, x).chunk(2)
            assert torch.equal(at_0, x), "λ = 0 is not the sample"
            assert not case.promises("partner at 1") or torch.equal(at_1, x[plan.partner]), "λ = 1 is not the partner"


def check_a_step_of_k_5_is_k_1_at_its_lam(case: Case) -> None:
    if not case.mixes_pairs or not case.promises("a step is K = 1"):
        return
    x, partner = images(6, (7, 11)), torch.randperm(6, generator=seeded(2))
    lam = sample_path(5, 1.0, rows=6 if case.options["per_pair"] else 1, generator=seeded(1))
    whole = case.plan(x, seed=3, partner=partner, lam=lam)
    for k in range(5):
        single = case.plan(x, k=1, seed=3, partner=partner, lam=lam[k : k + 1])
        assert torch.equal(single.mix(x), whole.mix(x)[6 * k : 6 * (k + 1)]), f"step {k}"
        assert torch.equal(single.lam[0], whole.lam[k]), f"lam of step {k}"
        assert torch.equal(whole[k].mix(x), single.mix(x)), f"plan[{k}]"


def check_k_never_changes_the_pairing(case: Case) -> None:
    if case.promises("pairing"):
        plans: list[Any] = [case.plan(images(64, (4, 4)), k=k, seed=7) for k in (1, 5)]
        assert torch.equal(plans[0].partner, plans[1].partner), "partners differ"


def check_same_generator_same_plan(case: Case) -> None:
    first, again, other = (_tensors(case.plan(images(9, (7, 11)), seed=seed)) for seed in (0, 0, 1))
    assert first.keys() == again.keys()
    for name, value in first.items():
        assert torch.equal(value, again[name]), f"{name} differs"
    assert case.entry.method is NoMix or any(not torch.equal(value, other[name]) for name, value in first.items()), (
        "nothing is drawn"
    )


def _tensors(plan: Plan) -> dict[str, Tensor]:
    return {name: value for name, value in vars(plan).items() if isinstance(value, Tensor)}


def check_geometry_is_drawn(case: Case) -> None:
    """With pair and path given, what is left to draw must differ between seeds, and between pairs if it is per pair."""
    if not case.mixes_pairs or not case.promises("geometry"):
        return
    x, pairs = images(8, (12, 16)), torch.arange(8).roll(1)
    plans: list[Any] = [case.plan(x, k=1, seed=seed, partner=pairs, lam=[0.3]) for seed in range(12)]
    if any(layer is not None for layer in case.make().traits.mixes_at):
        assert len({plan.layer for plan in plans}) > 1, "the layer is always the same"
        return
    masks = torch.stack([plan.mask[0] for plan in plans])
    assert (masks[:, 0] != masks[0, 0]).any(), "all seeds give one mask"
    if case.promises("one mask for the batch"):
        assert bool((masks != masks[:, :1]).any()) == case.options["per_pair"], (
            "masks must differ by pair if and only if per_pair"
        )


def check_inputs_and_global_state_are_untouched(case: Case) -> None:
    x, y = images(6, (7, 11)), torch.arange(6) % 2
    x_before, y_before = x.clone(), y.clone()
    states = torch.get_rng_state(), pickle.dumps(np.random.get_state()), random.getstate()  # noqa: NPY002
    method = case.make()
    outputs = [*mixed_logits(probe(), method, x, y, num_classes=2, generator=seeded(3), **past(method, x, 2, y))]
    if not isinstance(method, NoMix):
        outputs.append(case.plan(x).mix(x))
    for output in outputs:
        output.fill_(9.0)
    assert torch.equal(x, x_before), "x has changed"
    assert torch.equal(y, y_before), "y has changed"
    assert torch.equal(torch.get_rng_state(), states[0]), "torch's global stream has moved"
    assert pickle.dumps(np.random.get_state()) == states[1], "NumPy's global stream has moved"  # noqa: NPY002
    assert random.getstate() == states[2], "Python's global stream has moved"


def check_chunks_have_the_gradient_of_the_whole(case: Case) -> None:
    x, y = images(6, (7, 11)).double(), torch.arange(6) % 4
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Conv2d(2, 3, 3, padding=1)
        model = nn.Sequential(OrderedDict(body=body, act=nn.Tanh(), head=nn.Flatten(), out=nn.Linear(3 * 77, 4))).double()
    method = case.make()
    before = past(method, x, 4, y)
    cross_entropy(*mixed_logits(model, method, x, y, generator=seeded(5), **before)).backward()  # type: ignore[no-untyped-call]
    whole = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    total = 0.0
    for part, target, weight in mixed_chunks(model, method, x, y, steps=2, generator=seeded(5), **before):
        assert len(part) <= 2 * 6, f"{len(part)} rows in a chunk"
        (weight * cross_entropy(part, target)).backward()  # type: ignore[no-untyped-call]
        total += weight
    assert abs(total - 1) < 1e-6, f"weights sum to {total}"
    for parameter, grad in zip(model.parameters(), whole, strict=True):
        assert_close(parameter.grad, grad)


def check_precision(case: Case) -> None:
    """Mixed in float32 and rounded once: within one rounding of the float64 mixture of the same inputs."""
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = images(5, (7, 11)).to(dtype)
        plan = case.plan(x)
        assert plan.mix(x).dtype == dtype, f"{dtype} becomes {plan.mix(x).dtype}"
        assert_close(plan.mix(x), plan.mix(x.double()).to(dtype), atol=1e-6, rtol=torch.finfo(dtype).eps)


def check_channels_last_is_kept(case: Case) -> None:
    for size, layout in (((7, 11), torch.channels_last), ((3, 4, 5), torch.channels_last_3d)):
        if len(size) == 2 or case.promises("volumes"):
            x = images(5, size, channels=3).contiguous(memory_format=layout)
            plan = case.plan(x)
            for z in (x, x.clone(memory_format=torch.preserve_format).requires_grad_()):
                assert plan.mix(z).is_contiguous(memory_format=layout), f"{layout} is lost"
                assert_close(plan.mix(z).detach(), plan.mix(x.contiguous()))


def check_signals_and_volumes(case: Case) -> None:
    sizes: tuple[tuple[Promise, tuple[int, ...]], ...] = (("signals", (13,)), ("signals", (1,)), ("volumes", (3, 4, 5)))
    for promise, size in sizes:
        if case.promises(promise):
            _check_shares(case, source_images(4, size), torch.arange(4), 5, 0)


def check_large_samples_are_mixed_alike(case: Case) -> None:
    """Large samples are mixed pair by pair, small ones all at once, those with gradients by one formula: all must agree."""
    if case.promises("large samples"):
        x = images(3, (130, 129), channels=3)
        plan = case.plan(x, k=3, seed=1)
        assert_close(plan.mix(x), plan.mix(x.clone().requires_grad_()).detach(), atol=1e-6, rtol=1e-6)
        out = torch.full((plan.k * 3, 3, 130, 129), 7.0)
        assert plan.mix(x, out=out) is out, "out= is not returned"
        assert torch.equal(out, plan.mix(x)), "out= gives something else"


def check_constant_images_stay_constant(case: Case) -> None:
    x = torch.full((4, 1, 6, 5), 0.25)
    mixed = case.plan(x).mix(x)
    assert torch.isfinite(mixed).all(), "not finite"
    if case.promises("target is the pixel share"):
        assert_close(mixed, torch.full_like(mixed, 0.25))


CHECKS: Mapping[str, Callable[[Case], None]] = {
    name.removeprefix("check_").replace("_", " "): check
    for name, check in list(globals().items())
    if name.startswith("check_") and name != "check_method"
}
