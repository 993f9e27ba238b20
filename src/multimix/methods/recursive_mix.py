"""RecursiveMix (Yang et al., 2022): the batch mixed before, made small, in K boxes around one centre."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from ..batch import Batch, Criterion, Mixed
from ..checks import can_inspect, check_number, check_share, check_spatial, is_large
from ..devices import widest_float
from ..geometry.boxes import Fit, Grid, random_boxes
from ..geometry.resized import Resize, ResizedPlan
from ..hooks import MixingError, named_layer, unwrapped
from ..mixing import mix
from ..plan import PairPlan
from ..precision import full_precision
from ..sampling import Sampler, check_path_options, checked_path, sample_path
from .base import PathMethod, Traits, unmixed_plan
from .registry import Look, register

Keep = Literal["first", "middle", "last", "random"]
OmegaScale = Literal["plain", "per_class"]


def steps_from_history(
    method: "RecursiveMix", a: Tensor, b: Tensor, lam: Sequence[float], generator: Generator, contrast: object
) -> tuple[Tensor, Tensor]:
    """For ``multimix look``: B is the batch mixed before. λ is a share of the largest area that is drawn."""
    x, areas = a.unsqueeze(0), [method.area * share for share in lam]
    history = {"history_x": b.unsqueeze(0), "history_target": torch.ones(1, 1)}
    plan = replace(method, p=1.0).plan(x, lam=areas, generator=generator, **history)
    return plan.mix(x), plan.lam[:, 0]


@register(
    "recursivemix",
    aliases=("recursive_mix", "rm"),
    published={"aug_alpha": "area", "alpha": "area", "interpolate_mode": "resize", "aug_omega": "omega"},
    shared="the batch before, mixed as it was, and the box centre",
    order="boxes nest",
    examples=(
        {},
        {"per_pair": True, "resize": "bilinear"},
        {"box": "shift", "grid": "continuous"},
        {"keep": "middle", "area": 1.0},
    ),
    look=Look(
        short="B is the batch\nmixed before",
        whole="B stands for the batch mixed before. Boxes grow to 0.5 of the picture before they are cut off, as in training: "
        "the slider ends there.",
        steps=steps_from_history,
    ),
)
@dataclass(frozen=True, kw_only=True)
class RecursiveMix(PathMethod):
    """x̂_k is all of x' resized into box k, and x outside; x' is the row of the same number in the batch mixed before.

    That batch, the history, is an argument and a result: :func:`multimix.mixed_terms` gives ``carried``, for the next call.
    Without them, at the start, a batch is not mixed; beside a smaller history the rows that it lacks are not. Areas are uniform
    on 0 … ``area`` before boxes are cut off (``box`` and ``grid`` as in :class:`multimix.CutMix`), images made smaller by
    ``resize``. ``keep`` says which of the K steps is the next history: one at ``random`` has the published law, whatever K.

    With ``features``, the name of a layer that puts out ``[B, C, *places]``, and ``head``, that of one which makes logits of
    ``[B, C]``, the loss gains ω λ̂_k CE(head(mean of the features over box k), softmax(history_logits)). ``omega_scale`` is
    ``per_class``, 1/C of it, beside a loss that is a mean over classes: it would count C times as much there.
    """

    area: float = 0.5
    sampler: Sampler = "iid"
    per_pair: bool = False
    box: Fit = "clip"
    grid: Grid = "integer"
    resize: Resize = "nearest"
    keep: Keep = "random"
    omega: float = 0.1
    omega_scale: OmegaScale = "plain"
    features: str | None = None
    head: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path_options(self.k, 1.0, self.sampler)
        check_share("area", self.area)
        check_number("omega", self.omega)
        if (self.features is None) != (self.head is None):
            raise ValueError(f"features and head are named together or not at all, got {self.features!r} and {self.head!r}")
        for name in ("features", "head"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be the name of a layer, got {getattr(self, name)!r}")

    @property
    def traits(self) -> Traits:
        own = f"adds a loss of what layer {self.features!r} puts out" if self._is_consistent else None
        return self._traits._replace(own_loss=own)

    @property
    def _is_consistent(self) -> bool:
        return self.omega > 0 and self.features is not None

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        if self._is_consistent:  # else they would be missed at the second batch only
            assert self.features is not None
            assert self.head is not None
            watched_layer(batch.model, self.features)
            named_layer(unwrapped(batch.model)[0], self.head)
        return {}

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        history_x: Tensor | None = None,
        history_target: Tensor | None = None,
        history_logits: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
    ) -> PairPlan:
        check_spatial(x, "RecursiveMix")
        if history_x is None or history_target is None:
            if history_x is not None or history_target is not None or history_logits is not None:
                raise TypeError("RecursiveMix.plan needs history_x= and history_target= together, or no history at all")
            return unmixed_plan(x)
        _check_history(x, history_x, history_target, history_logits)
        if self._is_consistent and history_logits is None:
            raise TypeError("RecursiveMix.plan needs history_logits= for its consistency term; omega=0 leaves the term out")
        batch, size, rows = len(x), x.shape[2:], len(x) if self.per_pair else 1
        if lam is None:
            lam = self.area * sample_path(self.k, 1.0, rows=rows, sampler=self.sampler, generator=generator)
        else:
            lam = checked_path(lam, batch)
        low, high = random_boxes(lam, max(rows, lam.shape[1]), size, self.box, self.grid, generator)
        if len(history_x) < batch:
            there = (torch.arange(batch) < len(history_x)).unsqueeze(1)
            low, high = low * there, high * there  # an empty box each where there is no history
        return PastedPlan(
            partner=torch.arange(batch),
            size=size,
            low=low,
            high=high,
            resize=self.resize,
            history_x=fitted(history_x.detach(), batch),
            history_target=fitted(history_target.detach(), batch),
            history_logits=None if history_logits is None else fitted(history_logits.detach(), batch),
            kept=torch.arange(len(lam)) == self._kept(len(lam), generator),
        )

    def _kept(self, k: int, generator: Generator) -> int:
        if self.keep == "random":
            return int(torch.randint(k, (), generator=generator))
        return {"first": 0, "middle": (k - 1) // 2, "last": k - 1}[self.keep]

    def loss(self, batch: Batch, mixed: Mixed, criterion: Criterion) -> Tensor:
        if not self._is_consistent or not isinstance(mixed.plan, PastedPlan):
            return super().loss(batch, mixed, criterion)
        with captured(batch.model, self.features) as seen:
            value = super().loss(batch, mixed, criterion)  # runs the model
        scale = mixed.logits.shape[1] if self.omega_scale == "per_class" else 1
        return value + self.consistency(batch.model, mixed.plan, seen[0]) * (mixed.share / scale)

    def consistency(self, model: nn.Module, plan: "PastedPlan", features: Tensor) -> Tensor:
        """The mean over rows of ω λ̂ CE(head(features of the box), what the model said about the whole history image)."""
        assert self.head is not None
        if not isinstance(features, Tensor) or features.ndim != 2 + len(plan.size):
            got = list(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(
                f"layer {self.features!r} must put out [B, C, *places] with {len(plan.size)} axes of places, got {got}"
            )
        assert plan.history_logits is not None
        logits = self._judged(named_layer(unwrapped(model)[0], self.head), roi_mean(features, plan.low, plan.high, plan.size))
        expected = plan.history_logits.softmax(-1).repeat(plan.k, 1)
        if logits.shape != expected.shape:
            raise ValueError(
                f"layer {self.head!r} must make logits {list(expected.shape)} like the model, got {list(logits.shape)}"
            )
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        each = -(expected * logits.log_softmax(-1)).sum(-1)
        return (self.omega * plan.lam.flatten().to(each.dtype) * each).mean()

    def _judged(self, head: nn.Module, pooled: Tensor) -> Tensor:
        try:
            logits: Tensor = head(pooled.to(next((weight.dtype for weight in head.parameters()), pooled.dtype)))
        except RuntimeError as error:
            raise ValueError(
                f"layer {self.head!r} must take the mean over places of {self.features!r}, {list(pooled.shape)}: {error}"
            ) from error
        return logits


def _check_history(x: Tensor, history_x: Tensor, history_target: Tensor, history_logits: Tensor | None) -> None:
    for name, value in (("history_x", history_x), ("history_target", history_target), ("history_logits", history_logits)):
        if value is None:
            continue
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim == 0:
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a floating-point tensor, got {got}")
        if len(value) != len(history_x) or len(value) == 0:
            raise ValueError(f"{name} must have one row for each of history_x, {len(history_x)}, got {len(value)}")
    if history_x.shape[1:] != x.shape[1:]:
        raise ValueError(f"history_x must hold samples of shape {list(x.shape[1:])} like x, got {list(history_x.shape[1:])}")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PastedPlan(ResizedPlan):
    """In box ``[low, high)`` all of the history image of the same row, made smaller; outside the sample.

    ``history_x [B, C, *size]`` and ``history_target [B, …]`` are of an earlier batch, ``history_logits`` what the model said
    about it; the partner of a row is the history's row of the same number. ``kept [K]`` marks the step that is to be the next
    history.
    """

    history_x: Tensor
    history_target: Tensor
    history_logits: Tensor | None = None
    kept: Tensor
    shared: ClassVar[tuple[str, ...]] = ("partner", "history_x", "history_target", "history_logits")
    on_host: ClassVar[tuple[str, ...]] = ("kept",)

    @property
    def kept_steps(self) -> list[int]:
        return [int(step) for step in self.kept.nonzero().flatten()]

    def _mixed(self, z: Tensor, out: Tensor | None, *, large: bool) -> Tensor:
        if self.resize == "nearest":  # nothing is added up
            return self._mix(z, out)
        if z.dtype == torch.float64 and (large or is_large(self.history_x)):
            mixed = replace(self, history_x=self.history_x / 4)._mix(z / 4, None) * 4
            return mixed if out is None else out.copy_(mixed)
        return super()._mixed(z, out, large=large or is_large(self.history_x))

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        if z.shape != self.history_x.shape:
            raise ValueError(f"z has shape {list(z.shape)}, the history of the plan {list(self.history_x.shape)}")
        # Not rounded to z's precision before it is resized.
        return self._pasted(z, self.history_x.to(torch.promote_types(self.history_x.dtype, z.dtype)), out)

    def _mix_target(self, target: Tensor) -> Tensor:
        lam = self.lam.reshape(self.k, len(target), *[1] * (target.ndim - 1))
        return mix(target, self._past_of(target), lam).flatten(0, 1)

    def _mix_places(self, target: Tensor) -> Tensor:
        return self._pasted(target, self._past_of(target), None)

    def _past_of(self, target: Tensor) -> Tensor:
        if target.shape != self.history_target.shape:
            raise ValueError(f"y makes a target {list(target.shape)}, history_target is {list(self.history_target.shape)}")
        return self.history_target.to(target.dtype)


def fitted(rows: Tensor, batch: int) -> Tensor:
    """The first ``batch`` of ``rows``, filled up with zeros where there are fewer."""
    if len(rows) >= batch:
        return rows[:batch]
    return torch.cat([rows, rows.new_zeros(batch - len(rows), *rows.shape[1:])])


def roi_mean(features: Tensor, low: Tensor, high: Tensor, size: torch.Size) -> Tensor:
    """``[K·B, C]``: the mean of ``features [K·B, C, *places]`` over boxes ``[low, high)`` of an image of ``size``.

    ``low, high [K, 1 or B, d]`` are in places of the image. The whole image gives the mean over all places, an empty box 0.
    A box is brought to the feature map, where the middle of the first place is 0, and cut into as many equal cells along each
    axis as it covers places, a begun place counted as one; the map is interpolated linearly at the middle of each cell.
    """
    k, rows, axes = low.shape
    if features.ndim != 2 + axes or len(size) != axes or len(features) % k or rows not in (1, len(features) // k):
        raise ValueError(
            f"features must be [{k} · B, C] and {axes} axes of places for {k} × {rows} boxes, got {list(features.shape)}"
        )
    mean = features.to(torch.promote_types(features.dtype, torch.float32)).reshape(k, -1, *features.shape[1:])
    # The interpolation is a product over axes, and so is its mean: one axis after the other, the last first.
    for axis in reversed(range(axes)):
        weight = axis_weights(low[..., axis], high[..., axis], size[axis], mean.shape[-1]).to(mean.dtype)
        with full_precision(mean):
            mean = (mean @ weight.reshape(k, rows, *[1] * axis, -1, 1)).squeeze(-1)
    return mean.flatten(0, 1)


def axis_weights(low: Tensor, high: Tensor, side: int, places: int) -> Tensor:
    """``[…, places]``: how much each place of an axis of the map counts in the mean over ``low … high […]``."""
    # Multiplied before it is divided, so that whole numbers stay whole: one cell too many would show.
    low, high = low.to(widest_float(low.device)), high.to(widest_float(low.device))
    start, length = low * places / side - 0.5, ((high - low) * places / side).unsqueeze(-1)
    cells = length.ceil()
    # A box inside the image has at most as many cells as there are places; to ask how many would stall an accelerator.
    cell = torch.arange(max(1, int(cells.max())) if can_inspect(cells) else places, device=low.device)
    at = start.unsqueeze(-1) + (cell + 0.5) * length / cells.clamp(min=1)
    counted = (cell < cells) & (at >= -1) & (at <= places)
    at = at.clamp(0, places - 1).unsqueeze(-1)
    near = (1 - (at - torch.arange(places, device=low.device)).abs()).clamp(min=0)
    return (near * counted.unsqueeze(-1)).sum(-2) / cells.clamp(min=1)


@contextmanager
def captured(model: nn.Module, name: str | None) -> Iterator[list[Any]]:
    """What the layer called ``name`` puts out in the one forward pass of the block; without a name nothing is watched."""
    seen: list[Any] = []
    if name is None:
        yield seen
        return
    learning = torch.is_grad_enabled()  # here: a gradient checkpoint switches it off inside

    def watch(layer: nn.Module, args: Any, result: Any) -> None:
        learns = learning and any(weight.requires_grad for weight in layer.parameters())
        if learns and isinstance(result, Tensor) and not result.requires_grad:
            raise MixingError(f"layer {name!r} puts out no gradient: name one that lies outside gradient checkpoints")
        seen.append(result)

    handle = watched_layer(model, name).register_forward_hook(watch)
    try:
        yield seen
    finally:
        handle.remove()
    if len(seen) != 1:
        raise MixingError(
            f"layer {name!r} must run once in a forward pass, uncompiled, to be watched; it was seen {len(seen)} times"
        )


def watched_layer(model: nn.Module, name: str) -> nn.Module:
    """The submodule called ``name``, or an error if there is none or a compiled model would not show what it puts out."""
    core, compiled = unwrapped(model)
    found, parts = named_layer(core, name), name.split(".")
    around = [core.get_submodule(".".join(parts[:depth])) for depth in range(1, len(parts) + 1)]
    if compiled or any(getattr(part, "_compiled_call_impl", None) is not None for part in around):
        raise MixingError(f"the model is compiled and would not show what layer {name!r} puts out: pass it uncompiled")
    return found
