"""Several methods, one of them drawn for each batch."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor, nn

from ..core.checks import check_share
from ..core.plan import PairPlan
from ..core.sampling import make_generator
from .base import Method, Traits, trained_parameters

Item = TypeVar("Item")


@dataclass(frozen=True)
class OneOf(Method):
    """Mix each batch by one of several methods.

    Args:
        methods: Methods to draw from. They may differ in k, and so may the rows per batch.
        probabilities: Probability of each method; None makes them equal. If they sum to less than
            1, the remaining probability leaves the batch unmixed.

    Example::

        method = OneOf((InputMixup(k=5), CutMix(k=5)), probabilities=(0.3, 0.7))
        mixed_forward(model, method, x, y).loss().backward()
    """

    name = "one_of"
    methods: tuple[Method, ...]
    probabilities: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        methods = tuple(self.methods) if isinstance(self.methods, Iterable) else ()
        if len(methods) == 0 or not all(isinstance(method, Method) for method in methods):
            raise ValueError(
                f"methods must be a tuple of one or more mixing methods, got {self.methods!r}"
            )
        probabilities = self.probabilities
        probabilities = (
            tuple(1 / len(methods) for _ in methods)
            if probabilities is None
            else tuple(probabilities)
        )
        if len(probabilities) != len(methods):
            raise ValueError(
                f"probabilities must have one value for each of {len(methods)} methods, "
                f"got {len(probabilities)}"
            )
        for probability in probabilities:
            check_share("probabilities", probability)
        if sum(probabilities) > 1 + 1e-9:
            raise ValueError(f"probabilities must sum to at most 1, got {sum(probabilities)}")
        object.__setattr__(self, "methods", methods)
        object.__setattr__(self, "probabilities", probabilities)
        traits = [method.traits for method in methods]
        own_loss = next((part.own_loss for part in traits if part.own_loss), None)
        layouts = [method.layout for method in methods]
        object.__setattr__(self, "layout", "images" if "images" in layouts else layouts[0])
        joined = Traits(
            _union(part.accepts for part in traits),
            _union(part.needs for part in traits),
            _union(part.mixes_at for part in traits),
            own_loss,
        )
        object.__setattr__(self, "_traits", joined)

    @property
    def modules(self) -> nn.ModuleDict:
        return nn.ModuleDict(
            {
                str(i): method.modules
                for i, method in enumerate(self.methods)
                if len(method.modules) > 0
            }
        )

    def bind(self, model: nn.Module, images: Tensor, **options: Any) -> Method:
        return replace(
            self, methods=tuple(method.bind(model, images, **options) for method in self.methods)
        )

    def after_step(self, model: nn.Module) -> None:
        # A network that several methods share is updated once.
        for method in {
            tuple(map(id, trained_parameters(method))): method for method in self.methods
        }.values():
            method.after_step(model)

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        assert self.probabilities is not None
        generator = make_generator(generator)
        edges = list(accumulate(self.probabilities))
        if edges[-1] > 1 - 1e-9:
            edges[-1] = 1.0  # rounding must not leave a gap below 1
        drawn = bisect_right(
            edges, float(torch.rand((), generator=generator, dtype=torch.float64, device="cpu"))
        )
        return self.methods[drawn].choose(generator=generator) if drawn < len(edges) else None

    def draw(self, x: Tensor, *args: Any, **kwargs: Any) -> PairPlan:
        raise AssertionError("draw is called on the method that choose() returns")


def _union(groups: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))
