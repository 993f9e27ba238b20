"""Sentences follow the numbers: turned numbers give turned sentences."""

import pytest
import torch

from multimix.lab.studies.variance import Components, Estimate
from multimix.lab.studies.variance.cases import QUICK
from multimix.lab.studies.variance.findings import findings, interval, number
from multimix.lab.studies.variance.measure import MeasuredVariance
from multimix.lab.studies.variance.parts import SampledParts
from multimix.lab.studies.variance.study import SETUPS, Side, VarianceResult
from variance_oracle import table_enumeration

KS = (1, 3, 5, 7, 9)


def outcome(*, fall=0.1, parts=(30.0, 20.0, 0.05), side=2.0, per_pair=1.3, stratified=0.8, enumeration=None):
    """An outcome that agrees with the closed form, but for what is asked."""
    components = Components(*parts)

    def row(setup, k):
        closed = (parts[0] + (k - 1) * parts[1] + (0 if setup.per_pair else 63 * parts[2])) / (64 * k)
        value = closed if setup.pairing == "independent" else 1 - fall * (1 - 1 / k) / 0.8
        value *= per_pair if setup.per_pair and setup.pairing == "permutation" else 1
        value *= stratified if setup.sampler == "stratified" else 1
        ratio = None if setup.sampler == "stratified" else Estimate(value / (1 if setup.pairing == "permutation" else 0.52), 0.01)
        return MeasuredVariance(k, Estimate(value, 0.02 * value), Estimate(value + 1, 0.1), value / 9, ratio)

    measured = {setup: {k: row(setup, k) for k in KS} for setup in SETUPS}
    some = measured[SETUPS[0]][5]
    two = Side(
        100,
        50,
        some._replace(variance=Estimate(side, 0.1)),
        some._replace(variance=Estimate(1.0, 0.1)),
        *[Estimate(1.0, 0.0)] * 2,
    )
    sampled = SampledParts(components, 0.06, 0.2, 10_000, 250)
    return VarianceResult(QUICK["digits"], 90.0, 1898, sampled, enumeration, measured, {"low": two, "high": two})


def sentences(**options):
    return " ".join(findings(outcome(**options)))


def test_a_smaller_and_a_larger_gain_are_told_apart():
    assert "by 10.0 ± 1.0 % with a permutation" in sentences().replace("of 10.0", "by 10.0")
    assert "more interpolations gain less than the formula says" in sentences(fall=0.1)
    assert "more interpolations gain more than the formula says" in sentences(fall=0.9)
    formula = 1 - (30 + 80 + 63 * 0.05) / 5 / (30 + 63 * 0.05)
    assert "does not show a difference between the two pairings" in sentences(fall=formula)


def test_the_side_that_is_lower_is_named_whatever_was_expected():
    low, high = (words for words in findings(outcome(side=2.0)) if "B_0 (B = 100" in words)
    assert "large-batch mixup is lower, as Proposition 2 says" in low
    assert "large-batch mixup is lower, which is not what Proposition 2 says" in high
    low, high = (words for words in findings(outcome(side=0.5)) if "B_0 (B = 100" in words)
    assert "multi-mix is lower, which is not what Proposition 2 says" in low
    assert "multi-mix is lower, as Proposition 2 says" in high
    low, _ = (words for words in findings(outcome(side=1.0)) if "B_0 (B = 100" in words)
    assert "no difference is shown, which is not what" in low


def test_the_batch_size_is_seen_against_the_crossover():
    assert "B_0 = V_pairs / V_λ = 400" in sentences()
    assert "large-batch mixup has the lower variance" in sentences()
    assert "multi-mix has the lower variance" in sentences(parts=(30.0, 20.0, 5.0))
    assert "V_λ cannot be distinguished from 0" in sentences(parts=(30.0, 20.0, -0.01))


def test_shares_per_pair_and_stratified_shares():
    assert "1.300 ± 0.037 with a permutation of the batch (higher)" in sentences()
    assert "with a permutation of the batch (lower)" in sentences(per_pair=0.7)
    assert "with a permutation of the batch (neither lower nor higher" in sentences(per_pair=1.0)
    assert "4 of 4 intervals lie below 1 and 0 above" in sentences()
    assert "0 of 4 intervals lie below 1 and 4 above" in sentences(stratified=1.2)


def test_an_exact_value_is_given_where_there_is_one():
    table = torch.randn(64, 64, 2, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = table_enumeration(table, torch.tensor([0.5, 0.5]))
    fall = 100 * (1 - exact.permutation_variance(k=5, batch=64) / exact.permutation_variance(k=1, batch=64))
    assert f"(exactly {fall:.0f} %)" in sentences(enumeration=exact)
    assert "exactly" not in sentences()


def test_the_closed_form_is_not_said_to_hold_where_it_does_not():
    assert "1.00 to 1.00 times the closed form" in sentences()
    assert "holds 1 in 10 of 10 cases" in sentences()
    off = outcome()
    for setup, rows in off.measured.items():
        for k, row in rows.items() if setup.pairing == "independent" else ():
            rows[k] = row._replace(variance=Estimate(1.5 * row.variance.value, row.variance.half))
    assert "1.50 to 1.50 times the closed form" in findings(off)[0]
    assert "holds 1 in 0 of 10 cases" in findings(off)[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.012345, "0.0123"), (1723.7, "1,724"), (12.345, "12.3"), (0, "0"), (float("inf"), "∞"), (-0.5, "-0.500")],
)
def test_numbers_have_three_digits(value, words):
    assert number(value) == words


@pytest.mark.parametrize(
    ("found", "words"),
    [((0.43256, 0.0187), "0.433 ± 0.019"), ((30.06, 1.4), "30.1 ± 1.4"), ((1500.0, 212.0), "1,500 ± 212"), ((0.5, 0.0), "0.500")],
)
def test_intervals_have_as_many_places_as_mean_something(found, words):
    assert interval(Estimate(*found)) == words
