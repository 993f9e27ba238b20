"""What the mask benchmark compares with: the published puzzle-mix flow around ``gco-wrapper``, and its dense transport rule.

Written from a description of the public code, in the library's conventions: λ is the partner's share and a level counts
steps towards the partner. The published names are the other way round (λ and the mask weigh the first image), which is only a
relabelling. Three labels and squared label cost throughout.

gco can end the process (a C++ exception that nobody catches), so ``gco_masks`` is only ever called in a child process.
"""

from collections.abc import Iterator
from math import comb
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d

from multimix.methods.puzzlemix.rof import CutProblem

D = 2  # three labels
OVERFLOW = (2**31 - 1) // 100_000  # the wrapper multiplies unaries by 1e5 in 32 bits: above 21474 they wrap
Ints = NDArray[np.int32]


class PublicTerms(NamedTuple):
    """float32: what a block costs when it shows the own image or the partner's, ``[B, n, n]``, and the weights of its borders."""

    own: Tensor
    pair: Tensor
    down: Tensor
    right: Tensor


class PublicProblem(NamedTuple):
    """The published integers of one pair and λ: ``unary [n, n, 3]``, ``down [n − 1, n]``, ``right [n, n − 1]``, all int32."""

    unary: Ints
    down: Ints
    right: Ints


def block_saliency(saliency: Tensor, n: int) -> Tensor:
    """``[B, n, n]``: the mean of every block, each image's sum 1."""
    blocks = avg_pool2d(saliency.unsqueeze(1), saliency.shape[-1] // n).squeeze(1)
    return blocks / blocks.sum((1, 2), keepdim=True)


def public_terms(x: Tensor, partner: Tensor, blocks: Tensor, beta: float, gamma: float, neighborhood: int) -> PublicTerms:
    """Saliency and borders folded into one cost per image and block; ``x [B, C, W, W]`` in [0, 1], ``blocks [B, n, n]``."""
    n = blocks.shape[-1]
    side = min(neighborhood, x.shape[-1] // n)
    pooled = avg_pool2d(x, side)
    weight = beta / (16 * n)
    own, pair = blocks[partner].clone(), blocks.clone()  # showing one image loses the saliency of the other
    edges = []
    for image in (pooled, pooled.transpose(2, 3)):
        cells = image.shape[-1] // n
        before, after = image[:, :, cells - 1 : -1 : cells], image[:, :, cells::cells]
        # jump[a, b]: own (0) or partner's (1) image shown before and after the border
        jump = {
            (a, b): weight * gamma * (first - second).abs().mean(1).unflatten(-1, (n, cells)).mean(-1)
            for a, first in enumerate((before, before[partner]))
            for b, second in enumerate((after, after[partner]))
        }
        upper, lower = (cost if image is pooled else cost.transpose(1, 2) for cost in (own, pair))
        for cost, a in ((upper, 0), (lower, 1)):
            cost[:, :-1] += (jump[a, 0] + jump[a, 1]) / 2
            cost[:, 1:] += (jump[0, a] + jump[1, a]) / 2
        edge = weight + (jump[0, 1] + jump[1, 0] - jump[0, 0] - jump[1, 1]) / 2
        edges.append(edge if image is pooled else edge.transpose(1, 2))
    return PublicTerms(own, pair, *edges)


def public_problems(terms: PublicTerms, lam: float, eta: float) -> Iterator[PublicProblem]:
    """Pair by pair, as published: the prior of ``lam`` is added, all is multiplied by 1000·n² and truncated to 32 bits."""
    for own, pair, down, right in zip(*(part.contiguous().numpy() for part in terms), strict=True):
        n = len(own)
        shares = np.array([comb(D, level) * lam**level * (1 - lam) ** (D - level) for level in range(D + 1)])
        prior = (-np.log(shares + 1e-8) * (eta / n**2)).astype(np.float32)
        towards = np.linspace(0, 1, D + 1, dtype=np.float32)
        unary = own[:, :, None] * (1 - towards) + pair[:, :, None] * towards + prior
        yield PublicProblem(*((np.float32(1000 * n * n) * part).astype(np.int32) for part in (unary, down, right)))


def gco_levels(problem: PublicProblem) -> Tensor:
    """``[n, n]`` uint8 by α-β swap to convergence; the float label cost makes the wrapper scale everything once more."""
    import gco

    labels = np.arange(D + 1, dtype=np.float32)
    distance = ((labels[:, None] - labels) / D) ** 2
    found = gco.cut_grid_graph(problem.unary, distance, problem.down, problem.right, algorithm="swap")
    return torch.from_numpy(found.reshape(problem.unary.shape[:2]).astype(np.uint8))


def gco_masks(terms: PublicTerms, lam: Tensor, eta: float) -> Tensor:
    """``[K, B, n, n]``: one call of gco for every pair and λ, as published. ``lam [K, 1]``."""
    found = [torch.stack([gco_levels(problem) for problem in public_problems(terms, share, eta)]) for share in lam[:, 0].tolist()]
    return torch.stack(found)


class Quality(NamedTuple):
    """``[M]`` each, for M masks: energies on the published integers, whether gco wrapped, whether the integers are convex."""

    gco: Tensor
    exact: Tensor
    overflows: Tensor
    convex: Tensor


def quality(problems: list[PublicProblem], levels: Tensor) -> Quality:
    """gco's ``levels [M, n, n]`` against the optimum of exactly its own integers, those of ``problems``.

    gco minimises 1e5·(U_i(v_i) + W_ij (v_i − v_j)²/4), so four times the bracket is a whole number. λ's prior has already been
    truncated label by label and is no longer one slope for all, hence our problem takes the differences of U as its base
    and 0 as its slope, every λ being a pair of its own. That is exact as long as U is convex in the label; truncation cannot
    break it (the prior bends by 277 units), λ below 6e-5 can, through the published 1e-8. Energies are those of the integers
    before the wrapper's multiplication, in 64 bits: for masks that overflow they show what the wrap cost.
    """
    from multimix.methods.puzzlemix.masks import problem_levels

    unary, down, right = (torch.from_numpy(np.stack(part)).long() for part in zip(*problems, strict=True))
    base = (D * D * unary.diff(dim=3)).permute(0, 3, 1, 2).contiguous()
    slope = torch.zeros(1, len(base), dtype=torch.int64)
    ours = problem_levels(CutProblem(base, down.contiguous(), right.contiguous(), slope, (1, 2)))[0]

    def energy(found: Tensor) -> Tensor:
        found = found.long()
        places = D * D * unary.gather(3, found.unsqueeze(3)).flatten(1).sum(1)
        borders = (down * found.diff(dim=1) ** 2).flatten(1).sum(1) + (right * found.diff(dim=2) ** 2).flatten(1).sum(1)
        return places + borders

    overflows = (unary.abs() > OVERFLOW).flatten(1).any(1)
    return Quality(energy(levels), energy(ours), overflows, (base.diff(dim=1) >= 0).flatten(1).all(1))


def gco_quality(public: list[PublicTerms], paths: list[Tensor], eta: float) -> dict[str, float]:
    """Shares, gaps and counts over the masks of every batch, ``paths`` being its λ; gaps relative to the optimum's energy."""
    parts = []
    for terms, lam in zip(public, paths, strict=True):
        problems = [problem for share in lam[:, 0].tolist() for problem in public_problems(terms, share, eta)]
        parts.append(quality(problems, gco_masks(terms, lam, eta).flatten(0, 1)))
    all_parts = Quality(*(torch.cat(part) for part in zip(*parts, strict=True)))
    gap = (all_parts.gco - all_parts.exact) / all_parts.exact
    fair, wrapped = all_parts.convex & ~all_parts.overflows, all_parts.convex & all_parts.overflows
    return {
        "masks": len(gap),
        "overflow": float(all_parts.overflows.float().mean()),
        "suboptimal": float((gap[fair] > 0).float().mean()),
        "mean": float(gap[fair].mean()),
        "max": float(gap[fair].max()),
        "wrapped_mean": float(gap[wrapped].mean()) if wrapped.any() else 0.0,
        "wrapped_max": float(gap[wrapped].max()) if wrapped.any() else 0.0,
        "not_convex": int((~all_parts.convex).sum()),
        "worse": int((gap[all_parts.convex] < 0).sum()),
    }


def squared_distance(n: int) -> Tensor:
    """``[N, N]``: between the blocks of an n × n grid, in units of its side."""
    place = torch.arange(n)
    gap = (place[:, None] - place).square()
    whole = (gap[:, None, :, None] + gap[None, :, None, :]).reshape(n * n, n * n)
    return whole / max(n - 1, 1) ** 2  # divided last, so that equal distances are equal numbers: the rule's ties depend on it


def dense_transport(visible: Tensor, saliency: Tensor, eps: float) -> Tensor:
    """``[B, N, N]`` 0/1 plan, source → target, of the published rule: n rounds over dense float32 matrices.

    Every source bids on its cheapest target; the cheapest bid below 0 wins a target; a lost bid costs 1 more next time.
    ``visible [B, n, n]``, ``saliency [B, n, n]``.
    """
    n = visible.shape[-1]
    cost = eps * squared_distance(n) - saliency.flatten(1).unsqueeze(2) * visible.flatten(1).unsqueeze(1)
    won = torch.zeros_like(cost)
    for _ in range(n):
        bid = torch.zeros_like(cost).scatter_(2, cost.argmin(2, keepdim=True), 1)
        best = torch.zeros_like(cost).scatter_(1, (cost * bid).argmin(1, keepdim=True), 1)
        won = bid * best  # where the smallest entry belongs to no bidder, nobody wins
        cost = cost + (bid - won)
    return won


def plan_sources(plan: Tensor) -> Tensor:
    """``[B, N]`` int64: the source of every target of a dense plan, −1 where it stays empty."""
    return torch.where(plan.sum(1) > 0, plan.argmax(1), -1)


def objective(source: Tensor, visible: Tensor, saliency: Tensor, eps: float) -> Tensor:
    """``[B]`` float64: Σ over visible targets of eps · distance² − saliency of the chosen source; an empty target counts 0."""
    n = visible.shape[-1]
    chosen = source.clamp(min=0).long()
    far = squared_distance(n).double()[chosen, torch.arange(n * n)]
    shown = saliency.double().flatten(1).gather(1, chosen)
    return ((eps * far - shown) * (visible.flatten(1) & (source >= 0))).sum(1)


def transport_quality(cases: list[tuple[Tensor, Tensor]], eps: float) -> str:
    """One line for ``cases`` of visible [1, B, n, n] and saliency [B, n, n].

    J of identity, published rule and exact assignment; how often the rule is worse than exact; the visible blocks that exact
    moves; the visible targets for which the library's own copy of the rule finds the same source.
    """
    from multimix.methods.puzzlemix.method import assigned_blocks

    figures = []
    for visible, saliency in cases:
        seen = visible[0].flatten(1)
        home = torch.arange(seen.shape[1]).expand_as(seen)
        rule = plan_sources(dense_transport(visible[0].float(), saliency.float(), eps))
        exact, copied = (assigned_blocks(visible, saliency, eps, rule=name)[0] for name in ("exact", "reference"))
        scores = [objective(source, visible[0], saliency, eps) for source in (home, rule, exact)]
        assert (scores[2] <= torch.minimum(scores[0], scores[1]) + 1e-6).all(), "the exact assignment is not the best"
        shares = [scores[1] > scores[2] + 1e-6, (exact != home)[seen], (rule == copied)[seen]]
        figures.append(torch.stack([*(score.mean() for score in scores), *(share.double().mean() for share in shares)]))
    mean = torch.stack(figures).mean(0).tolist()
    return "{:10.4f} {:10.4f} {:10.4f} {:12.1%} {:7.2%} {:7.2%}".format(*mean)
