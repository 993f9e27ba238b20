"""Plans: the frozen result of all draws and solves for one batch.

A plan of K interpolations turns ``[B, …]`` into ``[K·B, …]``, k-major: rows ``k·B … (k+1)·B − 1``
are step k. Applying it makes no random choices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .checks import can_inspect, check_whole, is_whole, plain
from .devices import uploaded, widest_float
from .mixing import mix, mixed_batch
from .targets import soft_target

NO_SIZE = torch.Size()

AnyPlan = TypeVar("AnyPlan", bound="Plan")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Plan(ABC):
    """The draws and masks that define every row of a mixed batch.

    Subclasses define :attr:`lam`, :attr:`mask` and ``_mix``. Tensor fields not named in ``shared``
    have K as their first axis.

    Args:
        partner: ``[B]``, the index of each sample's partner. With several partners, the index of
            the partner with the largest share.
        size: The shape of the input after batch and channels.
        layer: Name of the hidden layer to mix at. None is the input.
    """

    partner: Tensor
    size: torch.Size = NO_SIZE
    layer: str | None = None

    has_places: ClassVar[bool] = False
    """Whether the mask varies over spatial positions."""

    shared: ClassVar[tuple[str, ...]] = ("partner",)
    """Names of the tensors that all K steps share."""

    on_host: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors that stay on the CPU."""

    @property
    def k(self) -> int:
        """Number of interpolations; 1 for an unmixed batch."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in self.shared and isinstance(value, Tensor):
                return len(value)
        raise TypeError(f"{type(self).__name__} has no tensor with K as its first axis")

    @property
    def history_steps(self) -> list[int] | None:
        """The steps to store for a method that mixes with the previous batch.

        None keeps the stored history. An empty list means that another part stores its step.
        """
        return None

    @property
    @abstractmethod
    def lam(self) -> Tensor:
        """``[K, B]``: λ, the partner's realized share, the mean of the mask."""

    @property
    @abstractmethod
    def mask(self) -> Tensor:
        """``[K, B, 1, *size]``: the partner's share at every position."""

    @abstractmethod
    def _mix(self, z: Tensor) -> Tensor:
        """Return ``[K·B, …]`` for a validated ``z``."""

    @abstractmethod
    def _mix_target(self, target: Tensor) -> Tensor:
        """Mix target rows without spatial positions."""

    def _mix_places(self, target: Tensor) -> Tensor:
        """Mix a dense target. Plans that also transform inputs, such as by noise, override it."""
        return self._mix(target)

    def mix(self, z: Tensor) -> Tensor:
        """Mix a batch.

        Args:
            z: ``[B, …]`` samples or features, on the device of the plan, not modified.

        Returns:
            ``[K·B, …]`` in the dtype and memory format of ``z``.

        Raises:
            TypeError: If ``z`` is not a floating-point tensor.
            ValueError: If batch size, size or device differ from the plan's.
        """
        if not isinstance(z, Tensor):
            raise TypeError(f"z must be a torch.Tensor, got {type(z).__name__}")
        self._check("z", z)
        self._check_size(z)
        return self._mix(plain(z))

    def mix_target(
        self, y: Tensor, num_classes: int | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """Mix labels with the shares of the samples.

        Args:
            y: Labels as :func:`multimix.losses.soft_target` accepts them. A dense target
                ``[B, C, *size]`` is mixed per position, with the mask of the input.
            num_classes: Number of classes, needed for class indices.
            smoothing: Label smoothing ε.

        Returns:
            ``[K·B, C]``, or ``[K·B, C, *size]`` for dense targets.

        Raises:
            TypeError: If ``y`` is not a tensor.
            ValueError: If labels are invalid, or batch size, size or device differ from the plan's.
        """
        target = soft_target(y, num_classes, smoothing)
        self._check("y", target)
        return self.mix_rows(target)

    def mix_rows(self, target: Tensor) -> Tensor:
        """Mix validated target rows.

        Args:
            target: ``[B, C]`` or ``[B, C, *size]``, from :func:`multimix.losses.soft_target`.

        Returns:
            ``[K·B, C]`` or ``[K·B, C, *size]``.

        Raises:
            ValueError: If the size of a dense target differs from the plan's.
        """
        if not self.has_places or target.ndim <= 2:
            return self._mix_target(target)
        if target.shape[2:] != self.size:
            expected = f"[B, C, {str(list(self.size))[1:-1]}]"
            raise ValueError(f"dense y must be {expected} like x, got {list(target.shape)}")
        return self._mix_places(target)

    def check(self, batch: int) -> None:
        """Validate the tensors that a method returned. Called once, by ``method.plan``.

        Args:
            batch: Number of samples B.

        Raises:
            ValueError: If ``partner`` does not hold B indices of the batch.
        """
        partner = self.partner
        if not isinstance(partner, Tensor) or partner.dtype != torch.int64:
            got = partner.dtype if isinstance(partner, Tensor) else type(partner).__name__
            raise ValueError(f"partner must be an int64 tensor, got {got}")
        if partner.shape != (batch,):
            raise ValueError(f"partner must have shape [{batch}], got {list(partner.shape)}")
        if not can_inspect(partner):
            return
        values = partner.numpy()
        if values.min() < 0 or values.max() >= batch:
            raise ValueError(
                f"partner must index the batch, 0 to {batch - 1}, "
                f"got {values.min()} to {values.max()}"
            )

    def to(self: AnyPlan, device: torch.device | str) -> AnyPlan:
        """Copy the plan to a device without a host sync.

        Args:
            device: The target device.

        Returns:
            The copy. float64 becomes float32 on MPS.
        """
        moving = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if isinstance(getattr(self, field.name), Tensor) and field.name not in self.on_host
        }
        moved = uploaded(torch.device(device), *moving.values())
        changed: dict[str, Any] = dict(zip(moving, moved, strict=True))
        return replace(self, **changed)

    def __getitem__(self: AnyPlan, step: int | slice) -> AnyPlan:
        """Select steps: ``plan[2]`` is the third step, ``plan[1:3]`` the second and third."""
        if not isinstance(step, slice):
            if not is_whole(step):
                raise TypeError(f"a plan is indexed by an integer or a slice, got {step!r}")
            if not -self.k <= step < self.k:
                raise IndexError(f"step {step} is out of range for a plan of {self.k} steps")
            step = slice(step % self.k, step % self.k + 1)
        selected = range(self.k)[step]
        if len(selected) == 0 or selected.step < 0:
            raise IndexError(f"{step} must select ascending steps of a plan of {self.k} steps")
        changed: dict[str, Any] = {
            field.name: getattr(self, field.name)[selected.start : selected.stop : selected.step]
            for field in fields(self)
            if isinstance(getattr(self, field.name), Tensor) and field.name not in self.shared
        }
        return replace(self, **changed)

    def __len__(self) -> int:
        return self.k

    def __repr__(self) -> str:
        layer = "" if self.layer is None else f", layer={self.layer!r}"
        shape = f"k={self.k}, batch={len(self.partner)}, size={list(self.size)}"
        return f"{type(self).__name__}({shape}{layer})"

    def split(self: AnyPlan, steps: int) -> list[AnyPlan]:
        """Split the plan along K.

        Args:
            steps: Maximum number of interpolations per part.

        Returns:
            ``ceil(K / steps)`` plans.

        Raises:
            ValueError: If ``steps`` is not a positive integer.
        """
        check_whole("steps", steps)
        return [self[start : start + steps] for start in range(0, self.k, steps)]

    def _check_size(self, z: Tensor) -> None:
        if self.has_places and z.shape[2:] != self.size:
            raise ValueError(
                f"z has shape {list(z.shape)}, but the plan was made for size {list(self.size)}"
            )

    def _check(self, name: str, value: Tensor) -> None:
        if value.shape[:1] != self.partner.shape:
            raise ValueError(
                f"{name} has shape {list(value.shape)}, but the plan was made for a batch of "
                f"{len(self.partner)}"
            )
        if value.device != self.partner.device:
            raise ValueError(
                f"{name} is on {value.device}, the plan on {self.partner.device}: "
                "move one of them with .to(device)"
            )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairPlan(Plan):
    """A plan that mixes two samples at a time: ŷ_k = (1 − λ_k) y + λ_k y'."""

    def _mix_target(self, target: Tensor) -> Tensor:
        lam = per_sample(self.lam, target)
        return mix(target, target.index_select(0, self.partner), lam).flatten(0, 1)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SharePlan(PairPlan):
    """A plan with one share per sample, the same at every position.

    Args:
        share: ``[K, 1 or B]``, float64, in [0, 1].
    """

    share: Tensor

    @property
    def lam(self) -> Tensor:
        return self.share.expand(-1, self.partner.shape[0])

    @property
    def mask(self) -> Tensor:
        return even_mask(self.lam, self.size)

    def _mix(self, z: Tensor) -> Tensor:
        return mixed_batch(z, self.partner, per_sample(self.share, z))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MaskPlan(PairPlan):
    """A plan with one share per spatial position.

    Args:
        share: ``[K, 1 or B, 1, *size]``, float32, in [0, 1].
    """

    share: Tensor
    has_places = True

    @property
    def lam(self) -> Tensor:
        mean = self.share.flatten(2).mean(2, dtype=widest_float(self.share.device))
        return mean.expand(-1, len(self.partner))

    @property
    def mask(self) -> Tensor:
        return self.share.expand(-1, len(self.partner), *self.share.shape[2:])

    def _mix(self, z: Tensor) -> Tensor:
        return mixed_batch(z, self.partner, self.share)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UnmixedPlan(PairPlan):
    """A plan with one step that leaves the batch unmixed, for any ``k`` of the method."""

    @property
    def k(self) -> int:
        return 1

    @property
    def history_steps(self) -> list[int]:
        return [0]

    @property
    def lam(self) -> Tensor:
        return no_share(1, self.partner)

    @property
    def mask(self) -> Tensor:
        return even_mask(self.lam, self.size)

    def _mix(self, z: Tensor) -> Tensor:
        return z


def unmixed_plan(x: Tensor) -> PairPlan:
    """Return the plan that leaves ``x`` unmixed."""
    return UnmixedPlan(partner=torch.arange(len(x), device=x.device), size=x.shape[2:])


def per_sample(share: Tensor, z: Tensor) -> Tensor:
    """Reshape ``share [K, 1 or B]`` to broadcast over ``[K, B, …]`` for ``z [B, …]``."""
    return share.reshape(*share.shape, *[1] * (z.ndim - 1))


def even_mask(lam: Tensor, size: torch.Size) -> Tensor:
    """Expand ``lam [K, B]`` to the constant mask ``[K, B, 1, *size]``."""
    return lam.float().reshape(*lam.shape, 1, *[1] * len(size)).expand(*lam.shape, 1, *size)


def no_share(k: int, partner: Tensor) -> Tensor:
    """Return zeros ``[K, B]``, the λ of plans that do not mix labels."""
    dtype = widest_float(partner.device)
    return torch.zeros(k, len(partner), dtype=dtype, device=partner.device)
