"""The frozen outcome of all draws and solves of one batch: applying it has no decisions left.

A plan for K interpolations of B pairs turns ``[B, …]`` into ``[K·B, …]``, k-major: rows ``k·B … (k+1)·B − 1`` are step k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import one_pass
from .checks import can_inspect, check_target, check_whole, is_large, is_whole, plain, plain_labels
from .devices import uploaded, widest_float
from .mixing import AtOnce, blended_batch, can_write_in_place, filled_at_once, mixed_batch
from .sampling import checked_partner
from .target import check_indices, mixed_labels, soft_target

NO_SIZE = torch.Size()

AnyPlan = TypeVar("AnyPlan", bound="Plan")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Plan(ABC):
    """What every row of the mixed batch is made of: K rows for every sample.

    ``partner [B]`` holds the index of the sample that each is mixed with, of several the one that shows most; ``size`` is what
    follows batch and channels in the input; ``layer`` names the hidden layer to mix at, None the input. Tensors not named in
    ``shared`` have K as their first axis.
    """

    partner: Tensor
    size: torch.Size = NO_SIZE
    layer: str | None = None

    has_places: ClassVar[bool] = False
    """Whether the mask differs from place to place."""

    shared: ClassVar[tuple[str, ...]] = ("partner",)
    """Names of the tensors that all K steps share."""

    on_host: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors that stay on the CPU, because only Python reads them."""

    @property
    def k(self) -> int:
        """Number of interpolations; 1 for an unmixed batch, whatever the method's k."""
        stepped = (getattr(self, field.name) for field in fields(self) if field.name not in self.shared)
        return next(len(value) for value in stepped if isinstance(value, Tensor))

    @property
    def kept_steps(self) -> list[int] | None:
        """The step to be remembered by a method that mixes with the batch before, if it is among these; None: nothing is."""
        return None

    @property
    @abstractmethod
    def lam(self) -> Tensor:
        """``[K, B]``: the realised share of what is not the sample's own, read off the mask; float64 where the device has it."""

    @property
    @abstractmethod
    def mask(self) -> Tensor:
        """``[K, B, 1, *size]``: the share of what is not the sample's own at every place."""

    def mix(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """``[K·B, …]``: the K interpolations of every sample of ``z [B, …]``, which is left as it is.

        ``out`` reuses a buffer of the result's shape and skips the page faults of a fresh one. It is safe once nothing needs
        its old content any more: a network's input is needed until ``backward`` is done.
        """
        if not isinstance(z, Tensor):
            raise TypeError(f"z must be a torch.Tensor, got {type(z).__name__}")
        z = plain(z)
        self._check(z, out)
        found = self._mix_at_once(z) if out is None and can_write_in_place(z) else None
        if found is not None:
            return found[0]
        mixed = self._mixed(z, out, large=is_large(z))
        if out is not None and can_write_in_place(z) and not out.is_inference():
            increment_version(out)  # kernels fill it unseen by autograd, which must not compute with what it held before
        return mixed

    def mix_target(self, y: Tensor, num_classes: int | None = None, smoothing: float = 0.0) -> Tensor:
        """``[K·B, C]``: ``y`` mixed as the samples are. See :func:`multimix.soft_target` for what ``y`` may be.

        A dense target ``[B, C, *size]`` is mixed place by place, with the mask of the input.
        """
        check_target(y)
        y = plain_labels(y)
        if y.shape == self.partner.shape and not y.is_floating_point() and not smoothing:
            self._check_partner()
            mixed = self.mix_indices(y, check_indices(y, num_classes))
            if mixed is not None:
                return mixed
        target = soft_target(y, num_classes, smoothing)
        if target.shape[0] != self.partner.shape[0]:
            raise ValueError(f"y has {len(target)} rows, the plan was made for a batch of {len(self.partner)}")
        self._check_device("y", target)
        self._check_partner()
        if self.has_places and target.ndim > 2:
            # A target with places of its own, such as a segmentation map, goes where its pixels go.
            if target.shape[2:] != self.size:
                raise ValueError(f"y with places must be [B, C, {str(list(self.size))[1:-1]}] like x, got {list(target.shape)}")
            return self._mix_places(target)
        return _widened(target, self._mix_target) if is_large(target) else self._mix_target(target)

    def to(self: AnyPlan, device: torch.device | str) -> AnyPlan:
        """The same plan on ``device``: one copy, for which an accelerator does not make the host wait.

        On a device without float64, such as MPS, its numbers are float32.
        """
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        moving = [name for name, value in held.items() if isinstance(value, Tensor) and name not in self.on_host]
        there = uploaded(torch.device(device), *(held[name] for name in moving))
        changed: dict[str, Any] = dict(zip(moving, there, strict=True))
        return replace(self, **changed)

    def __getitem__(self: AnyPlan, step: int | slice) -> AnyPlan:
        """The same plan with fewer interpolations: ``plan[2]`` is the third step alone, ``plan[1:3]`` the second and third."""
        if not isinstance(step, slice):
            if not is_whole(step):
                raise TypeError(f"a plan is cut by a whole number or a slice, got {step!r}")
            if not -self.k <= step < self.k:
                raise IndexError(f"a plan of {self.k} steps has no step {step}")
            step = slice(step % self.k, step % self.k + 1)
        kept = range(self.k)[step]
        if len(kept) == 0 or kept.step < 0:
            raise IndexError(f"a plan of {self.k} steps cannot be cut to {step}; the steps left must ascend")
        return self._each(lambda name, value: value if name in self.shared else value[kept.start : kept.stop : kept.step])

    def __len__(self) -> int:
        return self.k

    def __repr__(self) -> str:
        where = "" if self.layer is None else f", layer={self.layer!r}"
        return f"{type(self).__name__}(k={self.k}, batch={len(self.partner)}, size={list(self.size)}{where})"

    def split(self: AnyPlan, steps: int) -> list[AnyPlan]:
        """The plan cut along K into plans of at most ``steps`` interpolations."""
        check_whole("steps", steps)
        return [self[start : start + steps] for start in range(0, self.k, steps)]

    def _mixed(self, z: Tensor, out: Tensor | None, *, large: bool) -> Tensor:
        """``mix`` for whoever has checked ``z`` and knows whether it is large (:func:`.checks.is_large`)."""
        if not large:
            return self._mix(z, out)
        mixed = _widened(z, lambda wide: self._mix(wide, None))
        return mixed if out is None else out.copy_(mixed)

    def _mix_at_once(self, z: Tensor, label: Tensor | None = None, classes: int = 0) -> AtOnce | None:
        """``_mix`` in the one pass that also looks for large numbers; None where there is none, or are some.

        ``z`` is one that can be written in place. With ``label [B]``, class indices on the CPU, also ``mix_target``.
        """
        return None

    @abstractmethod
    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor: ...

    @abstractmethod
    def _mix_target(self, target: Tensor) -> Tensor:
        """Rows without places, mixed."""

    def mix_indices(self, label: Tensor, num_classes: int) -> Tensor | None:
        """``mix_target`` of class indices that have been checked, without one-hot rows in between; None where that cannot be."""
        return None

    def _mix_places(self, target: Tensor) -> Tensor:
        """A target with places, mixed; for plans that do more to inputs than to targets."""
        return self.mix(target)

    def _check(self, z: Tensor, out: Tensor | None) -> None:
        if z.shape[:1] != self.partner.shape:
            raise ValueError(f"z has {len(z)} samples, the plan was made for a batch of {len(self.partner)}")
        self._check_device("z", z)
        self._check_partner()
        if out is None:
            return
        if z.requires_grad and torch.is_grad_enabled():
            raise ValueError("out cannot be used while gradients flow through z; leave it out, or detach z")
        if out.requires_grad:
            raise ValueError("out must not require grad: it is memory to be filled")
        wanted = [self.k * len(z), *z.shape[1:]]
        if list(out.shape) != wanted or out.dtype != z.dtype or out.device != z.device:
            raise ValueError(f"out must be {z.dtype} {wanted} on {z.device}, got {out.dtype} {list(out.shape)} on {out.device}")
        if out.untyped_storage().data_ptr() == z.untyped_storage().data_ptr():
            raise ValueError("out must not share memory with z, which is never changed")

    def _check_partner(self) -> None:
        """Raise ValueError unless all partners are in the batch, where compiled kernels will look for them."""
        if can_inspect(self.partner):
            checked_partner(self.partner, len(self.partner))

    def _check_device(self, name: str, value: Tensor) -> None:
        if value.device != self.partner.device:
            raise ValueError(f"{name} is on {value.device}, the plan on {self.partner.device}: move one of them with .to(device)")

    def _each(self: AnyPlan, change: Callable[[str, Tensor], Tensor]) -> AnyPlan:
        changed: dict[str, Any] = {
            field.name: change(field.name, getattr(self, field.name))
            for field in fields(self)
            if isinstance(getattr(self, field.name), Tensor)
        }
        return replace(self, **changed)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairPlan(Plan):
    """Two samples at a time: ``lam`` and ``mask`` are the partner's share, 1 is the partner, and ŷ_k = (1 − λ_k) y + λ_k y'."""

    def mix_indices(self, label: Tensor, num_classes: int) -> Tensor | None:
        lam, has_own_way = self.lam, type(self)._mix_target is not PairPlan._mix_target
        if (
            has_own_way
            or type(label) is not Tensor
            or not (can_inspect(label) and can_inspect(self.partner) and can_inspect(lam))
        ):
            return None
        return mixed_labels(label, self.partner, lam, num_classes)

    def _mix_target(self, target: Tensor) -> Tensor:
        return blended_batch(target, self.partner, self.lam)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SharePlan(PairPlan):
    """The same share everywhere in a sample: ``share [K, 1 or B]``, float64."""

    share: Tensor

    @property
    def lam(self) -> Tensor:
        return self.share.expand(-1, self.partner.shape[0])

    @property
    def mask(self) -> Tensor:
        return even_mask(self.lam, self.size)

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        return blended_batch(z, self.partner, self.share, out)

    def _mix_at_once(self, z: Tensor, label: Tensor | None = None, classes: int = 0) -> AtOnce | None:
        if type(self) is not SharePlan or self.share.requires_grad:
            return None
        fill = partial(one_pass.blend, z, self.partner, self.share)
        return filled_at_once(z, self.share.shape[0], fill, label, classes)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MaskPlan(PairPlan):
    """A share for every place: ``share [K, 1 or B, 1, *size]``, float32, 0 … 1."""

    share: Tensor
    has_places = True

    @property
    def lam(self) -> Tensor:
        return self.share.flatten(2).mean(2, dtype=widest_float(self.share.device)).expand(-1, len(self.partner))

    @property
    def mask(self) -> Tensor:
        return self.share.expand(-1, len(self.partner), *self.share.shape[2:])

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        return mixed_batch(z, self.partner, self.share, out)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UnmixedPlan(PairPlan):
    """Nothing is mixed: one step, the batch as it is. K equal copies would give the same mean loss at K times the cost."""

    @property
    def k(self) -> int:
        return 1

    @property
    def kept_steps(self) -> list[int]:
        return [0]

    @property
    def lam(self) -> Tensor:
        return torch.zeros(1, len(self.partner), dtype=widest_float(self.partner.device), device=self.partner.device)

    @property
    def mask(self) -> Tensor:
        return even_mask(self.lam, self.size)

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        return z if out is None else out.copy_(z)


def _widened(z: Tensor, mixed: Callable[[Tensor], Tensor]) -> Tensor:
    """``mixed(z)`` for numbers whose differences overflow: in float64, where they do not, or as quarters."""
    if z.dtype == torch.float64:
        return mixed(z / 4) * 4
    return mixed(z.double()).to(z.dtype)


def even_mask(lam: Tensor, size: torch.Size) -> Tensor:
    """``[K, B, 1, *size]`` that is ``lam [K, B]`` everywhere."""
    return lam.float().reshape(*lam.shape, 1, *[1] * len(size)).expand(*lam.shape, 1, *size)


def check_size(z: Tensor, size: torch.Size) -> None:
    """Raise ValueError unless ``z`` is ``[B, C, *size]``."""
    if z.shape[2:] != size:
        raise ValueError(f"z has shape {list(z.shape)}, the plan was made for size {list(size)}")
