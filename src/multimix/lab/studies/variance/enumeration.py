"""Every pair of a small data set: the parts of the variance without sampling, for independent pairs and for permutations."""

from typing import Any

import torch
from torch import Tensor, nn

from ....methods import Method
from .gradients import Gradients, leading
from .permutation import Enumeration, Means, Ways, means_of, ways_of, weighted
from .sampling import BLOCK, beta_nodes, check_shares


def enumerated(model: nn.Module, method: Method, x: Tensor, y: Tensor, *, nodes: int = 16) -> Enumeration:
    """Every ordered pair of the N samples at ``nodes`` quadrature shares: exact but for the quadrature, N²·nodes/2 gradients."""
    layer, alpha = check_shares(method)
    grads = Gradients(model, x, y)
    share, weight = beta_nodes(alpha, nodes)
    everyone = torch.arange(len(x)).unsqueeze(1)
    own = grads.of_pairs(everyone, everyone, torch.full((len(x), 1, 1), 0.5), layer).double()
    first = torch.zeros(len(x), nodes, grads.size, dtype=torch.float64)
    square = back = averaged = 0.0
    pairs = torch.triu_indices(len(x), len(x), offset=1)
    for i, j in zip(*(torch.split(end, max(1, BLOCK // nodes)) for end in pairs), strict=True):
        of_i, of_j = (end.unsqueeze(1).repeat_interleave(nodes, 0) for end in (i, j))
        lam = share.repeat(len(i)).reshape(-1, 1, 1)
        g = leading(grads.of_pairs(of_i, of_j, lam, layer), len(i)).double()
        # λ is the partner's share, so j→i at λ is i→j at 1 − λ: the same gradients, the nodes in reverse.
        turned = g.flip(1)
        first.index_add_(0, i, g).index_add_(0, j, turned)
        square += 2 * float(torch.einsum("pld,pld,l->", g, g, weight))
        back += 2 * float(torch.einsum("pld,pld,l->", g, turned, weight))
        averaged += 2 * float(torch.einsum("pld,l->pd", g, weight).square().sum())
    return _enumeration(own, first.transpose(0, 1), weight, square, back, averaged)


def _enumeration(own: Tensor, first: Tensor, weight: Tensor, square: float, back: float, averaged: float) -> Enumeration:
    """From the gradients ``own [N, D]`` of samples with themselves, the sums over partners ``first [L, N, D]``, and products."""
    mean = torch.einsum("lnd,l->nd", first, weight)
    # The products are means over λ already, and enter every node alike.
    shared = [ways_of(own, to, fro, square, back) for to, fro in zip(first, first.flip(0), strict=True)]
    return Enumeration(
        samples=len(own),
        shared=Ways(*weighted(shared, weight)),
        averaged=ways_of(own, mean, mean, averaged, averaged),
        shared_means=Means(*weighted([means_of(own, to) for to in first], weight)),
        averaged_means=means_of(own, mean),
    )


def enumeration_from(kept: dict[str, Any]) -> Enumeration:
    """What ``asdict`` and JSON made of an enumeration, read back."""
    kinds = {"shared": Ways, "averaged": Ways, "shared_means": Means, "averaged_means": Means}
    # asdict keeps named tuples as they are, and JSON makes lists of them.
    return Enumeration(samples=kept["samples"], **{name: kind(*kept[name]) for name, kind in kinds.items()})
