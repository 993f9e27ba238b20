"""The parts of the variance from a table of all gradients: a naive counterpart of enumerating the pairs of a model."""

import torch

from multimix.lab.studies.variance.theory import Enumeration, Means, Ways, means_of, ways_of, weighted


def table_enumeration(table, weight):
    """From gradients ``table [N, N, L, D]``, sample i with partner j at share l, and the probabilities ``weight [L]``."""
    table, weight = table.double(), weight.double()

    def both(g):
        n = torch.arange(len(g))
        own, off = g[n, n], g.clone()
        off[n, n] = 0
        first = off.sum(1)
        square, back = float((off * off).sum()), float((off * off.transpose(0, 1)).sum())
        return ways_of(own, first, off.sum(0), square, back), means_of(own, first)

    each = [both(table[:, :, at]) for at in range(len(weight))]
    averaged, averaged_means = both(torch.einsum("ijld,l->ijd", table, weight))
    shared = Ways(*weighted([ways for ways, _ in each], weight))
    return Enumeration(len(table), shared, averaged, Means(*weighted([means for _, means in each], weight)), averaged_means)
