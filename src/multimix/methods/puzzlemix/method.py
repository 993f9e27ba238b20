"""Puzzle Mix (Kim et al., 2020) with K masks: exact, nested in λ, from one saliency pass."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

import torch
from torch import Generator, Tensor, nn

from ...checks import check_choice, check_share, checked_noise, checked_numbers, checked_saliency, is_number, is_whole
from ...geometry.blocks import BlockPlan, cut_finer, spread
from ...logits import Output
from ...plan import PairPlan
from ...sampling import resolved
from ...solvers.compiled import Backend
from ...solvers.energy import LabelCost
from ...solvers.terms import OutOfRange, block_saliency, cut_terms, slack_of
from ..base import CleanScale, Method, PairMethod, Prepared
from .adversarial import adversarial_noise
from .assignment import Rule, assigned_blocks
from .graphcut import MOST_BLOCKS, check_labels_option, solve_masks

Transport = Literal["exact", "reference", "none"]
Blocks = int | tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class PuzzleMix(PairMethod):
    """x̂_k shows in every block x or x', or both in parts, whichever is salient there; blocks may move to where they show.

    One number of ``blocks`` per side is drawn for the batch (a pair of numbers is rows and columns). The K masks minimise the
    energy of :mod:`multimix.solvers.energy` exactly: ``beta`` weighs smoothness, ``gamma`` how much of it looks at the colours
    across a border (averaged over ``neighbourhood`` places), ``eta`` the prior λ_k, ``labels`` is the number of values a mask
    has. ``transport`` moves salient hidden blocks to visible places at a cost of ``transport_eps`` times the squared distance,
    in blocks of ``transport_size`` places (None: the mask's own).

    ``mean`` and ``std`` say how x was normalised, so that std · x + mean are pixels in 0 … 1, in which colours count; without
    ``std`` x itself must lie there. Only ``adv_p`` looks at ``mean``. ``clean_weight`` adds the loss of the clean
    batch (:func:`multimix.mixed_loss`). With probability ``adv_p`` each, the samples in the first and in the second role get
    adversarial noise of up to ``adv_eps``/255; ``adv_roles`` fixes the two coins.
    """

    name = "puzzlemix"
    aliases = ("puzzle",)
    published = MappingProxyType(
        {
            "mixup_alpha": "alpha",
            "block_num": "blocks",
            "n_labels": "labels",
            "neigh_size": "neighbourhood",
            "t_eps": "transport_eps",
            "t_size": "transport_size",
            "clean_lam": "clean_weight",
            "mp": "threads",
        }
    )
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
    clean_weight: float = 0.0
    clean_scale: CleanScale = "auto"
    adv_p: float = 0.0
    adv_eps: float = 10.0
    adv_roles: tuple[bool, bool] | None = None
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] | None = None
    out_of_range: OutOfRange = "refuse"
    threads: int | None = None
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "blocks", checked_blocks(self.blocks))
        for name in ("mean", "std"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_numbers(name, getattr(self, name)))
        for name, kind in (
            ("cost", LabelCost),
            ("transport", Transport),
            ("clean_scale", CleanScale),
            ("out_of_range", OutOfRange),
            ("backend", Backend),
        ):
            check_choice(name, getattr(self, name), get_args(kind))
        for name in ("beta", "gamma", "eta", "transport_eps", "clean_weight", "adv_eps"):
            value = getattr(self, name)
            if not is_number(value) or value < 0:
                raise ValueError(f"{name} must be finite and at least 0, got {value!r}")
        if self.adv_eps > 255:
            raise ValueError(f"adv_eps counts in 255ths of the pixels' range, so it must lie in 0 … 255, got {self.adv_eps!r}")
        for name, least in (("neighbourhood", 1), ("transport_size", 1), ("threads", 1)):
            value, optional = getattr(self, name), name != "neighbourhood"
            if not (optional and value is None) and not (is_whole(value) and value >= least):
                none = ", or None" if optional else ""
                raise ValueError(f"{name} must be a whole number, at least {least}{none}, got {value!r}")
        check_labels_option(self.labels, self.cost)
        roles = self.adv_roles
        if roles is not None and not (isinstance(roles, tuple) and len(roles) == 2 and all(isinstance(r, bool) for r in roles)):
            raise ValueError(f"adv_roles must be two of True and False, or None to draw them, got {roles!r}")
        check_share("adv_p", self.adv_p)
        if not all(0 < part < math.inf for part in _parts(self.std)):
            raise ValueError(f"std must be positive, got {self.std!r}")

    @property
    def needs(self) -> tuple[str, ...]:
        """``saliency [B, *size]``, and ``noise [B, C, *size]`` unless it is certain that no role is attacked."""
        attacked = self.adv_p > 0 if self.adv_roles is None else any(self.adv_roles)
        return ("saliency", "noise") if attacked else ("saliency",)

    @property
    def accepts(self) -> tuple[str, ...]:
        accepted = super().accepts
        return (*accepted, "noise") if self.adv_p > 0 and "noise" not in accepted else accepted

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        chosen = super().choose(generator=generator)
        if not isinstance(chosen, PuzzleMix) or chosen.adv_p == 0 or chosen.adv_roles is not None:
            return chosen
        first, second = (torch.rand(2, generator=resolved(generator), dtype=torch.float64) < self.adv_p).tolist()
        return replace(chosen, adv_roles=(first, second))

    def prepare(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        generator: Generator,
        output: Output | None = None,
        given: Collection[str] = (),
    ) -> Prepared:
        if "noise" in given or "noise" not in self.needs:
            return super().prepare(model, x, y, generator=generator, output=output, given=given)
        self._check_channels(x)
        noise, clean = adversarial_noise(
            model,
            x,
            y,
            eps=self.adv_eps / 255,
            mean=_per_channel(self.mean, x),
            std=_per_channel(self.std, x),
            slack=slack_of(x),
            training=self.clean_weight > 0,
            generator=generator,
            output=output,
        )
        maps = {"noise": noise} if "saliency" in given else {"noise": noise, "saliency": clean.saliency}
        return Prepared(maps, clean.loss, clean.logits) if self.clean_weight > 0 else Prepared(maps)

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
        self._check_channels(x)
        size = (1, x.shape[2]) if x.ndim == 3 else (x.shape[2], x.shape[3])
        drawn = self.blocks[int(torch.randint(len(self.blocks), (), generator=generator))]
        rows, columns = (drawn, drawn) if isinstance(drawn, int) else drawn
        grid = min(rows, size[0]), min(columns, size[1])
        salient = checked_saliency(saliency, x).reshape(len(x), *size)
        noise = None if noise is None else checked_noise(noise, x)
        held = block_saliency(salient, grid)
        terms = cut_terms(
            x.reshape(*x.shape[:2], *size),
            partner,
            held,
            beta=self.beta,
            gamma=self.gamma,
            neighbourhood=self.neighbourhood,
            std=self.std,
            out_of_range=self.out_of_range,
        )
        levels = solve_masks(
            terms, lam, labels=self.labels, eta=self.eta, cost=self.cost, threads=self.threads, backend=self.backend
        )
        plan = BlockPlan(partner=partner, size=x.shape[2:], levels=levels, steps=self.labels - 1, cells=grid)
        if noise is not None and self.adv_roles is not None:
            first, second = (noise if attacked else None for attacked in self.adv_roles)
            plan = replace(plan, noise=first, noise_pair=second)
        return plan if self.transport == "none" else self._transported(plan, salient, held)

    def _transported(self, plan: BlockPlan, saliency: Tensor, held: Tensor) -> BlockPlan:
        """``plan`` with the blocks of both images moved to where they are seen, in each of the K masks."""
        cells = plan.cells
        if self.transport_size is not None:
            rows, columns = (cut_finer(s, n, self.transport_size) for s, n in zip(saliency.shape[1:], cells, strict=True))
            cells = rows, columns
        levels = plan.levels
        if cells != plan.cells:
            levels, held = spread(levels, cells), block_saliency(saliency, cells)
        held = held.cpu()
        moved = []
        for visible, own in ((levels < plan.steps, held), (levels > 0, held[plan.partner])):
            rule: Rule = "reference" if self.transport == "reference" else "exact"
            source = assigned_blocks(visible, own, self.transport_eps, rule=rule, threads=self.threads)
            still = torch.arange(source.shape[2], dtype=torch.int32)
            moved.append(None if bool((source == still).all()) else source)
        return replace(plan, cells=cells, source=moved[0], source_pair=moved[1])

    def _check_channels(self, x: Tensor) -> None:
        for name in ("mean", "std"):
            count = len(_parts(getattr(self, name)))
            if count not in (1, x.shape[1]):
                raise ValueError(
                    f"{name} must have one value or one for each of {x.shape[1]} channels, the second axis of x, got {count}"
                )


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


def _parts(value: float | tuple[float, ...] | None) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (1.0 if value is None else value,)


def _per_channel(value: float | tuple[float, ...] | None, x: Tensor) -> Tensor:
    return torch.tensor(_parts(value), dtype=x.dtype, device=x.device).reshape(-1, *[1] * (x.ndim - 2))
