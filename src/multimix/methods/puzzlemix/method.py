"""Puzzle Mix (Kim et al., 2020) with K masks: exact, nested in λ, from one saliency pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from ...core.batch import Batch
from ...core.checks import (
    can_inspect,
    check_channels,
    check_choice,
    check_number,
    check_share,
    check_whole,
    checked_noise,
    checked_numbers,
    checked_saliency,
    is_whole,
    per_channel,
)
from ...core.compiled import has_numba, in_chunks, load_kernels
from ...core.devices import downloaded, uniform_like
from ...core.plan import PairPlan
from ...core.saliency import CleanPass, clean_pass
from ...geometry.blocks import BlockPlan
from ...geometry.grid import as_plane, block_saliency, cut_finer, spread
from ..base import Traits
from ..path import CleanLossMethod, PairMethod
from ..registry import register
from .masks import (
    MAX_BLOCKS,
    Backend,
    LabelCost,
    OutOfRange,
    check_labels_option,
    seen_colors,
    slack_of,
    solve_masks,
    terms_of,
)

Array = np.ndarray[Any, Any]
Rule = Literal["exact", "reference"]

MIN_BLOCKS_PER_THREAD = 2**16
"""Minimum work per thread; smaller tasks cost more to start than they save."""
Transport = Literal["exact", "reference", "none"]
Blocks = int | tuple[int, int]


@register(
    "puzzlemix",
    aliases=("puzzle",),
    published={
        "mixup_alpha": "alpha",
        "block_num": "blocks",
        "n_labels": "labels",
        "neigh_size": "neighborhood",
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
    """Puzzle Mix: every block of x̂_k shows x, x' or both in parts, whichever is salient there.

    Transport moves salient blocks that the mask hides to visible places. The K masks minimize the
    energy of :mod:`multimix.methods.puzzlemix.masks` exactly and nest in λ. ``plan`` needs
    ``saliency [B, *size]``, and with adversarial noise also ``noise [B, C, *size]``: samples and
    partners get it with probability ``adv_p`` each, unless ``noise_pair`` is passed for partners.
    Without numba, the torch solver computes the masks and SciPy the transport.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        blocks: Grid sizes to draw from, one per batch: blocks per side, or pairs (rows, columns).
        labels: Number of levels of a mask; 2 gives binary masks.
        beta: Weight β of the smoothness term; larger values give more connected masks.
        gamma: Weight γ of color differences in the smoothness term. Borders follow image edges.
        eta: Weight η of the prior. Larger values bring the mean of a mask closer to λ_k.
        cost: Smoothness as a power of the difference of levels: ``l1``, ``l2`` or ``l4``.
        neighborhood: Places on each side of a border over which colors are averaged.
        transport: ``exact`` moves blocks by the optimal assignment, ``reference`` by the rule of
            the authors' code, ``none`` moves nothing.
        transport_eps: Cost of a move per squared distance; larger values move fewer blocks.
        transport_size: Side of the blocks that move, in places. None moves the mask's blocks.
        adv_p: Probability of adversarial noise, drawn separately for samples and partners.
        adv_eps: Maximum noise per pixel, on the scale 0 … 255.
        mean: Mean that ``x`` was normalized with. Only adversarial noise needs it.
        std: Standard deviation that ``x`` was normalized with. None expects pixels in [0, 1].
        saliency_pool: ``pool`` of :func:`multimix.input_saliency`. It has no effect if the clean
            pass also computes a loss or noise.
        out_of_range: ``refuse`` raises an error if an edge weight could be negative, ``clamp``
            sets it to 0.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        clean_scale: Scale of that loss: see :class:`multimix.methods.path.CleanLossMethod`.
        threads: Maximum number of threads; None uses torch's number.
        backend: ``auto`` uses the compiled solver if numba is installed. ``torch`` uses the torch
            solver on the device of ``x``.

    Example::

        method = PuzzleMix(k=5, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
        mixed_forward(model, method, x, y).loss().backward()
    """

    blocks: tuple[Blocks, ...] = (2, 4, 8, 16)
    labels: int = 3
    beta: float = 1.2
    gamma: float = 0.5
    eta: float = 0.2
    cost: LabelCost = "l2"
    neighborhood: int = 4
    transport: Transport = "exact"
    transport_eps: float = 0.8
    transport_size: int | None = None
    adv_p: float = 0.0
    adv_eps: float = 10.0
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
            raise ValueError(f"adv_eps must be in 0 … 255, got {self.adv_eps!r}")
        check_whole("neighborhood", self.neighborhood)
        for name in ("transport_size", "saliency_pool", "threads"):
            check_whole(name, getattr(self, name), none=True)
        check_labels_option(self.labels, self.cost)
        check_share("adv_p", self.adv_p)

    @property
    def traits(self) -> Traits:
        """The traits; ``noise`` is required if samples or partners may get adversarial noise."""
        traits = super().traits
        if self.adv_p > 0:
            return traits._replace(needs=("saliency", "noise"))
        accepts = (name for name in traits.accepts if name not in ("noise", "noise_pair"))
        return traits._replace(accepts=tuple(accepts))

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        if "noise" in batch.given or self.adv_p == 0:
            return super().inputs(batch)
        roles = self._attacked(batch.generator)
        noise: dict[str, Any] = {"noise": None, "noise_pair": None}
        if not any(roles):
            return {**super().inputs(replace(batch, given={**batch.given, **noise})), **noise}
        delta, clean = self._attack(batch)
        noise = _by_role(delta, roles)
        inputs = {**noise, "saliency": clean.saliency}
        return {**inputs, "clean_logits": clean.logits} if self.clean_weight > 0 else inputs

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        noise: Tensor | None = None,
        **given: Any,
    ) -> PairPlan:
        if noise is not None and "noise_pair" not in given:
            given |= _by_role(noise, self._attacked(generator))
        else:
            given["noise"] = noise
        return super().draw(x, generator=generator, partner=partner, lam=lam, **given)

    def _attacked(self, generator: Generator) -> tuple[bool, bool]:
        """Draw whether samples and whether partners get noise."""
        first, second = torch.rand(2, generator=generator, dtype=torch.float64, device="cpu")
        return bool(first < self.adv_p), bool(second < self.adv_p)

    def clean_pass(self, batch: Batch, *, training: bool) -> CleanPass:
        pool = None if training else self.saliency_pool
        model, output = batch.model, batch.output
        return clean_pass(model, batch.x, batch.y, training=training, output=output, pool=pool)

    def _attack(self, batch: Batch) -> tuple[Tensor, CleanPass]:
        """Compute noise ``[B, C, *size]`` by one gradient step; also return the clean pass.

        In pixels std · x + mean, the noise is u · clip(δ + (ε + 2/255) sign(g), ±ε), limited such
        that pixels stay in [0, 1]. δ is uniform in ±ε, g is the gradient at x + δ, and u is one
        uniform draw.
        """
        x, eps = batch.x, self.adv_eps / 255
        (mean, std), slack = self._normalization(x), slack_of(x)
        pixels = x.detach() * std + mean
        low, high = (float(end) for end in pixels.aminmax()) if can_inspect(pixels) else (0.0, 1.0)
        if not -slack <= low <= high <= 1 + slack:
            raise ValueError(
                f"adversarial noise needs pixels in 0 … 1, got {low:.3g} … {high:.3g}: "
                "pass the mean= and std= that x was normalized with"
            )
        pixels = pixels.clamp(0, 1)
        start = (uniform_like(x, batch.generator) * 2 - 1) * eps
        start = (pixels + start).clamp(0, 1) - pixels
        clean = clean_pass(
            batch.model,
            x + start / std,
            batch.y,
            training=self.clean_weight > 0,
            output=batch.output,
        )
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
        noise_pair: Tensor | None = None,
    ) -> PairPlan:
        if x.ndim not in (3, 4):
            raise ValueError(
                f"PuzzleMix needs x of shape [B, C, length] or [B, C, H, W], got {list(x.shape)}"
            )
        check_channels("mean", self.mean, x)
        check_channels("std", self.std, x)
        size = as_plane(x.shape[2:])
        drawn = self.blocks[int(torch.randint(len(self.blocks), (), generator=generator))]
        rows, columns = (drawn, drawn) if isinstance(drawn, int) else drawn
        grid = min(rows, size[0]), min(columns, size[1])
        salient = checked_saliency(saliency, x).reshape(len(x), *size)
        noises = [None if part is None else checked_noise(part, x) for part in (noise, noise_pair)]
        plane, cells = x.reshape(*x.shape[:2], *size), self._transport_cells(grid, size)
        # A single transfer from the device.
        color, bounds, shares, *finer = downloaded(
            *seen_colors(plane, grid, self.neighborhood),
            block_saliency(salient, grid),
            *([] if cells == grid else [block_saliency(salient, cells)]),
        )
        terms = terms_of(
            plane,
            partner,
            color,
            bounds,
            shares,
            beta=self.beta,
            gamma=self.gamma,
            std=self.std,
            out_of_range=self.out_of_range,
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
        plan = BlockPlan(
            partner=partner,
            size=x.shape[2:],
            levels=levels,
            steps=self.labels - 1,
            cells=grid,
            noise=noises[0],
            noise_pair=noises[1],
        )
        if self.transport == "none":
            return plan
        return self._transported(plan, cells, finer[0] if finer else shares)

    def _transport_cells(self, grid: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
        """Return the grid of the blocks that move: the mask's grid or a finer one."""
        if self.transport == "none" or self.transport_size is None:
            return grid
        rows, columns = (
            cut_finer(side, count, self.transport_size)
            for side, count in zip(size, grid, strict=True)
        )
        return rows, columns

    def _transported(self, plan: BlockPlan, cells: tuple[int, int], salient: Tensor) -> BlockPlan:
        """Move cells of both images to visible places; ``salient`` are their shares of saliency."""
        levels = plan.levels if cells == plan.cells else spread(plan.levels, cells)
        rule: Rule = "reference" if self.transport == "reference" else "exact"
        still = torch.arange(cells[0] * cells[1], dtype=torch.int32)
        roles = (levels < plan.steps, salient), (levels > 0, salient[plan.partner])
        moved = []
        for visible, shares in roles:
            source = assigned_blocks(
                visible, shares, self.transport_eps, rule=rule, threads=self.threads
            )
            moved.append(None if bool((source == still).all()) else source)
        return replace(plan, cells=cells, source=moved[0], source_pair=moved[1])

    def _normalization(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``mean`` and ``std`` as tensors that broadcast over ``x``; ``std`` None is 1."""
        std = 1.0 if self.std is None else self.std
        return per_channel("mean", self.mean, x).to(x.dtype), per_channel("std", std, x).to(x.dtype)


def _by_role(noise: Tensor, roles: tuple[bool, bool]) -> dict[str, Tensor | None]:
    names = ("noise", "noise_pair")
    return {name: noise if role else None for name, role in zip(names, roles, strict=True)}


def checked_blocks(blocks: Any) -> tuple[Blocks, ...]:
    """Return ``blocks`` as a tuple of numbers or pairs of numbers, or raise ValueError."""
    options: Any = (blocks,) if isinstance(blocks, int) else blocks
    is_valid = isinstance(options, Sequence) and len(options) > 0
    for option in options if is_valid else ():
        is_pair = isinstance(option, tuple) and len(option) == 2
        numbers: Any = option if is_pair else (option,)
        is_valid &= all(is_whole(number) and 1 <= number <= MAX_BLOCKS for number in numbers)
    if not is_valid:
        raise ValueError(
            f"blocks must be blocks per side, 1 … {MAX_BLOCKS}, or pairs (rows, columns), "
            f"such as (2, 4, 8, 16), got {blocks!r}"
        )
    return tuple(options)


def assigned_blocks(
    visible: Tensor,
    saliency: Tensor,
    eps: float,
    *,
    rule: Rule = "exact",
    threads: int | None = None,
) -> Tensor:
    """Assign blocks to visible places.

    With d²(i, j) = ((r_i − r_j) / (rows − 1))² + ((c_i − c_j) / (columns − 1))² the rule ``exact``
    minimizes

        J = Σ over visible j of ε d²(source_j, j) − saliency[source_j],  visible sources distinct.

    ``reference`` is the rule of the authors' code, which is not optimal. In max(rows, columns)
    rounds, each block bids ε d² − saliency for the place where this is smallest, and the lowest
    negative bid wins. A place without a winner keeps its block; the authors' code leaves it blank.

    Args:
        visible: ``[K, B, rows, columns]``, True where the image is visible.
        saliency: ``[B, rows, columns]``, at least 0, with sum 1.
        eps: Cost ε of a move per squared distance.
        rule: ``exact`` or ``reference``.
        threads: Maximum number of threads; None uses torch's number.

    Returns:
        ``[K, B, rows · columns]`` int32: the index of the block shown at each place, counted row by
        row. Hidden places keep their block.

    Raises:
        ImportError: If numba is missing for ``reference``, or numba and SciPy for ``exact``.
        ValueError: If ``eps`` or ``rule`` is invalid.
    """
    check_number("eps", eps)
    check_choice("rule", rule, ("exact", "reference"))
    k, batch, rows, columns = visible.shape
    blocks = rows * columns
    shown = visible.to(torch.bool).reshape(-1, blocks).contiguous().numpy()
    salient = saliency.detach().to(torch.float64).reshape(-1, blocks).contiguous().numpy()
    down, right = _moves(rows, eps), _moves(columns, eps)
    if rule == "exact" and not has_numba():
        by_scipy = _scipy_assignment(shown, salient, down, right)
        return torch.from_numpy(by_scipy).reshape(k, batch, blocks)
    source = torch.arange(blocks, dtype=torch.int32).repeat(k * batch, 1)
    kernels = load_kernels(f"{__package__}.assignment_kernel", f"PuzzleMix with transport={rule!r}")
    if rule == "exact":
        floor = _first_prices(shown, salient, down, right)
        price = np.where(shown, floor, np.inf)
        leave = np.where(shown, np.tile(salient, (k, 1)) - floor, np.inf)
        duals = np.stack([price, floor, leave], 1)
        arrays = (shown, salient, down, right, floor, duals, source.numpy())

        def solve(start: int, stop: int) -> None:
            label, tree = np.full(blocks, np.inf), np.empty((2, blocks), np.int64)
            kernels.exact(*arrays, label, tree, start, stop)
    else:
        solve = partial(kernels.reference, shown, salient, down, right, source.numpy())
    in_chunks(solve, k * batch, threads, max(1, MIN_BLOCKS_PER_THREAD // blocks))
    return source.reshape(k, batch, blocks)


def _moves(side: int, eps: float) -> Array:
    """Return the cost of a move by 0, 1 … side − 1 blocks along one axis."""
    moves: Array = float(eps) * (np.arange(side) / max(side - 1, 1)) ** 2
    return moves


def _first_prices(shown: Array, saliency: Array, down: Array, right: Array) -> Array:
    """Compute ``[masks, blocks]``: min over visible r of s_r + cost of single steps to r."""
    repeated = np.tile(saliency, (len(shown) // len(saliency), 1))
    # Masks last, so that neighbors are contiguous.
    floor = np.where(shown, repeated, np.inf).T.reshape(len(down), len(right), -1).copy()
    for lines, moves in ((floor.swapaxes(0, 1), right), (floor, down)):
        for along in (lines, lines[::-1]):
            for before, after in pairwise(along):
                np.minimum(after, before + moves[1], out=after)
    return np.ascontiguousarray(floor.reshape(shown.shape[::-1]).T)


def _scipy_assignment(shown: Array, saliency: Array, down: Array, right: Array) -> Array:
    """Solve the exact rule with SciPy, ``[masks, blocks]``."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError(
            "PuzzleMix with transport='exact' needs numba or scipy: pip install multimix[solvers]"
        ) from error
    rows, columns = len(down), len(right)
    place = np.arange(rows * columns)
    row, column = place // columns, place % columns
    apart = down[abs(row[:, None] - row)] + right[abs(column[:, None] - column)]
    source = np.tile(np.arange(rows * columns, dtype=np.int32), (len(shown), 1))
    for mask, places in enumerate(shown):
        visible = places.nonzero()[0]
        _, blocks = linear_sum_assignment(apart[visible] - saliency[mask % len(saliency)])
        source[mask, visible] = blocks
    return source
