"""Conformance checks for registered methods that mix images, built-in or from a plug-in.

Example::

    from multimix.testing import check_method

    check_method("mymix")

Each check runs with every entry of the method's ``examples``. Promises listed in its ``exceptions``
are skipped.
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

from .core.plan import Plan
from .core.sampling import sample_path
from .methods import Method, NoMix, PairMethod
from .methods.registry import Entry, Promise, entry
from .output import mixed_forward, mixed_parts, run_plan

SIZES = ((5, (7, 11)), (1, (4, 6)))
"""Batch and image sizes: odd and not square, and a single sample."""


class Case(NamedTuple):
    """A registered method with some options.

    Args:
        entry: The method.
        options: Its options but ``k``.
    """

    entry: Entry
    options: Mapping[str, Any]

    def make(self, k: int = 5) -> Method:
        """Create the method.

        Args:
            k: Number of interpolations.

        Returns:
            The method with the options of the case.
        """
        return self.entry.method(**{**self.options, "k": k})

    def promises(self, promise: Promise) -> bool:
        """Return whether a promise applies to the method.

        Args:
            promise: One of the keys that ``exceptions`` may have.

        Returns:
            False if it is among the method's exceptions.
        """
        return promise not in self.entry.exceptions

    @property
    def mixes_pairs(self) -> bool:
        """Whether ``plan`` takes ``partner`` and ``lam``."""
        return issubclass(self.entry.method, PairMethod)

    def plan(self, x: Tensor, k: int = 5, seed: int = 0, **given: Any) -> Plan:
        """Make a plan, with uneven saliency and a history if the method needs them.

        Args:
            x: ``[B, C, *size]`` samples.
            k: Number of interpolations.
            seed: Seed of the plan's draws.
            **given: Keywords of ``plan``, which replace the default ones.

        Returns:
            The plan.
        """
        method = self.make(k)
        needs = {name: saliency(x) for name in method.traits.needs}
        return method.plan(x, generator=seeded(seed), **{**needs, **past(method, x), **given})

    def __str__(self) -> str:
        options = (f"{name}={value}" for name, value in self.options.items())
        return " ".join([self.entry.name, *options])


def check_method(name: str) -> None:
    """Check a registered method for images: ends, order, labels, randomness, precision, layout.

    Args:
        name: The name or an alias that the method was registered with.

    Raises:
        AssertionError: If a promise is broken. The message names options and check.
        ValueError: If no such method is registered, or it does not mix images.
    """
    known = entry(name)
    if not known.mixes("images"):
        raise ValueError(f"name must be a method that mixes images, {name} mixes {known.layout}")
    for case in cases(known):
        for title, check in CHECKS.items():
            try:
                check(case)
            except AssertionError as error:  # noqa: PERF203
                raise AssertionError(f"{case}: {title}: {error}") from error


def cases(known: Entry) -> Iterator[Case]:
    """Yield the method with each of its examples; pair methods with and without ``per_pair``.

    Args:
        known: A registered method.

    Yields:
        The cases to check.
    """
    for options in known.examples:
        if issubclass(known.method, PairMethod):
            yield from (Case(known, {**options, "per_pair": value}) for value in (False, True))
        else:
            yield Case(known, options)


def seeded(seed: int) -> torch.Generator:
    """Create a generator.

    Args:
        seed: Its seed.

    Returns:
        A CPU generator.
    """
    return torch.Generator().manual_seed(seed)


def saliency(x: Tensor) -> Tensor:
    """Return an uneven map per sample, independent of the dtype of ``x``.

    Args:
        x: ``[B, C, *size]`` samples.

    Returns:
        ``[B, *size]`` above 0, from a fixed seed.
    """
    return torch.rand(len(x), *x.shape[2:], generator=seeded(77)) ** 3 + 1e-3


def past(
    method: Method, x: Tensor, classes: int = 3, label: Tensor | None = None
) -> dict[str, Any]:
    """Return the history keywords of a method: this batch in reverse as the previous one.

    Args:
        method: A method, possibly one without a history.
        x: ``[B, …]`` samples.
        classes: Number of classes.
        label: Class indices ``[B]``; None is class 0.

    Returns:
        Keywords of ``plan``, empty for methods without a history.
    """
    label = torch.zeros(len(x), dtype=torch.long) if label is None else label
    history = {"history_x": x.flip(0), "history_target": torch.eye(classes)[label.flip(0)]}
    return {name: value for name, value in history.items() if name in method.traits.history}


def images(batch: int, size: tuple[int, ...], channels: int = 2) -> Tensor:
    """Return noise from a fixed seed.

    Args:
        batch: Number of samples.
        size: Places along each axis.
        channels: Number of channels.

    Returns:
        ``[B, C, *size]``.
    """
    return torch.randn(batch, channels, *size, generator=seeded(0))


def source_images(batch: int, size: tuple[int, ...]) -> Tensor:
    """Return images where image i is 1 in channel i and 0 elsewhere.

    The channels of a mixture are then the shares of the samples.

    Args:
        batch: Number of samples.
        size: Places along each axis.

    Returns:
        ``[B, max(B, 2), *size]``.
    """
    channels = max(batch, 2)
    one_hot = torch.eye(batch, channels).reshape(batch, channels, *[1] * len(size))
    return one_hot.expand(batch, channels, *size).contiguous()


class _MeanOverPlaces(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return z.flatten(2).mean(2)


def probe() -> nn.Module:
    """Create a model with a layer ``body``. Its logits are the channel means.

    Returns:
        The model.
    """
    return nn.Sequential(OrderedDict(body=nn.Identity(), head=_MeanOverPlaces()))


def check_shapes(case: Case) -> None:
    """Check shapes and dtypes of plans, mixed batches and targets."""
    for batch, size in SIZES:
        x = images(batch, size)
        plan = case.plan(x)
        assert plan.k == (1 if case.entry.method is NoMix else 5), f"k is {plan.k}"
        mixed, lam = plan.mix(x), plan.lam
        target = plan.mix_target(torch.zeros(batch, dtype=torch.long), 3)
        assert mixed.shape == (plan.k * batch, 2, *size), f"mix returns {list(mixed.shape)}"
        assert mixed.dtype == x.dtype, f"mix returns {mixed.dtype}"
        assert lam.shape == (plan.k, batch), f"lam is {list(lam.shape)}"
        assert lam.dtype == torch.float64, f"lam is {lam.dtype}"
        assert target.shape == (plan.k * batch, 3), f"mix_target returns {list(target.shape)}"
        if plan.layer is None:
            assert plan.mask.shape == (plan.k, batch, 1, *size), f"mask is {list(plan.mask.shape)}"


def check_target_is_the_pixel_share(case: Case) -> None:
    """Check that targets are the share of pixels of each sample."""
    for batch, size in SIZES:
        for k, seed in ((1, 0), (5, 1), (5, 2)):
            _check_shares(case, source_images(batch, size), k, seed)


def _check_shares(case: Case, x: Tensor, k: int, seed: int) -> None:
    method, y = case.make(k), torch.arange(len(x))
    history = past(method, x, max(2, len(x)), y)
    out = mixed_forward(probe(), method, x, y, generator=seeded(seed), **history)
    target = out.target
    assert len(target) == k * len(x) or isinstance(method, NoMix), f"target has {len(target)} rows"
    assert_close(target.sum(1), torch.ones(len(target)))
    assert (target >= 0).all(), "the target has negative values"
    if case.promises("target is the pixel share"):
        assert_close(run_plan(probe(), out.plan, x), target, atol=1e-6, rtol=0)
    else:
        assert (target.argmax(1) == y.repeat(k)).all(), "the label changes"


def check_order_in_k(case: Case) -> None:
    """Check that λ and masks never decrease along k."""
    if not case.promises("order in k"):
        return
    for batch, size in SIZES:
        for seed in range(3):
            plan = case.plan(images(batch, size), seed=seed)
            assert (plan.lam.diff(dim=0) >= 0).all(), "lam decreases along k"
            assert (plan.mask.diff(dim=0) >= 0).all(), "masks are not nested"


def check_end_points(case: Case) -> None:
    """Check that λ = 0 gives the sample and λ = 1 its partner."""
    if not case.mixes_pairs:
        return
    body = nn.Sequential(OrderedDict(body=nn.Identity()))
    for batch, size in SIZES:
        x = images(batch, size)
        plan = case.plan(x, seed=3, lam=[0.0, 1.0])
        start, end = run_plan(body, plan, x).chunk(2)
        assert torch.equal(start, x), "λ = 0 is not the sample"
        if case.promises("partner at 1"):
            assert torch.equal(end, x[plan.partner]), "λ = 1 is not the partner"


def check_a_step_of_k_5_is_k_1_at_its_lam(case: Case) -> None:
    """Check that every step of K = 5 equals K = 1 at the same λ."""
    if not case.mixes_pairs or not case.promises("a step is K = 1"):
        return
    x, partner = images(6, (7, 11)), torch.randperm(6, generator=seeded(2))
    lam = sample_path(5, 1.0, rows=6 if case.options["per_pair"] else 1, generator=seeded(1))
    path = case.plan(x, seed=3, partner=partner, lam=lam)
    for k, rows in enumerate(path.mix(x).chunk(5)):
        single = case.plan(x, k=1, seed=3, partner=partner, lam=lam[k : k + 1])
        assert torch.equal(single.mix(x), rows), f"step {k} differs from K = 1"
        assert torch.equal(single.lam[0], path.lam[k]), f"lam of step {k} differs from K = 1"
        assert torch.equal(path[k].mix(x), rows), f"plan[{k}] differs from step {k}"


def check_k_never_changes_the_pairing(case: Case) -> None:
    """Check that partners do not depend on K."""
    if case.promises("pairing"):
        single, path = (case.plan(images(64, (4, 4)), k=k, seed=7) for k in (1, 5))
        assert torch.equal(single.partner, path.partner), "partners differ"


def check_same_generator_same_plan(case: Case) -> None:
    """Check that the generator decides the plan."""
    plans = (case.plan(images(9, (7, 11)), seed=seed) for seed in (0, 0, 1))
    first, again, other = (_tensors(plan) for plan in plans)
    assert first.keys() == again.keys()
    for name, value in first.items():
        assert torch.equal(value, again[name]), f"{name} differs for one seed"
    if case.entry.method is not NoMix:
        same = (torch.equal(value, other[name]) for name, value in first.items())
        assert not all(same), "another seed gives the same plan"


def _tensors(plan: Plan) -> dict[str, Tensor]:
    return {name: value for name, value in vars(plan).items() if isinstance(value, Tensor)}


def check_geometry_is_drawn(case: Case) -> None:
    """Check that masks are drawn, for each pair only with ``per_pair``."""
    if not case.mixes_pairs or not case.promises("geometry"):
        return
    x, partner = images(8, (12, 16)), torch.arange(8).roll(1)
    plans = [case.plan(x, k=1, seed=seed, partner=partner, lam=[0.3]) for seed in range(12)]
    if case.make().traits.mixes_at != (None,):
        assert len({plan.layer for plan in plans}) > 1, "all seeds give one layer"
        return
    masks = torch.stack([plan.mask[0] for plan in plans])
    assert (masks[:, 0] != masks[0, 0]).any(), "all seeds give one mask"
    if case.promises("one mask for the batch"):
        differ = bool((masks != masks[:, :1]).any())
        assert differ == case.options["per_pair"], "masks must differ by pair only with per_pair"


def check_inputs_and_global_state_are_untouched(case: Case) -> None:
    """Check that samples, labels and global random states do not change."""
    x, y = images(6, (7, 11)), torch.arange(6) % 2
    x_before, y_before, method = x.clone(), y.clone(), case.make()
    states = _global_states()
    history = past(method, x, 2, y)
    out = mixed_forward(probe(), method, x, y, num_classes=2, generator=seeded(3), **history)
    out.loss(cross_entropy)
    outputs = [out.logits, out.target]
    if not isinstance(method, NoMix):  # its plan returns x itself
        outputs.append(case.plan(x).mix(x))
    with torch.no_grad():
        for output in outputs:
            output.fill_(9.0)
    assert torch.equal(x, x_before), "x has changed"
    assert torch.equal(y, y_before), "y has changed"
    for library, state in _global_states().items():
        assert state == states[library], f"the global random state of {library} has changed"


def _global_states() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state().tolist(),
        "NumPy": pickle.dumps(np.random.get_state()),  # noqa: NPY002
        "Python": random.getstate(),
    }


def check_parts_have_the_gradient_of_the_batch(case: Case) -> None:
    """Check that mixing in parts gives the loss and gradient of the whole batch."""
    x, y = images(6, (7, 11)).double(), torch.arange(6) % 4
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body, head = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(3 * 77, 4)
    layers = OrderedDict(body=body, act=nn.Tanh(), flat=nn.Flatten(), head=head)
    model, method = nn.Sequential(layers).double(), case.make()
    losses, gradients = [], []
    for steps in (None, 2):
        model.zero_grad()
        given = {"generator": seeded(5), **past(method, x, 4, y)}
        parts = mixed_parts(model, method, x, y, steps=steps, **given)
        total = torch.zeros((), dtype=x.dtype)
        for part in parts:
            rows = len(part.target)
            assert steps is None or rows <= steps * len(x), f"a part has {rows} rows"
            loss = part.loss(cross_entropy)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        losses.append(total)
        gradients.append([weight.grad for weight in model.parameters()])
    assert_close(losses[1], losses[0])
    assert_close(gradients[1], gradients[0])


def check_precision(case: Case) -> None:
    """Check mixing in half and double precision."""
    # Mixed in float32 and rounded once: within one rounding of the float64 mixture.
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = images(5, (7, 11)).to(dtype)
        plan = case.plan(x)
        mixed, exact = plan.mix(x), plan.mix(x.double()).to(dtype)
        assert mixed.dtype == dtype, f"{dtype} becomes {mixed.dtype}"
        assert_close(mixed, exact, atol=1e-6, rtol=torch.finfo(dtype).eps)


def check_channels_last_is_kept(case: Case) -> None:
    """Check that the memory format is kept."""
    for size, layout in (((7, 11), torch.channels_last), ((3, 4, 5), torch.channels_last_3d)):
        if len(size) == 3 and not case.promises("volumes"):
            continue
        x = images(5, size, channels=3).contiguous(memory_format=layout)
        plan = case.plan(x)
        for z in (x, x.clone(memory_format=torch.preserve_format).requires_grad_()):
            mixed = plan.mix(z)
            assert mixed.is_contiguous(memory_format=layout), f"{layout} is lost"
            assert_close(mixed.detach(), plan.mix(x.contiguous()))


def check_signals_and_volumes(case: Case) -> None:
    """Check the target of signals and volumes."""
    sizes: tuple[tuple[Promise, tuple[int, ...]], ...] = (
        ("signals", (13,)),
        ("signals", (1,)),
        ("volumes", (3, 4, 5)),
    )
    for promise, size in sizes:
        if case.promises(promise):
            _check_shares(case, source_images(4, size), 5, 0)


def check_large_samples_are_mixed_alike(case: Case) -> None:
    """Check that large samples are mixed as with gradients."""
    # Without gradients, large samples are mixed one by one.
    if case.promises("large samples"):
        x = images(3, (130, 129), channels=3)
        plan = case.plan(x, k=3, seed=1)
        with_gradient = plan.mix(x.clone().requires_grad_()).detach()
        assert_close(plan.mix(x), with_gradient, atol=1e-6, rtol=1e-6)


def check_constant_images_stay_constant(case: Case) -> None:
    """Check that equal constant images stay constant."""
    x = torch.full((4, 1, 6, 5), 0.25)
    mixed = case.plan(x).mix(x)
    assert torch.isfinite(mixed).all(), "mix returns values that are not finite"
    if case.promises("target is the pixel share"):
        assert_close(mixed, torch.full_like(mixed, 0.25))


CHECKS: Mapping[str, Callable[[Case], None]] = {
    name.removeprefix("check_").replace("_", " "): check
    for name, check in list(globals().items())
    if name.startswith("check_") and name != "check_method"
}
"""Every check by its title."""
