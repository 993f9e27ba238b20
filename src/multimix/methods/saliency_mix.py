"""SaliencyMix (Uddin et al., 2021) with K boxes around the most salient place of the partner."""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from torch import Generator, Tensor

from ..checks import check_choice, check_spatial, checked_saliency
from ..fine_saliency import fine_saliency, peaks
from ..geometry.boxes import BoxPlan, Fit, Grid, centered_boxes
from ..options import checked_numbers
from ..plan import PairPlan
from .pair import PairMethod

SaliencyMap = Literal["fine", "gradient"]


@dataclass(frozen=True, kw_only=True)
class SaliencyMix(PairMethod):
    """x̂_k is x' inside box k and x outside, at the same place; the boxes lie around the place where x' is most salient.

    ``saliency_from`` says what salient means: ``fine`` (the paper) is contrast with the surroundings
    (:func:`multimix.fine_saliency.fine_saliency`) and needs no model, ``gradient`` is the map of
    :func:`multimix.input_saliency`, and a function makes a map ``[B, *size]`` of ``x [B, C, *size]``. A map handed to ``plan`` as
    ``saliency=`` is used instead. ``mean`` and ``std`` say how x was normalised; only ``fine`` asks.

    Every pair has boxes of its own. ``reference=True`` puts those of all pairs where the partner of the first sample is most
    salient, as the published code does. ``box`` and ``grid`` are those of :class:`multimix.CutMix`.
    """

    name = "saliencymix"
    published = MappingProxyType({"beta": "alpha"})
    saliency_from: SaliencyMap | Callable[[Tensor], Tensor] = "fine"
    reference: bool = False
    box: Fit = "clip"
    grid: Grid = "integer"
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("box", self.box, get_args(Fit))
        check_choice("grid", self.grid, get_args(Grid))
        if not callable(self.saliency_from):
            check_choice("saliency_from", self.saliency_from, (*get_args(SaliencyMap), "a function of x"))
        object.__setattr__(self, "mean", checked_numbers("mean", self.mean))
        if self.std is not None:
            std = checked_numbers("std", self.std)
            object.__setattr__(self, "std", std)
            if not all(part > 0 for part in (std if isinstance(std, tuple) else (std,))):
                raise ValueError(f"std must be positive, got {std!r}")

    @property
    def needs(self) -> tuple[str, ...]:
        """``saliency [B, *size]`` where the gradient of a model is asked for."""
        return ("saliency",) if self.saliency_from == "gradient" else ()

    @property
    def accepts(self) -> tuple[str, ...]:
        accepted = super().accepts
        return accepted if "saliency" in accepted else ("saliency", *accepted)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator, saliency: Tensor | None = None) -> PairPlan:
        check_spatial(x, "SaliencyMix")
        looked_at = (partner[:1] if self.reference else partner).to(x.device)
        salient = self._map(x[looked_at]) if saliency is None else checked_saliency(saliency, x)[looked_at]
        place = peaks(salient).cpu().to(lam.dtype)
        # On the continuous grid places are intervals, and a box around the middle of one holds it as soon as it holds anything.
        center = place if self.grid == "integer" else place + 0.5
        low, high = centered_boxes(lam, center, x.shape[2:], self.box, self.grid)
        return BoxPlan(partner=partner, low=low, high=high, size=x.shape[2:])

    def _map(self, x: Tensor) -> Tensor:
        if callable(self.saliency_from):
            return checked_saliency(self.saliency_from(x.detach()), x)
        return fine_saliency(x, mean=self.mean, std=self.std)
