"""One small study for all tests that need its files."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from multimix.lab.report.pages.variance import variance_frame
from multimix.lab.studies.variance.cases import QUICK
from multimix.lab.studies.variance.study import variance

SMALL = {"replicates": 12, "pairs": 30, "groups": 4, "group": 10, "nodes": 3, "batch": 8, "ks": (1, 5), "stratified_ks": (5,)}


@pytest.fixture(scope="session")
def tiny():
    """Settings with which the batches around B_0 can be measured on the spiral (seed 1: B_0 is about 80), not on the digits."""
    return {
        "spiral": replace(QUICK["spiral"], samples=20, epochs=20, seed=1, rows=10**5, **SMALL),
        "digits": replace(QUICK["digits"], samples=50, epochs=2, rows=10**3, **SMALL),
    }


@pytest.fixture(scope="session")
def files(tiny, tmp_path_factory):
    """The page and the rows."""
    return variance(settings=tiny, out=tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def frame(files):
    return variance_frame(files[1])


@pytest.fixture(scope="module")
def clusters():
    """Two classes apart, where λ matters: mixed inputs come to lie between the classes, and B_0 is small."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 6), nn.LeakyReLU(0.1), nn.Linear(6, 2))
        model[2].weight.data *= 3
    y = (torch.arange(40) < 20).long()
    return model, 0.5 * torch.randn(40, 2, generator=generator) + 2 * (y.unsqueeze(1) - 0.5), y
