"""Co-Mixup (Kim et al., 2021) with K priors: many samples mixed jointly, salient and unlike each other.

A part has m inputs and m outputs on a grid of N blocks. Output j shows at block i the mixture o_ji of inputs, one of them or two
half and half; c_j = Σ_i o_ji. With b = β/N, g = γ/N, t = τN, compatibility A and the prior α the sweeps work on

    Σ_ji o_ji · u_i + b/2 Σ_j Σ_{i~i'} ‖o_ji − o_ji'‖² + g Σ_j c_j · push(A p_j),  p_j = Σ_{j' ≠ j} c_j'
    u_ki = −s_k(i) − η/N · log(α_k + 10⁻⁸)

where push(q) is q where it exceeds t, and 0 elsewhere (``hard``), or what exceeds t (``soft``). One output after the other is
solved for its blocks, with twice the push of the others as a cost of each input: the gradient, were there no threshold.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from ...checks import check_number, check_share, check_whole, checked_saliency
from ...compiled import in_chunks, noticed
from ...devices import downloaded, widest_float
from ...geometry.grid import areas, as_plane, block_saliency, borders, grid_of, spread
from ...mixing import can_write_in_place, into, memory_format, mix, rows_like
from ...plan import Plan, check_size
from ...precision import full_precision
from ...sampling import Sampler, check_path_options, sample_path
from ..base import Method
from ..clean_loss import CleanLossMethod
from ..puzzlemix.method import Blocks, checked_blocks
from ..registry import Look, register

FLOOR = 1e-8  # keeps the logarithm of the prior finite
BONUS = 5e-4  # what two inputs half and half cost less than the mean of both
TOLERANCE = 1e-6
MOST_INPUTS = 200  # of a part: labels of a block are kept in one byte
CACHED = 1 << 17  # places whose sums of windows are reckoned at once on a CPU
FINEST, BITS = 36, 52  # costs are multiples of 2⁻³⁶, or coarser if their sums would not fit 52 bits: 8 more are for a label


def mirrored_steps(
    method: "CoMixup", a: Tensor, b: Tensor, lam: Sequence[float], generator: Generator, contrast: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """For ``multimix look``: the row of A in a part of A, B and their mirror images, at evenly spaced priors.

    Mirrored or not, a picture is one class. A and B alone would stay as they are: of two outputs that are to differ each takes
    one. The pictures of A come first, because priors are tilted from the first half of a part to the second.
    """
    x = torch.stack([a, a.flip(2), b, b.flip(2)])
    many = replace(method, k=len(lam), part=len(x), sampler="grid", p=1.0)
    # Squared, because the contrast alone is too even to decide anything: then every output shows one picture.
    plan: Any = many.plan(x, saliency=contrast(x).square(), generator=generator)
    return plan.mix(x)[:: len(x)], plan.weights[:, 0, 2:].sum(1)


@register(
    "comixup",
    aliases=("co-mixup", "comix"),
    published={
        "mixup_alpha": "alpha",
        "m_part": "part",
        "m_block_num": "blocks",
        "m_beta": "beta",
        "m_gamma": "gamma",
        "m_eta": "eta",
        "m_thres": "tau",
        "m_thres_type": "rule",
        "m_omega": "omega",
        "lam_dist": "omega",
        "m_niter": "sweeps",
        "set_resolve": "resolve",
        "clean_lam": "clean_weight",
    },
    shared="saliency pass, compatibility, grid; parts of 20 samples mixed together",
    order="none: K priors along a path, no order of masks",
    # On grids that are solved exactly: larger ones may be solved by moves, which the tests' oracle does not make.
    examples=({"part": 3, "blocks": (3,)}, {"blocks": (2, (3, 2)), "rule": "soft", "start": "previous"}),
    exceptions={
        "volumes": "blocks lie in rows and columns: signals and images only",
        "order in k": "the prior is a weak wish and outputs push each other: no order",
        "pairing": "no pair is drawn; the partner is read off the weights",
    },
    look=Look(
        # 4 × 4 blocks are too coarse for pictures of this size.
        lambda side: {"blocks": (8,)},
        short="4 inputs: A, B and\ntheir mirror images;\nλ may fall",
        whole="It mixes many samples into as many: here A, B and their mirror images, and this is the output that goes with A. "
        "λ is the share of B and its mirror image. No λ can be asked for and no order is promised: the slider moves through "
        "its K steps. Saliency here is the squared contrast of the pictures.",
        steps=mirrored_steps,
        any_lam=False,
    ),
)
@dataclass(frozen=True, kw_only=True)
class CoMixup(CleanLossMethod):
    """x̂_k shows in every block the sample of its part that is salient there, or two half and half; rows of a part differ.

    Consecutive parts of ``part`` samples are mixed jointly into as many outputs, on a grid of ``blocks`` per side (of several
    one is drawn for the batch; a pair of numbers is rows and columns). The objective is in :mod:`.method`:
    ``beta`` weighs smoothness, ``gamma`` that outputs show different samples (by ``rule``, once others show one in more than
    ``tau`` of an image), ``eta`` the Dirichlet(``alpha``) prior, ``omega`` the distance between the salient places of two
    samples, looked for in windows of ``window`` places at every ``stride``-th. ``sweeps`` go over all outputs as published;
    ``descent`` more accept only what lowers the objective. ``soft_labels`` allow two samples in a block, ``resolve`` asks
    outputs of the same samples to differ. ``precedence`` and ``borders`` choose between what is meant and what the authors'
    code does. Each of the K steps starts from the drawn labels, so that all have one law, or with ``start="previous"`` from the
    step before: neighbours are then more alike, and later steps show one sample only more often.
    """

    alpha: float = 2.0
    sampler: Sampler = "iid"
    part: int = 20
    blocks: tuple[Blocks, ...] = (4,)
    beta: float = 0.32
    gamma: float = 1.0
    eta: float = 0.05
    tau: float = 0.83
    omega: float = 0.001
    window: int = 8
    stride: int = 1
    sweeps: int = 4
    descent: int = 1
    soft_labels: bool = True
    resolve: bool = True
    rule: Literal["hard", "soft"] = "hard"
    precedence: Literal["intended", "reference"] = "intended"
    borders: Literal["objective", "reference"] = "objective"
    start: Literal["fresh", "previous"] = "fresh"
    threads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path_options(self.k, self.alpha, self.sampler)
        object.__setattr__(self, "blocks", checked_blocks(self.blocks))
        check_share("omega", self.omega)
        for name in ("beta", "gamma", "eta", "tau"):
            check_number(name, getattr(self, name))
        for name in ("part", "window", "stride", "sweeps"):
            check_whole(name, getattr(self, name))
        check_whole("descent", self.descent, 0)
        check_whole("threads", self.threads, none=True)
        for name in ("soft_labels", "resolve"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.part > MOST_INPUTS:
            raise ValueError(f"part must be at most {MOST_INPUTS}, got {self.part}")

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        return None if self.alpha == 0 else super().choose(generator=generator)

    def draw(self, x: Tensor, *, generator: Generator, saliency: Tensor) -> Plan:
        if x.ndim not in (3, 4):
            raise ValueError(f"CoMixup needs x of shape [B, C, length] or [B, C, H, W], got {list(x.shape)}")
        size = as_plane(x.shape[2:])
        salient = checked_saliency(saliency, x).reshape(len(x), *size)
        edges = (*range(0, len(x), self.part), len(x))
        # Before the path, so that K changes neither the grid nor where outputs begin.
        drawn = self.blocks[int(torch.randint(len(self.blocks), (), generator=generator))]
        rows, columns = (drawn, drawn) if isinstance(drawn, int) else drawn
        grid = min(rows, size[0]), min(columns, size[1])
        count = torch.tensor(edges).diff()
        inputs = count.repeat_interleave(count)[:, None, None]
        uniform = torch.rand(len(x), *grid, dtype=torch.float64, generator=generator)
        held, place = downloaded(block_saliency(salient, grid), salient_places(salient, window=self.window, stride=self.stride))
        groups = Groups(
            held=held,
            prior=tilted_priors(self.k, self.alpha, edges, sampler=self.sampler, generator=generator),
            affinity=affinities(place, edges, omega=self.omega),
            start=(uniform * inputs).long(),
            edges=edges,
        )
        first, second, _ = self.solve(groups)
        return ordered_plan(first, second, edges, x.shape[2:])

    def solve(self, groups: "Groups") -> tuple[Tensor, Tensor, float]:
        """The two inputs that every block of every output shows half and half, twice the same where it is one.

        ``first`` and ``second`` are ``[K, B, rows, columns]``, indices into the batch, first ≤ second; then the share of the
        solves of one output that are certainly best. They depend on nothing but a part's own inputs.
        """
        from .kernel import solve_all

        held = groups.held.detach().cpu().double()
        batch, rows, columns = held.shape
        k, edges, blocks = len(groups.prior), groups.edges, rows * columns
        # Lines along the shorter side keep the front of the elimination short.
        turned = columns > rows
        short = min(rows, columns)

        def numbered(grid: Tensor) -> NDArray[Any]:
            return (grid.mT if turned else grid).reshape(batch, -1).contiguous().numpy()

        tilt = -self.eta / blocks * (groups.prior.double() + FLOOR).log()
        first, second = np.empty((2, k, batch, blocks), np.int64)
        exact = np.zeros((len(edges) - 1, 2), np.int64)
        arrays = (
            numbered(held),
            tilt.contiguous().numpy(),
            groups.affinity.double().contiguous().numpy(),
            numbered(groups.start.long()),
            np.array(edges),
            neighbours(blocks // short, short),
            self._weights(groups),
            first,
            second,
            exact,
        )
        with noticed(solve_all, seconds=40.0):
            in_chunks(lambda low, high: solve_all(*arrays, low, high), len(edges) - 1, self.threads)
        offset = torch.tensor(edges[:-1]).repeat_interleave(torch.tensor(edges).diff())[None, :, None]
        shown = [(torch.from_numpy(part) + offset).view(k, batch, blocks // short, short) for part in (first, second)]
        shown = [(part.mT if turned else part).contiguous() for part in shown]
        return shown[0], shown[1], float(exact[:, 1].sum() / exact[:, 0].sum())

    def _weights(self, groups: "Groups") -> Any:
        """The numbers that the kernel needs, of one type always: another would be compiled for anew."""
        from .kernel import Weights

        blocks = groups.held[0].numel()
        gamma = self.gamma / blocks
        inputs = groups.affinity.shape[1]
        least = float(groups.prior.min()) + FLOOR
        largest = 1 + self.eta * abs(math.log(least)) + 2 * gamma * inputs * blocks * float(groups.affinity.abs().max()) + gamma
        largest += 4 * self.beta + BONUS
        return Weights(
            beta=self.beta / blocks,
            gamma=gamma,
            tau=float(self.tau * blocks),
            bonus=BONUS,
            tolerance=TOLERANCE,
            sweeps=int(self.sweeps),
            rule=2 if self.rule == "soft" else int(self.precedence == "reference"),
            soft_labels=self.soft_labels,
            resolve=self.resolve,
            own_borders=self.borders == "objective",
            fresh=self.start == "fresh",
            descent=int(self.descent),
            scale=2.0 ** min(FINEST, BITS - math.ceil(math.log2(largest * blocks))),
        )


class Groups(NamedTuple):
    """Parts of a batch to be mixed, part after part: inputs ``edges[p] … edges[p + 1] − 1`` belong to part p."""

    held: Tensor  # [B, rows, columns]: what each block holds of a sample's saliency, sum 1 per sample
    prior: Tensor  # [K, B]: the weight of each input in its part
    affinity: Tensor  # [parts, m, m]: compatibility, 0 where a part is smaller
    start: Tensor  # [B, rows, columns]: the input, counted within the part, that each output shows before the first sweep
    edges: tuple[int, ...]


def compatibility(saliency: Tensor, edges: tuple[int, ...], *, omega: float, window: int = 8, stride: int = 1) -> Tensor:
    """``[parts, m, m]``: A = (1 − ω) I + ω m Δ / ΣΔ, Δ the L1 distances between the most salient windows of two samples.

    ``saliency`` is ``[B, H, W]``; windows have ``window`` places a side, or as many as there are. If all peaks of a part coincide
    there is nothing to tell inputs apart: Δ counts as 0.
    """
    return affinities(salient_places(saliency, window=window, stride=stride).cpu(), edges, omega=omega)


def salient_places(saliency: Tensor, *, window: int, stride: int) -> Tensor:
    """``[B, 2]``: row and column of the most salient window of each map ``[B, H, W]``, the first of several."""
    tall, wide = (min(window, side) for side in saliency.shape[1:])
    exact = widest_float(saliency.device)
    # On a CPU a few maps at a time, whose sums stay in the cache.
    few = max(1, CACHED // saliency[0].numel()) if saliency.device.type == "cpu" else len(saliency)
    places = []
    for maps in torch.split(saliency, few):
        sums = window_sums(window_sums(maps.to(exact), 1, tall)[:, ::stride], 2, wide)[:, :, ::stride]
        peak = sums.flatten(1).argmax(1)
        places.append(torch.stack([peak // sums.shape[2], peak % sums.shape[2]], 1))
    return torch.cat(places)


def window_sums(values: Tensor, axis: int, length: int) -> Tensor:
    """Sums of each ``length`` neighbours along an axis, by doubling: equal windows have equal sums, wherever they lie."""
    count = values.shape[axis] - length + 1
    found, start, size = None, 0, 1
    while True:
        if length & size:
            piece = values.narrow(axis, start, count)
            found = piece if found is None else found + piece
            start += size
        if found is not None and start == length:
            return found
        kept = values.shape[axis] - size
        values = values.narrow(axis, 0, kept) + values.narrow(axis, size, kept)
        size *= 2


def affinities(place: Tensor, edges: tuple[int, ...], *, omega: float) -> Tensor:
    """:func:`compatibility` of samples whose most salient windows lie at ``place [B, 2]``, on the CPU."""
    place = place.double()
    most = max(high - low for low, high in pairwise(edges))
    found = torch.zeros(len(edges) - 1, most, most, dtype=torch.float64)
    for p, (low, high) in enumerate(pairwise(edges)):
        here = place[low:high]
        apart = (here[:, None] - here[None]).abs().sum(2)
        total = float(apart.sum())
        found[p, : high - low, : high - low] = (1 - omega) * torch.eye(high - low, dtype=torch.float64)
        if total > 0:
            found[p, : high - low, : high - low] += omega * (high - low) * apart / total
    return found


@lru_cache(maxsize=64)
def neighbours(lines: int, length: int) -> NDArray[np.int64]:
    """``[lines · length, 4]``: the blocks after, before, below and above each block; −1 where there is none."""
    number = np.pad(np.arange(lines * length).reshape(lines, length), 1, constant_values=-1)
    around = (number[1:-1, 2:], number[1:-1, :-2], number[2:, 1:-1], number[:-2, 1:-1])
    return np.ascontiguousarray(np.stack(around, 2).reshape(-1, 4))


def tilted_priors(k: int, alpha: float, edges: Sequence[int], *, sampler: Sampler, generator: Generator) -> Tensor:
    """``[K, B]``: for every part K weights of its inputs, sum 1, each by itself from Dirichlet(α) in every pair of inputs.

    Input i of the first half of a part is paired with input i of the second half. A pair's weight is drawn once and divided by a
    path λ_1 < … < λ_K of its own: weights of the first half fall with k, those of the second half rise, before they are
    divided by their sum. With K = 1 they are exactly Dirichlet(α, …, α). The last input of an odd part has no pair.
    """
    halves = [(high - low) // 2 for low, high in pairwise(edges)]
    lam = sample_path(k, alpha, rows=max(1, sum(halves)), sampler=sampler, generator=generator)
    pair, single = (_log_gamma(count, shape, generator) for count, shape in ((sum(halves), 2 * alpha), (len(halves), alpha)))
    rows, at = [], 0
    for p, half in enumerate(halves):
        here = slice(at, at + half)
        log = [pair[here] + torch.log1p(-lam[:, here]), pair[here] + lam[:, here].log()]
        if edges[p + 1] - edges[p] > 2 * half:
            log.append(single[p].expand(k, 1))
        rows.append(torch.cat(log, 1).softmax(1))
        at += half
    return torch.cat(rows, 1)


def ordered_plan(first: Tensor, second: Tensor, edges: Sequence[int], size: torch.Size) -> "GroupPlan":
    """The plan with the outputs of every part in an order in which row i holds much of sample i, found greedily."""
    batch = first.shape[1]
    plan = GroupPlan(partner=torch.arange(batch), first=first, second=second, size=size)
    shares = plan.weights.sum(0)
    order = torch.arange(batch)
    for low, high in pairwise(edges):
        free_rows, free_inputs = set(range(low, high)), set(range(low, high))
        for place in shares[low:high, low:high].flatten().argsort(descending=True, stable=True).tolist():
            row, own = low + place // (high - low), low + place % (high - low)
            if row in free_rows and own in free_inputs:
                free_rows.remove(row)
                free_inputs.remove(own)
                order[own] = row
    others = shares[order].fill_diagonal_(0)
    most, partner = others.max(1)
    return GroupPlan(
        partner=partner.where(most > 0, torch.arange(batch)), first=first[:, order], second=second[:, order], size=size
    )


def _log_gamma(count: int, shape: float, generator: Generator) -> Tensor:
    """log of Gamma(a) = Gamma(a + 1) · U^(1/a): nothing underflows however small a is."""
    gamma = torch._standard_gamma(torch.full((count,), shape + 1, dtype=torch.float64), generator=generator)
    uniform = torch.rand(count, dtype=torch.float64, generator=generator)
    return gamma.log() + torch.log1p(-uniform) / shape


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
        """``[K, B, B]``, in float64 where there is one: the share of every sample (last axis) in every output; rows sum to 1."""
        device = self.first.device
        places = areas(as_plane(self.size), grid_of(self.first), device).to(widest_float(device))
        part = (places / (2 * self.size.numel())).flatten()
        shares = torch.zeros(*self.first.shape[:2], len(self.partner), dtype=part.dtype, device=device)
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
        plane = z.reshape(*z.shape[:2], *as_plane(self.size))
        out_plane = None if out is None else out.view(len(out), *plane.shape[1:])
        if not can_write_in_place(z) or not (out_plane is None or out_plane.is_contiguous(memory_format=memory_format(plane))):
            return into(self._block_by_block(plane).reshape(self.k * len(z), *z.shape[1:]), z, out)
        from .mixing_kernel import show_blocks

        mixed = rows_like(plane, self.k) if out_plane is None else out_plane
        show_blocks(plane, self.first, self.second, mixed)
        return mixed.view(len(mixed), *z.shape[1:]) if out is None else out

    def _block_by_block(self, plane: Tensor) -> Tensor:
        """``[K·B, C, H, W]`` from ``plane [B, C, H, W]``: two samples everywhere, since asking where would stall accelerators."""
        first, second = (shown.flatten(0, 1) for shown in (self.first, self.second))
        weight = 0.5 * (first != second)
        down, across = (pairwise(borders(side, count)) for side, count in zip(plane.shape[2:], first.shape[1:], strict=True))
        columns = list(enumerate(across))
        lines = []
        for r, (top, bottom) in enumerate(down):
            blocks = [(c, plane[:, :, top:bottom, left:right]) for c, (left, right) in columns]
            lines.append([mix(z[first[:, r, c]], z[second[:, r, c]], weight[:, r, c, None, None, None]) for c, z in blocks])
        return torch.cat([torch.cat(line, 3) for line in lines], 2)
