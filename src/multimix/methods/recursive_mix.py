"""RecursiveMix (Yang et al., 2022): the previous mixed batch, resized into K boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from ..core.batch import Batch, MixedBatch
from ..core.checks import can_inspect, check_number, check_share, check_spatial
from ..core.devices import float32_or_better, full_precision, widest_float
from ..core.hooks import named_layer, unwrapped, visible_layer
from ..core.losses import Criterion
from ..core.mixing import mix
from ..core.plan import PairPlan, per_sample, unmixed_plan
from ..core.sampling import Sampler, checked_path, draw_path
from ..geometry.boxes import Fit, Grid, centered_boxes, random_center
from ..geometry.resized import Resize, ResizedPlan
from .base import Traits
from .path import PathMethod
from .registry import register

Keep = Literal["first", "middle", "last", "random"]
OmegaScale = Literal["plain", "per_class"]


@register(
    "recursivemix",
    aliases=("recursive_mix", "rm"),
    published={
        "aug_alpha": "area",
        "alpha": "area",
        "interpolate_mode": "resize",
        "aug_omega": "omega",
    },
    shared="the previous mixed batch and the box center",
    order="boxes nest",
    examples=(
        {},
        {"per_pair": True, "resize": "bilinear"},
        {"box": "shift", "grid": "continuous"},
        {"keep": "middle", "area": 1.0},
    ),
)
@dataclass(frozen=True, kw_only=True)
class RecursiveMix(PathMethod):
    """RecursiveMix: x̂_k is all of x' resized into box k, and x outside.

    x' is the same row of the previous mixed batch, the history. :func:`multimix.mixed_forward`
    returns it as ``out.state`` and accepts it as ``state=``. Rows without a history, such as those
    of the first batch, are not mixed.

    With ``features`` and ``head``, the loss adds the consistency term
    ω λ̂_k CE(head(mean of the features over box k), softmax(history_logits)).

    Args:
        k: Number of interpolations per sample.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        area: Largest box, as a share of the image. Areas are uniform on [0, ``area``] before boxes
            are clipped.
        sampler: How the K areas are drawn, ``iid``, ``stratified``, ``antithetic`` or ``grid``: see
            :func:`multimix.random.sample_path`.
        per_pair: Draw boxes for every sample instead of once for the batch.
        box: ``clip`` clips boxes at the border, ``shift`` moves them inside: see
            :class:`multimix.CutMix`.
        grid: ``continuous`` or ``integer`` centers and sides of boxes: see
            :class:`multimix.CutMix`.
        resize: Interpolation of the history, ``nearest`` or ``bilinear``.
        keep: Which of the K steps becomes the next history. ``random`` keeps the published
            distribution for any K.
        omega: Weight ω of the consistency term; 0 disables it.
        omega_scale: ``plain`` uses ω. ``per_class`` uses ω/C, which matches a criterion that
            averages over the C classes.
        features: Name of a layer with outputs ``[B, C, *places]``. None disables the term.
        head: Name of the layer that maps ``[B, C]`` to logits. Required with ``features``.

    Example::

        state = None
        for x, y in loader:
            out = mixed_forward(model, method, x, y, state=state)
            out.loss().backward()
            state = out.state
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
        check_share("area", self.area)
        check_number("omega", self.omega)
        if (self.features is None) != (self.head is None):
            raise ValueError(
                f"features and head must be passed together, got {self.features!r} "
                f"and {self.head!r}"
            )

    @property
    def traits(self) -> Traits:
        traits = super().traits
        if not self._is_consistent:
            return traits
        term = f"adds a loss of layer {self.features!r}"
        terms = [term] if traits.own_loss is None else [traits.own_loss, term]
        return traits._replace(own_loss=" and ".join(terms), watches=self.features)

    @property
    def _is_consistent(self) -> bool:
        return self.omega > 0 and self.features is not None

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        if self._is_consistent:  # raise for unknown layers at the first batch, not the second
            visible_layer(batch.model, str(self.features))
            named_layer(unwrapped(batch.model)[0], str(self.head))
        return super().inputs(batch)

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
        if history_x is None and history_target is None and history_logits is None:
            return unmixed_plan(x)
        if history_x is None or history_target is None:
            raise TypeError("RecursiveMix.plan needs history_x= and history_target= together")
        if self._is_consistent and history_logits is None:
            raise TypeError("RecursiveMix.plan needs history_logits= unless omega=0")
        _check_history(x, history_x, history_target, history_logits)
        batch, size, rows = len(x), x.shape[2:], len(x) if self.per_pair else 1
        if lam is None:
            lam = self.area * draw_path(self.k, 1.0, None, rows, self.sampler, generator)
        else:
            lam = checked_path(lam, batch)
        center = random_center(max(rows, lam.shape[1]), size, self.grid, generator)
        low, high = centered_boxes(lam, center, size, self.box, self.grid)
        if len(history_x) < batch:  # rows without a history have an empty box
            has_history = (torch.arange(batch) < len(history_x)).unsqueeze(1)
            low, high = low * has_history, high * has_history
        return PastedPlan(
            partner=torch.arange(batch),
            size=size,
            low=low,
            high=high,
            resize=self.resize,
            history_x=_with_rows(history_x, batch),
            history_target=_with_rows(history_target, batch),
            history_logits=None if history_logits is None else _with_rows(history_logits, batch),
            kept=torch.arange(len(lam)) == self._history_step(len(lam), generator),
        )

    def _history_step(self, k: int, generator: Generator) -> int:
        if self.keep == "random":
            return int(torch.randint(k, (), generator=generator))
        return {"first": 0, "middle": (k - 1) // 2, "last": k - 1}[self.keep]

    def loss(self, mixed: MixedBatch, criterion: Criterion) -> Tensor:
        value = super().loss(mixed, criterion)
        if not self._is_consistent or not isinstance(mixed.plan, PastedPlan):
            return value
        scale = mixed.logits.shape[1] if self.omega_scale == "per_class" else 1
        term = self.consistency(mixed.batch.model, mixed.plan, mixed.features)
        return value + term * (mixed.share / scale)

    def consistency(self, model: nn.Module, plan: "PastedPlan", features: Tensor) -> Tensor:
        """Compute the mean over rows of ω λ̂ CE(head(features in the box), softmax(history_logits)).

        Args:
            model: The model that has the layer ``head``.
            plan: The plan of the mixed batch.
            features: ``[K·B, C, *places]``, the output of the layer ``features``.

        Returns:
            A scalar.

        Raises:
            ValueError: If the features or the logits of the head have the wrong shape, or if the
                head fails on ``[K·B, C]``.
        """
        assert plan.history_logits is not None
        if not isinstance(features, Tensor) or features.ndim != 2 + len(plan.size):
            got = list(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(
                f"layer {self.features!r} must return [B, C, *places] with {len(plan.size)} axes "
                f"of places, got {got}"
            )
        head = named_layer(unwrapped(model)[0], str(self.head))
        pooled = roi_mean(features, plan.low, plan.high, plan.size)
        dtype = next((weight.dtype for weight in head.parameters()), pooled.dtype)
        try:
            logits = head(pooled.to(dtype))
        except RuntimeError as error:
            raise ValueError(
                f"layer {self.head!r} must take the mean over places of {self.features!r}, "
                f"{list(pooled.shape)}: {error}"
            ) from error
        expected = plan.history_logits.softmax(-1).repeat(plan.k, 1)
        if logits.shape != expected.shape:
            raise ValueError(
                f"layer {self.head!r} must return logits {list(expected.shape)} like the model, "
                f"got {list(logits.shape)}"
            )
        rows = -(expected * float32_or_better(logits).log_softmax(-1)).sum(-1)
        return (self.omega * plan.lam.flatten().to(rows.dtype) * rows).mean()


def _check_history(
    x: Tensor, history_x: Tensor, history_target: Tensor, history_logits: Tensor | None
) -> None:
    values = {"history_x": history_x, "history_target": history_target}
    if history_logits is not None:
        values["history_logits"] = history_logits
    for name, value in values.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a floating-point tensor, got {got}")
        if value.shape[:1] != history_x.shape[:1]:
            raise ValueError(
                f"{name} must have one row per row of history_x, {len(history_x)}, "
                f"got shape {list(value.shape)}"
            )
    if history_x.shape[1:] != x.shape[1:]:
        raise ValueError(
            f"history_x must hold samples of shape {list(x.shape[1:])} like x, "
            f"got {list(history_x.shape[1:])}"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PastedPlan(ResizedPlan):
    """The history image of the same row, resized into box ``[low, high)``; the sample outside.

    Args:
        history_x: ``[B, C, *size]`` samples of the previous mixed batch.
        history_target: ``[B, …]``, their targets.
        history_logits: ``[B, C]``, the model's logits for them.
        kept: ``[K]`` bools that mark the step that becomes the next history.
    """

    history_x: Tensor
    history_target: Tensor
    history_logits: Tensor | None = None
    kept: Tensor
    shared: ClassVar[tuple[str, ...]] = (
        "partner",
        "history_x",
        "history_target",
        "history_logits",
    )
    on_host: ClassVar[tuple[str, ...]] = ("kept",)

    @property
    def history_steps(self) -> list[int]:
        return [int(step) for step in self.kept.nonzero().flatten()]

    def _mix(self, z: Tensor) -> Tensor:
        if z.shape != self.history_x.shape:
            raise ValueError(
                f"z has shape {list(z.shape)}, the plan's history {list(self.history_x.shape)}"
            )
        # Resize before rounding to the precision of z.
        dtype = torch.promote_types(self.history_x.dtype, z.dtype)
        return self._pasted(z, self.history_x.to(dtype))

    def _mix_target(self, target: Tensor) -> Tensor:
        past = self._past_target(target)
        return mix(target, past, per_sample(self.lam, target)).flatten(0, 1)

    def _mix_places(self, target: Tensor) -> Tensor:
        return self._pasted(target, self._past_target(target))

    def _past_target(self, target: Tensor) -> Tensor:
        if target.shape != self.history_target.shape:
            shapes = f"{list(target.shape)} and {list(self.history_target.shape)}"
            raise ValueError(f"y and history_target must have one shape as targets, got {shapes}")
        return self.history_target.to(target.dtype)


def _with_rows(values: Tensor, count: int) -> Tensor:
    """The first ``count`` rows, detached; missing rows are zeros."""
    values = values.detach()[:count]
    if len(values) == count:
        return values
    return torch.cat([values, values.new_zeros(count - len(values), *values.shape[1:])])


def roi_mean(features: Tensor, low: Tensor, high: Tensor, size: torch.Size) -> Tensor:
    """Average features over boxes, as RoIAlign does.

    Each box is scaled to the feature map, in coordinates where the first place has its center at 0.
    It is divided along each axis into ⌈length⌉ equal cells. The map is interpolated linearly at the
    centers of the cells. The whole image gives the mean over all places, an empty box gives 0.

    Args:
        features: ``[K·B, C, *places]``.
        low: ``[K, 1 or B, d]`` first places of the boxes, in places of the image.
        high: ``[K, 1 or B, d]`` one past the last places.
        size: Sides of the image.

    Returns:
        ``[K·B, C]``, in float32 or better.
    """
    k, rows, axes = low.shape
    mean = float32_or_better(features).reshape(k, -1, *features.shape[1:])
    # The interpolation separates into the axes, and so does its mean.
    for axis in reversed(range(axes)):
        weight = axis_weights(low[..., axis], high[..., axis], size[axis], mean.shape[-1])
        with full_precision(mean):
            mean = mean @ weight.to(mean.dtype).reshape(k, rows, *[1] * axis, -1, 1)
            mean = mean.squeeze(-1)
    return mean.flatten(0, 1)


def axis_weights(low: Tensor, high: Tensor, side: int, places: int) -> Tensor:
    """Compute the weight of each place of one axis in the mean over a box.

    Args:
        low: ``[…]`` first places of the boxes along the axis.
        high: ``[…]`` one past the last places.
        side: Side of the image.
        places: Side of the feature map.

    Returns:
        ``[…, places]``.
    """
    # Multiply before dividing: rounding could otherwise add a cell.
    dtype = widest_float(low.device)
    low, length = low.to(dtype) * places, (high - low).to(dtype) * places
    start, length = low / side - 0.5, (length / side).unsqueeze(-1)
    cells = length.ceil()
    # A box inside the image has at most ``places`` cells. Counting them would sync a GPU.
    count = max(1, int(cells.max())) if can_inspect(cells) else places
    cell = torch.arange(count, device=low.device)
    position = start.unsqueeze(-1) + (cell + 0.5) * length / cells.clamp(min=1)
    counted = (cell < cells) & (position >= -1) & (position <= places)
    position = position.clamp(0, places - 1).unsqueeze(-1)
    near = (1 - (position - torch.arange(places, device=low.device)).abs()).clamp(min=0)
    return (near * counted.unsqueeze(-1)).sum(-2) / cells.clamp(min=1)
