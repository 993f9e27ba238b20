"""The plan of a method that mixes many samples into one: which of them every block of every output shows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from ...geometry.grid import areas, as_plane, borders, grid_of, spread
from ...mixing import can_write_in_place, into, mix, rows_like
from ...plan import Plan, check_size
from ...precision import full_precision


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupPlan(Plan):
    """Block by block one sample, or two of them half and half: ``first`` and ``second [K, B, rows, columns]``.

    Both index the batch and are the same where one is shown. Outputs are ordered such that row i holds much of sample i;
    ``partner`` is what it holds most of besides, over all K. There is no pair: ``lam`` and ``mask`` are the share of all
    others, and the target comes from ``weights``.
    """

    first: Tensor
    second: Tensor
    has_places = True

    @property
    def weights(self) -> Tensor:
        """``[K, B, B]`` in float64: the share of every sample (last axis) in every output; rows sum to 1."""
        part = (
            areas(as_plane(self.size), grid_of(self.first)).to(self.first.device, torch.float64) / (2 * self.size.numel())
        ).flatten()
        shares = torch.zeros(*self.first.shape[:2], len(self.partner), dtype=torch.float64, device=self.first.device)
        for shown in (self.first, self.second):
            shares.scatter_add_(2, shown.flatten(2), part.expand(*shown.shape[:2], -1))
        return shares

    @property
    def lam(self) -> Tensor:
        """``[K, B]`` in float64: the share of all samples but the own."""
        return (1 - self.weights.diagonal(dim1=1, dim2=2)).clamp(min=0)

    @property
    def mask(self) -> Tensor:
        """``[K, B, 1, *size]``: the share of all samples but the own, at every place."""
        row = torch.arange(len(self.partner), device=self.first.device)[:, None, None]
        others = 0.5 * ((self.first != row).float() + (self.second != row).float())
        return spread(others, as_plane(self.size)).reshape(*others.shape[:2], 1, *self.size)

    def _mix_target(self, target: Tensor) -> Tensor:
        exact = torch.promote_types(target.dtype, torch.float32)
        with full_precision(target):  # autocast would round the shares to eight bits
            mixed = self.weights.to(exact) @ target.to(exact).flatten(1)
        return mixed.to(target.dtype).reshape(-1, *target.shape[1:])

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        direct = can_write_in_place(z)
        mixed = out if out is not None and direct else rows_like(z, self.k)
        plane = z.reshape(*z.shape[:2], *as_plane(self.size))
        whole = mixed.view(len(mixed), *plane.shape[1:])
        down, across = (borders(side, count) for side, count in zip(as_plane(self.size), grid_of(self.first), strict=True))
        first, second = (shown.flatten(0, 1) for shown in (self.first, self.second))
        halves = (first != second).cpu()
        for r, c in product(range(grid_of(self.first)[0]), range(grid_of(self.first)[1])):
            places = (slice(None), slice(None), slice(down[r], down[r + 1]), slice(across[c], across[c + 1]))
            block = plane[places]
            whole[places] = block[first[:, r, c]]
            two = halves[:, r, c].nonzero().flatten().to(z.device)
            if len(two) > 0:
                half = torch.tensor(0.5, device=z.device)
                whole[two, :, places[2], places[3]] = mix(block[first[two, r, c]], block[second[two, r, c]], half)
        return mixed if out is None or direct else into(mixed, z, out)
