"""Several methods, one of them drawn for each batch."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor, nn

from ..checks import check_share
from ..plan import PairPlan, Plan
from ..sampling import resolved
from .base import Method
from .samix.block import MixBlock

Item = TypeVar("Item")


@dataclass(frozen=True)
class OneOf(Method):
    """Each batch is mixed by one of ``methods``, drawn with ``probabilities`` (equal if left out).

    What the probabilities leave to 1 is the chance of no mixing. Methods may differ in k: a batch then has as many rows as
    the drawn method makes.
    """

    name = "one_of"
    methods: tuple[Method, ...]
    probabilities: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        methods = tuple(self.methods) if isinstance(self.methods, Iterable) else ()
        if len(methods) == 0 or not all(isinstance(method, Method) for method in methods):
            raise ValueError(f"methods must be a tuple of one or more mixing methods, got {self.methods!r}")
        probabilities = self.probabilities
        probabilities = tuple(1 / len(methods) for _ in methods) if probabilities is None else tuple(probabilities)
        if len(probabilities) != len(methods):
            raise ValueError(f"{len(methods)} methods need as many probabilities, got {len(probabilities)}")
        for probability in probabilities:
            check_share("probabilities", probability)
        if sum(probabilities) > 1 + 1e-9:
            raise ValueError(f"probabilities must sum to at most 1, got {sum(probabilities)}")
        object.__setattr__(self, "methods", methods)
        object.__setattr__(self, "probabilities", probabilities)

    @property
    def needs(self) -> tuple[str, ...]:
        return _union(method.needs for method in self.methods)

    @property
    def accepts(self) -> tuple[str, ...]:
        return _union(method.accepts for method in self.methods)

    @property
    def mixes_at(self) -> tuple[str | None, ...]:
        return _union(method.mixes_at for method in self.methods)

    @property
    def watches(self) -> str | None:
        return next((method.watches for method in self.methods if method.watches is not None), None)

    @property
    def carries(self) -> tuple[str, ...]:
        return _union(method.carries for method in self.methods)

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {f"{i}.{name}": one for i, method in enumerate(self.methods) for name, one in method.networks.items()}

    @property
    def learners(self) -> tuple[MixBlock, ...]:
        return _union(method.learners for method in self.methods)

    def fitted(
        self,
        model: nn.Module,
        images: Tensor,
        *,
        updates: int | None = None,
        generator: Generator | None = None,
        blank: bool = False,
    ) -> Method:
        made = (one.fitted(model, images, updates=updates, generator=generator, blank=blank) for one in self.methods)
        return replace(self, methods=tuple(made))

    @property
    def clean_weight(self) -> float:
        """The largest of all methods'; a batch gets that of the method drawn for it."""
        return max(method.clean_weight for method in self.methods)

    def carried(self, plan: Plan, x: Tensor, target: Tensor, logits: Tensor) -> Mapping[str, Tensor]:
        """Of a batch that no method was drawn for: what those that remember keep of it."""
        kept: dict[str, Tensor] = {}
        for method in self.methods:
            kept |= method.carried(plan, x, target, logits)
        return kept

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        assert self.probabilities is not None
        generator = resolved(generator)
        edges = list(accumulate(self.probabilities))
        if edges[-1] > 1 - 1e-9:
            edges[-1] = 1.0  # rounding must not leave a gap below 1
        drawn = bisect_right(edges, float(torch.rand((), generator=generator, dtype=torch.float64)))
        return self.methods[drawn].choose(generator=generator) if drawn < len(edges) else None

    def draw(self, x: Tensor, *args: Any, **kwargs: Any) -> PairPlan:
        raise AssertionError("OneOf is never drawn itself: choose() hands out one of its methods")


def _union(groups: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))
