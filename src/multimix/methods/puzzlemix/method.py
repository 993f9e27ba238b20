"""Puzzle Mix (Kim et al., 2020) with K masks: exact, nested in λ, from one saliency pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from ...batch import Batch
from ...checks import (
    can_inspect,
    check_channels,
    check_choice,
    check_number,
    check_share,
    check_whole,
    checked_noise,
    checked_numbers,
    checked_saliency,
    per_channel,
)
from ...compiled import in_chunks, noticed
from ...devices import downloaded, uniform_like
from ...geometry.blocks import BlockPlan
from ...geometry.grid import as_plane, block_saliency, cut_finer, spread
from ...plan import PairPlan
from ...saliency import CleanPass, clean_pass, input_saliency
from ...sampling import resolved
from ..base import Method, PairMethod, Traits
from ..clean_loss import CleanLossMethod
from ..registry import register
from .masks import (
    MOST_BLOCKS,
    Backend,
    LabelCost,
    OutOfRange,
    check_labels_option,
    seen_colours,
    slack_of,
    solve_masks,
    terms_of,
)

Array = np.ndarray[Any, Any]
Rule = Literal["exact", "reference"]

LEAST = 2**16  # blocks: less than about a millisecond of work does not pay for a thread
Transport = Literal["exact", "reference", "none"]
Blocks = int | tuple[int, int]


@register(
    "puzzlemix",
    aliases=("puzzle",),
    published={
        "mixup_alpha": "alpha",
        "block_num": "blocks",
        "n_labels": "labels",
        "neigh_size": "neighbourhood",
        "t_eps": "transport_eps",
        "t_size": "transport_size",
        "clean_lam": "clean_weight",
        "mp": "threads",
    },
    shared="pair, saliency pass, grid, costs, the flow of the cut",
    order="exact masks nest, both ends exact",
    examples=({"std": 0.1}, {"std": 0.1, "labels": 4, "transport": "none", "blocks": (3, (2, 5))}),
    exceptions={
        "volumes": "blocks lie in rows and columns: signals and images only",
        "one mask for the batch": "a mask follows its own two images",
    },
)
@dataclass(frozen=True, kw_only=True)
class PuzzleMix(CleanLossMethod, PairMethod):
    """x̂_k shows in every block x or x', or both in parts, whichever is salient there; blocks may move to where they show.

    One number of ``blocks`` per side is drawn for the batch (a pair of numbers is rows and columns). The K masks minimise the
    energy of :mod:`.masks` exactly: ``beta`` weighs smoothness, ``gamma`` how much of it looks at the colours
    across a border (averaged over ``neighbourhood`` places), ``eta`` the prior λ_k, ``labels`` is the number of values a mask
    has. ``transport`` moves salient hidden blocks to visible places at a cost of ``transport_eps`` times the squared distance,
    in blocks of ``transport_size`` places (None: the mask's own).

    ``mean`` and ``std`` say how x was normalised, so that std · x + mean are pixels in 0 … 1, in which colours count; without
    ``std`` x itself must lie there. Only ``adv_p`` looks at ``mean``. ``backend`` chooses how masks are solved
    (:func:`.masks.solve_masks`). ``clean_weight`` and ``clean_scale`` add the loss of the
    clean batch (:class:`multimix.methods.clean_loss.CleanLossMethod`). With probability ``adv_p`` each, the
    samples in the first and in the second role get adversarial noise of up to ``adv_eps``/255; ``adv_roles`` fixes the choices.

    ``saliency_pool`` is the ``pool`` of :func:`multimix.input_saliency`, in a pass that serves nothing but the saliency: a clean
    loss and the noise need one in full.
    """

    blocks: tuple[Blocks, ...] = (2, 4, 8, 16)
    labels: int = 3
    beta: float = 1.2
    gamma: float = 0.5
    eta: float = 0.2
    cost: LabelCost = "l2"
    neighbourhood: int = 4
    transport: Transport = "exact"
    transport_eps: float = 0.8
    transport_size: int | None = None
    adv_p: float = 0.0
    adv_eps: float = 10.0
    adv_roles: tuple[bool, bool] | None = None
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] | None = None
    saliency_pool: int | None = None
    out_of_range: OutOfRange = "refuse"
    threads: int | None = None
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "blocks", checked_blocks(self.blocks))
        object.__setattr__(self, "mean", checked_numbers("mean", self.mean))
        if self.std is not None:
            object.__setattr__(self, "std", checked_numbers("std", self.std, positive=True))
        for name in ("beta", "gamma", "eta", "transport_eps", "adv_eps"):
            check_number(name, getattr(self, name))
        if self.adv_eps > 255:
            raise ValueError(f"adv_eps counts in 255ths of the pixels' range, so it must lie in 0 … 255, got {self.adv_eps!r}")
        check_whole("neighbourhood", self.neighbourhood)
        for name in ("transport_size", "saliency_pool", "threads"):
            check_whole(name, getattr(self, name), none=True)
        check_labels_option(self.labels, self.cost)
        roles = self.adv_roles
        if roles is not None and not (isinstance(roles, tuple) and len(roles) == 2 and all(isinstance(r, bool) for r in roles)):
            raise ValueError(f"adv_roles must be two of True and False, or None to draw them, got {roles!r}")
        check_share("adv_p", self.adv_p)

    @property
    def traits(self) -> Traits:
        """It needs ``saliency [B, *size]``, and ``noise [B, C, *size]`` unless it is certain that no role is attacked."""
        traits = super().traits
        if self.adv_p > 0 if self.adv_roles is None else any(self.adv_roles):
            return traits._replace(needs=("saliency", "noise"))
        return traits if self.adv_p > 0 else traits._replace(accepts=tuple(name for name in traits.accepts if name != "noise"))

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        chosen = super().choose(generator=generator)
        if not isinstance(chosen, PuzzleMix) or chosen.adv_p == 0 or chosen.adv_roles is not None:
            return chosen
        first, second = (torch.rand(2, generator=resolved(generator), dtype=torch.float64, device="cpu") < self.adv_p).tolist()
        return replace(chosen, adv_roles=(first, second))

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        if "noise" in batch.given or "noise" not in self.traits.needs:
            if self.saliency_pool is None or self.clean_weight > 0 or "saliency" in batch.given:
                return super().inputs(batch)
            return {"saliency": input_saliency(batch.model, batch.x, batch.y, output=batch.output, pool=self.saliency_pool)}
        noise, clean = self._attack(batch)
        told = {"noise": noise, "saliency": clean.saliency}
        return {**told, "clean": clean} if self.clean_weight > 0 else told

    def _attack(self, batch: Batch) -> tuple[Tensor, CleanPass]:
        """Noise ``[B, C, *size]`` from one gradient step, and the pass over the randomly perturbed batch that gave it.

        u · clip(δ + (ε + 2/255) sign(g), ±ε) in pixels = std · x + mean, which stay in 0 … 1: δ is uniform in ±ε, g the gradient
        of the clean loss at x + δ, u one uniform number for the batch.
        """
        x, eps = batch.x, self.adv_eps / 255
        (mean, std), slack = self._normalisation(x), slack_of(x)
        pixels = x.detach() * std + mean
        low, high = (float(end) for end in pixels.aminmax()) if can_inspect(pixels) else (0.0, 1.0)
        if not -slack <= low <= high <= 1 + slack:
            raise ValueError(
                f"adversarial noise needs pixels in 0 … 1, got {low:.3g} … {high:.3g}: "
                "say with mean= and std= how x was normalised"
            )
        pixels = pixels.clamp(0, 1)
        start = (uniform_like(x, batch.generator) * 2 - 1) * eps
        start = (pixels + start).clamp(0, 1) - pixels
        clean = clean_pass(batch.model, x + start / std, batch.y, training=self.clean_weight > 0, output=batch.output)
        scale = torch.rand((), generator=batch.generator, dtype=torch.float64, device="cpu").item()
        delta = (start + (eps + 2 / 255) * clean.gradient.sign()).clamp(-eps, eps) * scale
        return ((pixels + delta).clamp(0, 1) - pixels) / std, clean

    def build(
        self,
        x: Tensor,
        partner: Tensor,
        lam: Tensor,
        *,
        generator: Generator,
        saliency: Tensor,
        noise: Tensor | None = None,
    ) -> PairPlan:
        if x.ndim not in (3, 4):
            raise ValueError(f"PuzzleMix needs x of shape [B, C, length] or [B, C, H, W], got {list(x.shape)}")
        check_channels("mean", self.mean, x)
        check_channels("std", self.std, x)
        size = as_plane(x.shape[2:])
        drawn = self.blocks[int(torch.randint(len(self.blocks), (), generator=generator))]
        rows, columns = (drawn, drawn) if isinstance(drawn, int) else drawn
        grid = min(rows, size[0]), min(columns, size[1])
        salient = checked_saliency(saliency, x).reshape(len(x), *size)
        noise = None if noise is None else checked_noise(noise, x)
        plane, cells = x.reshape(*x.shape[:2], *size), self._transport_cells(grid, size)
        # All that the host has to know of a batch on an accelerator, at once.
        colour, bounds, held, *finer = downloaded(
            *seen_colours(plane, grid, self.neighbourhood),
            block_saliency(salient, grid),
            *([] if cells == grid else [block_saliency(salient, cells)]),
        )
        terms = terms_of(
            plane, partner, colour, bounds, held, beta=self.beta, gamma=self.gamma, std=self.std, out_of_range=self.out_of_range
        )
        levels = solve_masks(
            terms,
            lam,
            labels=self.labels,
            eta=self.eta,
            cost=self.cost,
            threads=self.threads,
            backend=self.backend,
            device=x.device,
        )
        plan = BlockPlan(partner=partner, size=x.shape[2:], levels=levels, steps=self.labels - 1, cells=grid)
        if noise is not None and self.adv_roles is not None:
            first, second = (noise if attacked else None for attacked in self.adv_roles)
            plan = replace(plan, noise=first, noise_pair=second)
        return plan if self.transport == "none" else self._transported(plan, cells, finer[0] if finer else held)

    def _transport_cells(self, grid: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
        """The grid of what is moved: that of the mask, or a finer one."""
        if self.transport == "none" or self.transport_size is None:
            return grid
        rows, columns = (cut_finer(side, count, self.transport_size) for side, count in zip(size, grid, strict=True))
        return rows, columns

    def _transported(self, plan: BlockPlan, cells: tuple[int, int], held: Tensor) -> BlockPlan:
        """``plan`` with the cells of both images, which hold so much, moved to where they are seen, in each of the K masks."""
        levels = plan.levels if cells == plan.cells else spread(plan.levels, cells)
        moved = []
        for visible, own in ((levels < plan.steps, held), (levels > 0, held[plan.partner])):
            rule: Rule = "reference" if self.transport == "reference" else "exact"
            source = assigned_blocks(visible, own, self.transport_eps, rule=rule, threads=self.threads)
            still = torch.arange(source.shape[2], dtype=torch.int32)
            moved.append(None if bool((source == still).all()) else source)
        return replace(plan, cells=cells, source=moved[0], source_pair=moved[1])

    def _normalisation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``mean`` and ``std`` as tensors to go with ``x``, 1 where no std is given."""
        std = 1.0 if self.std is None else self.std
        return per_channel("mean", self.mean, x).to(x.dtype), per_channel("std", std, x).to(x.dtype)


def checked_blocks(blocks: Any) -> tuple[Blocks, ...]:
    """``blocks`` as a tuple of numbers or pairs of numbers, each 1 … 32; one number alone is taken as the only one."""
    found = (blocks,) if isinstance(blocks, int) else tuple(blocks) if isinstance(blocks, Sequence) else ()
    numbers = [n for entry in found for n in (entry if isinstance(entry, tuple) and len(entry) == 2 else (entry,))]
    if not found or not all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= MOST_BLOCKS for n in numbers):
        raise ValueError(
            f"blocks must be numbers of blocks per side, 1 … {MOST_BLOCKS}, or pairs (rows, columns), "
            f"such as (2, 4, 8, 16), got {blocks!r}"
        )
    return found


def assigned_blocks(
    visible: Tensor,
    saliency: Tensor,
    eps: float,
    *,
    rule: Rule = "exact",
    threads: int | None = None,
) -> Tensor:
    """``[K, B, rows · columns]`` int32: which block, row by row, is shown at each place; its own where the place is hidden.

    ``visible [K, B, rows, columns]`` of bools says where this image shows, ``saliency [B, rows, columns]`` is at least 0 with
    sum 1. With d²(i, j) = ((r_i − r_j) / (rows − 1))² + ((c_i − c_j) / (columns − 1))² the rule ``exact`` minimises

        J = Σ over visible j of ε d²(source_j, j) − saliency[source_j],  visible sources distinct.

    ``reference`` is the rule of the public code: as many rounds as the longer side has blocks, in which each block bids
    ε d² − saliency where that is least and the lowest bid below 0 wins. It is not optimal, and where nobody won, the place keeps
    its own block, even if that block has won elsewhere; the public code leaves it blank.
    """
    check_number("eps", eps)
    check_choice("rule", rule, ("exact", "reference"))
    k, batch, rows, columns = visible.shape
    blocks = rows * columns
    source = torch.arange(blocks, dtype=torch.int32).repeat(k * batch, 1)
    arrays = (
        visible.to(torch.bool).reshape(-1, blocks).contiguous().numpy(),
        saliency.detach().to(torch.float64).reshape(-1, blocks).contiguous().numpy(),
        _moves(rows, eps),
        _moves(columns, eps),
        source.numpy(),
    )
    from . import assignment_kernel

    fill = assignment_kernel.exact if rule == "exact" else assignment_kernel.reference
    with noticed(fill):
        in_chunks(lambda start, stop: fill(*arrays, start, stop), k * batch, threads, max(1, LEAST // blocks))
    return source.reshape(k, batch, blocks)


def _moves(side: int, eps: float) -> Array:
    """What a move by 0, 1 … side − 1 blocks along this axis costs."""
    moves: Array = float(eps) * (np.arange(side) / max(side - 1, 1)) ** 2
    return moves
