"""Enumeration of a model's pairs against a table of gradients taken one by one."""

import json
from dataclasses import asdict

import pytest
import torch
from torch import nn

from multimix import CutMix, InputMixup, ManifoldMixup, NoMix
from multimix.lab.studies.variance import Enumeration, enumerate_pairs
from multimix.lab.studies.variance.parts import beta_nodes
from variance_oracle import table_enumeration

SAMPLES, NODES = 5, 3


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(0.1), nn.Linear(4, 3)).double()
    return model, torch.randn(SAMPLES, 2, dtype=torch.float64, generator=generator), torch.tensor([0, 1, 2, 1, 0])


def table_of(model, x, y, share, hidden):
    def one(i, j, lam):
        z = model[:2](x) if hidden else x
        mixed = (1 - lam) * z[i] + lam * z[j]
        log_p = (model[2] if hidden else model)(mixed).log_softmax(0)
        loss = -(1 - lam) * log_p[y[i]] - lam * log_p[y[j]]
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    rows = [[torch.stack([one(i, j, lam) for lam in share]) for j in range(SAMPLES)] for i in range(SAMPLES)]
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize("method", [InputMixup(alpha=0.7), ManifoldMixup(alpha=0.7, layers=("1",))], ids=lambda m: m.name)
def test_all_pairs_of_a_model(data, method):
    model, x, y = data
    share, weight = beta_nodes(0.7, NODES)
    expected = table_enumeration(table_of(model, x, y, share, isinstance(method, ManifoldMixup)), weight)
    found = enumerate_pairs(model, method, x, y, nodes=NODES)
    assert found.samples == SAMPLES
    for name in ("shared", "averaged", "shared_means", "averaged_means"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-12)
    assert found.components.lam == pytest.approx(expected.components.lam, rel=1e-9)


def test_what_is_kept_as_json_comes_back(data):
    found = enumerate_pairs(data[0], InputMixup(), *data[1:], nodes=NODES)
    assert Enumeration.from_json(json.loads(json.dumps(asdict(found)))) == found


@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0])
def test_nodes_integrate_the_beta_law(alpha):
    """Moments of Beta(α, α) by the ratio of Beta functions: E λ^m = Π (α + i) / (2α + i)."""
    share, weight = beta_nodes(alpha, 6)
    assert float(weight.sum()) == pytest.approx(1)
    assert torch.equal(share + share.flip(0), torch.ones(6, dtype=torch.float64))
    expected = 1.0
    for power in range(1, 12):
        expected *= (alpha + power - 1) / (2 * alpha + power - 1)
        assert float((weight * share**power).sum()) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (NoMix(), "method must mix pairs in every batch"),
        (InputMixup(p=0.5), "method must mix pairs in every batch"),
        (InputMixup(alpha=0), "method must mix pairs in every batch"),
        (CutMix(), "method must be InputMixup or ManifoldMixup with one layer"),
        (ManifoldMixup(layers=("0", "1")), "method must be InputMixup or ManifoldMixup with one layer"),
    ],
)
def test_methods_without_these_parts_are_refused(data, method, sentence):
    with pytest.raises(ValueError, match=sentence):
        enumerate_pairs(data[0], method, *data[1:])


def test_one_node_is_refused():
    with pytest.raises(ValueError, match="nodes must be .* at least 2, got 1"):
        beta_nodes(1.0, 1)
