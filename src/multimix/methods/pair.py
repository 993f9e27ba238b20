"""Methods that make K interpolations, and those whose interpolations lie between a sample and its partner."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from ..checks import check_share
from ..generator import resolved
from ..pairing import checked_partner, random_partner
from ..path import Sampler, check_path_options, checked_path, sample_path
from ..plan import PairPlan
from .base import Method


@dataclass(frozen=True, kw_only=True)
class PathMethod(Method):
    """K interpolations, made with probability ``p`` per batch; otherwise the batch is not mixed and keeps its B rows."""

    k: int = 1
    p: float = 1.0

    def __post_init__(self) -> None:
        check_path_options(self.k, 0, "iid")
        check_share("p", self.p)

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        if self.p == 1:
            return self
        heads = float(torch.rand((), generator=resolved(generator), dtype=torch.float64)) < self.p
        return replace(self, p=1.0) if heads else None


@dataclass(frozen=True, kw_only=True)
class PairMethod(PathMethod):
    """K points on the way from a sample to its partner, λ_1 < … < λ_K from Beta(α, α); α = 0 is no mixing.

    One path serves the whole batch, as in the paper, or with ``per_pair`` every pair has its own path and geometry.
    ``sampler`` is iid, stratified or grid (:func:`multimix.sample_path`); ``derange`` keeps samples from being their own
    partners.
    """

    alpha: float = 1.0
    sampler: Sampler = "iid"
    per_pair: bool = False
    derange: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path_options(self.k, self.alpha, self.sampler)

    @property
    def accepts(self) -> tuple[str, ...]:
        """``partner [B]`` and an ascending ``lam [K]``, ``[K, 1]`` or ``[K, B]`` may be handed in instead of being drawn."""
        return (*self.needs, "partner", "lam")

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        return None if self.alpha == 0 else super().choose(generator=generator)

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        **given: Any,
    ) -> PairPlan:
        partner = self.pairs(x, partner, generator)
        lam = self.path(x, generator) if lam is None else checked_path(lam, len(x))
        return self.build(x, partner, lam, generator=generator, **given)

    def pairs(self, x: Tensor, partner: Tensor | None, generator: Generator) -> Tensor:
        """``partner [B]``: the one handed in, or drawn."""
        if partner is None:
            return random_partner(len(x), derange=self.derange, generator=generator)
        return checked_partner(partner, len(x))

    def path(self, x: Tensor, generator: Generator) -> Tensor:
        """``lam [K, 1 or B]``, drawn where none is handed in."""
        rows = len(x) if self.per_pair else 1
        return sample_path(self.k, self.alpha, rows=rows, sampler=self.sampler, generator=generator)

    @abstractmethod
    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *args: Any, **kwargs: Any) -> PairPlan:
        """The plan for pairs ``partner [B]`` at the shares ``lam [K, 1 or B]``; only the geometry is left to draw."""

    def rows(self, x: Tensor, lam: Tensor) -> int:
        """How many geometries to draw: one per pair if paths or geometry are per pair, else one."""
        return len(x) if self.per_pair else lam.shape[1]
