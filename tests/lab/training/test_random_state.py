"""What is drawn from global random streams in between leaves no trace, even if it ends with an error."""

import random
from contextlib import suppress

import numpy
import pytest
import torch

from multimix.lab.training.step import preserve_random_state


def drawn():
    return torch.rand(1).item(), numpy.random.random(), random.random()


@pytest.mark.parametrize("fails", [False, True])
def test_they_go_on_as_if_nothing_had_been(fails):
    for seed in (torch.manual_seed, numpy.random.seed, random.seed):
        seed(3)
    expected = drawn()
    for seed in (torch.manual_seed, numpy.random.seed, random.seed):
        seed(3)
    with suppress(KeyError), preserve_random_state():
        drawn()
        torch.manual_seed(9)
        if fails:
            raise KeyError
    assert drawn() == expected
