"""The law of the path. Statistical tests have fixed seeds; each would fail by chance with probability 1e-3 or less."""

import math

import pytest
import torch
from scipy import stats

from multimix.core.sampling import MIN_LAM, MIN_STEP, _log_odds, stratum_edge
from multimix.random import sample_path
from oracles import seeded

ALPHAS = [0.05, 0.2, 1.0, 2.0, 8.0]
# Kolmogorov's critical value for probability 1e-3, to be divided by √n.
CRITICAL = stats.kstwobign.isf(1e-3)
# Of five steps, some are moved by up to four minimum steps at the ends.
INNER = MIN_LAM + 4 * MIN_STEP


def distance(values, alpha):
    """sup |empirical − Beta(α, α)| over the sample points strictly between the clamped ends."""
    ordered = values.flatten().sort().values
    n = len(ordered)
    cdf = torch.from_numpy(stats.beta.cdf(ordered.numpy(), alpha, alpha))
    step = torch.arange(1, n + 1, dtype=torch.float64) / n
    interior = (ordered > INNER) & (ordered < 1 - INNER)
    return float(torch.maximum((step - cdf).abs(), (step - 1 / n - cdf).abs())[interior].max()), n


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sampler", ["iid", "stratified", "antithetic"])
@pytest.mark.parametrize("k", [1, 4, 5])
def test_a_step_picked_at_random_is_beta(alpha, sampler, k):
    n = 300_000 if k == 1 else 60_000
    lam = sample_path(k, alpha, rows=n, sampler=sampler, generator=seeded(1))
    picked = lam.gather(0, torch.randint(k, (1, n), generator=seeded(2)))
    d, n = distance(picked, alpha)
    assert d < CRITICAL / math.sqrt(n)


def test_grid_is_the_quantiles_of_the_uniform_law():
    lam = sample_path(999, 1.0, sampler="grid")
    assert stats.kstest(lam.flatten().numpy(), "uniform").statistic <= 1e-3 + 1e-12
    assert sample_path(4, 0.3, sampler="grid").flatten().tolist() == [0.2, 0.4, 0.6, 0.8]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_kth_smallest_has_the_law_of_an_order_statistic(alpha):
    """F(λ_(k)) of K independent draws is Beta(k, K + 1 − k)."""
    k = 5
    lam = sample_path(k, alpha, rows=8_000, generator=seeded(3))
    for i in range(k):
        # The clamp moves values below 1e-6 up to it; their ranks below stay right, so only the interior is compared.
        interior = lam[i][(lam[i] > INNER) & (lam[i] < 1 - INNER)].numpy()
        order = stats.beta(i + 1, k - i)
        low, high = order.cdf(stats.beta.cdf([INNER, 1 - INNER], alpha, alpha))
        within = (order.cdf(stats.beta.cdf(interior, alpha, alpha)) - low) / (high - low)
        assert stats.kstest(within, "uniform").pvalue > 1e-3 / k
        assert stats.binomtest(len(interior), 8_000, high - low).pvalue > 1e-4


def test_mean_of_the_kth_smallest_uniform():
    lam = sample_path(5, 1.0, rows=40_000, generator=seeded(4))
    for i, mean in enumerate(lam.mean(1).tolist(), start=1):
        assert mean == pytest.approx(i / 6, abs=4 * math.sqrt(i * (6 - i) / (36 * 7) / 40_000))


@pytest.mark.parametrize("alpha", [0.001, *ALPHAS, 200.0])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_stratum_edges_are_the_quantiles(alpha, k):
    for j in range(1, k):
        log_odds = stratum_edge(j, k, alpha)
        quantile = stats.beta.ppf(j / k, alpha, alpha)
        if quantile > 1e-290 and 1 - quantile > 1e-12:
            assert log_odds == pytest.approx(math.log(quantile) - math.log1p(-quantile), abs=1e-7, rel=1e-7)
        else:
            assert abs(log_odds) > 20


@pytest.mark.parametrize("alpha", [0.05, 1.0, 2.0])
def test_stratified_draws_stay_in_their_stratum_and_fill_it_evenly(alpha):
    k = 5
    lam = sample_path(k, alpha, rows=4_000, sampler="stratified", generator=seeded(5))
    for i in range(k):
        level = stats.beta.cdf(lam[i].numpy(), alpha, alpha)
        clamped_low, clamped_high = stats.beta.cdf([INNER, 1 - INNER], alpha, alpha)
        inside = (lam[i] > INNER).numpy() & (lam[i] < 1 - INNER).numpy()
        low, high = max(i / k, clamped_low), min((i + 1) / k, clamped_high)
        assert (level[inside] >= low - 1e-9).all()
        assert (level[inside] <= high + 1e-9).all()
        if inside.sum() > 100:
            assert stats.kstest((level[inside] - low) / (high - low), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("k", [2, 4])
def test_antithetic_draws_come_with_their_mirror_images(k):
    """The path read backwards is 1 − λ, so its mean is ½; the draws themselves are independent: half of them say nothing more."""
    lam = sample_path(k, 1.0, rows=20_000, sampler="antithetic", generator=seeded(9))
    torch.testing.assert_close(lam.flip(0), 1 - lam, rtol=0, atol=k * MIN_STEP)
    # The lower half is sorted draws of Beta(1, 1) folded at ½: uniform on 0 … ½.
    lower = 2 * lam[: k // 2]
    for i in range(k // 2):
        assert stats.kstest(lower[i].numpy(), stats.beta(i + 1, k // 2 - i).cdf).pvalue > 1e-3


def test_an_odd_path_has_one_draw_without_its_mirror_image():
    """It is independent of the others: whichever draw has no partner at 1 − λ is Beta(α, α)."""
    lam = sample_path(5, 2.0, rows=4_000, sampler="antithetic", generator=seeded(10))
    gap = (lam.unsqueeze(1) + lam.unsqueeze(0) - 1).abs()
    gap.diagonal().fill_(1.0)
    alone = lam.gather(0, gap.min(1).values.argmax(0, keepdim=True))
    assert (gap.min(1).values < 6 * MIN_STEP).sum(0).min() >= 4
    assert stats.kstest(alone.flatten().numpy(), stats.beta(2, 2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("sampler", ["iid", "stratified", "antithetic", "grid"])
@pytest.mark.parametrize("alpha", [1e-4, 0.05, 0.2, 1.0, 50.0])
def test_order_and_range(sampler, alpha):
    lam = sample_path(7, alpha, rows=3_000, sampler=sampler, generator=seeded(6))
    assert lam.dtype == torch.float64
    assert lam.shape == (7, 3_000)
    assert (lam > 0).all()
    assert (lam < 1).all()
    assert (lam.float() > 0).all(), "a cast to float32 must not saturate"
    assert (lam.float() < 1).all()
    assert (lam.diff(dim=0) > 0).all()
    assert (lam.float().diff(dim=0) > 0).all(), "no ties in float32 either"


@pytest.mark.parametrize("k", [2, 5, 40])
def test_only_ties_and_ends_are_moved(k):
    """Against the same draws, sorted and clamped: another number only where two are closer than float32 tells, or at the ends."""
    lam = sample_path(k, 0.2, rows=4_000, generator=seeded(8))
    log_odds = torch.from_numpy(_log_odds((k, 4_000), 0.2, seeded(8)))
    plain = log_odds.sort(dim=0).values.sigmoid()
    moved = lam != plain
    assert ((lam - plain).abs() <= MIN_LAM + k * MIN_STEP).all()
    edge = MIN_LAM + k * MIN_STEP
    crowded = torch.zeros_like(moved)
    crowded[1:] |= plain.diff(dim=0) < MIN_STEP
    assert (moved <= (crowded.cummax(0).values | (plain < edge) | (plain > 1 - edge))).all()
    assert moved.double().mean() < 0.2
    assert (plain.clamp(MIN_LAM, 1 - MIN_LAM).diff(dim=0) == 0).any(), "these draws have ties to be told apart"


def test_clamped_mass_at_small_alpha_is_the_mass_beyond_the_edge():
    lam = sample_path(1, 0.05, rows=20_000, generator=seeded(7))
    for at, expected in (
        (lam == MIN_LAM, stats.beta.cdf(MIN_LAM, 0.05, 0.05)),
        (lam == 1 - MIN_LAM, stats.beta.sf(1 - MIN_LAM, 0.05, 0.05)),
    ):
        assert stats.binomtest(int(at.sum()), 20_000, expected).pvalue > 1e-3


def test_rows_are_independent():
    lam = sample_path(3, 1.0, rows=20_000, sampler="stratified", generator=seeded(8))
    for i in range(3):
        assert abs(stats.pearsonr(lam[i, :-1].numpy(), lam[i, 1:].numpy()).statistic) < 4 / math.sqrt(20_000)
    assert abs(stats.pearsonr(lam[0].numpy(), lam[1].numpy()).statistic) < 4 / math.sqrt(20_000)


def test_alpha_0_is_no_mixing():
    assert torch.equal(sample_path(3, 0.0, rows=2), torch.zeros(3, 2, dtype=torch.float64))


def test_same_generator_same_path():
    for sampler in ("iid", "stratified", "antithetic"):
        first, again, other = (sample_path(5, 1.0, sampler=sampler, generator=seeded(s)) for s in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0),
        ("k", 2.5),
        ("alpha", -1.0),
        ("alpha", float("nan")),
        ("sampler", "sobol"),
        ("rows", "x"),
    ],
)
def test_bad_options(name, value):
    with pytest.raises(ValueError, match=f"^{name} must"):
        sample_path(**{"k": 1, "alpha": 1.0, name: value})


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 8.0), (0.5, 3.0)])
def test_two_parameters_give_an_asymmetric_beta(alpha, beta):
    lam = sample_path(1, alpha, beta=beta, rows=20_000, generator=seeded(11))
    assert stats.kstest(lam.flatten().numpy(), stats.beta(alpha, beta).cdf).pvalue > 1e-3
    with pytest.raises(ValueError, match="sampler"):
        sample_path(1, alpha, beta=beta, sampler="stratified")
    with pytest.raises(ValueError, match="beta"):
        sample_path(1, alpha, beta=0)
