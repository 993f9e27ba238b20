"""Plans of every method must stay what they were when ``frozen.npz`` was stored."""

import numpy as np
import pytest

import frozen

# Masks of these two are ratios of blurred float32 maps: λ, their mean, is exact to float32 only.
FLOAT32_LAM = ("guidedmixup", "sage")


@pytest.fixture(scope="module")
def stored():
    with np.load(frozen.STORED) as file:
        return dict(file)


@pytest.mark.parametrize("name", list(frozen.OPTIONS))
def test_plans_are_unchanged(name, stored):
    values = frozen.sample(name)
    assert values.keys() == {key for key in stored if key.startswith(f"{name}-")}
    for key, value in values.items():
        part = key.rpartition("-")[2]
        lam = 1e-7 if name in FLOAT32_LAM else 1e-9
        limit = {"partner": 0, "lam": lam}.get(part, 2e-5)
        np.testing.assert_allclose(value, stored[key], rtol=0, atol=limit, err_msg=key)
