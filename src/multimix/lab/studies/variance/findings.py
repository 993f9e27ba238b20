"""What the numbers on one data set do and do not show, in sentences that follow from them."""

import math

from .measure import Pairing
from .parts import ratio
from .study import Side, VarianceResult
from .theory import Estimate, large_batch_variance

TOO_LARGE = "Proposition 2 was not measured on both sides of B_0: its batches there are too large for the time of this study."


def number(value: float) -> str:
    """``value`` with three significant digits, without an exponent; thousands are grouped."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "∞"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def interval(found: Estimate) -> str:
    """``value ± half`` with as many places as the half-width has meaning; the value alone where it is exact."""
    if not found.half > 0:
        return number(found.value)
    places = max(0, 1 - math.floor(math.log10(found.half)))
    return f"{found.value:,.{places}f} ± {found.half:,.{places}f}"


def findings(result: VarianceResult) -> list[str]:
    """One sentence or two for each question of the study."""
    return [
        _closed_form(result),
        _drop(result),
        _crossover(result),
        *(_side(result, name, side) for name, side in result.sides.items()),
        *([TOO_LARGE] if len(result.sides) < 2 else []),
        _plug_in(result),
        _per_pair(result),
        _stratified(result),
        _identity(result),
    ]


def compare_with_one(found: Estimate) -> str:
    """Whether a ratio is lower or higher than 1, or its 95 % interval contains 1."""
    if found.high < 1:
        return "lower"
    return "higher" if found.low > 1 else "neither lower nor higher as far as the interval tells"


def _closed_form(result: VarianceResult) -> str:
    settings = result.settings
    ratios = [
        ratio(result.at("independent", k, per_pair=per_pair).variance, result.formula(k, per_pair=per_pair))
        for per_pair in (False, True)
        for k in settings.ks
    ]
    inside = sum(found.low <= 1 <= found.high for found in ratios)
    low, high = min(found.value for found in ratios), max(found.value for found in ratios)
    return (
        f"With independent pairs (B = {settings.batch}) the measured variance is {low:.2f} to {high:.2f} times the closed form "
        f"over K = {', '.join(map(str, settings.ks))} and both ways of drawing λ; the 95 % interval of that ratio holds 1 in "
        f"{inside} of {len(ratios)} cases. All K share their draws, so these cases are not independent."
    )


def fall(result: VarianceResult, pairing: Pairing) -> Estimate:
    """By how many per cent the measured variance falls from the first K to the compared one, with one λ per batch."""
    found = result.at(pairing, result.settings.compared_k).ratio
    assert found is not None  # with iid λ all K share their draws
    return Estimate(100 * (1 - found.value), 100 * found.half)


def _drop(result: VarianceResult) -> str:
    k, base = result.settings.compared_k, result.settings.ks[0]
    formula = 100 * (1 - result.formula(k).value / result.formula(base).value)
    independent, permuted = fall(result, "independent"), fall(result, "permutation")
    exact, first = result.exact(k), result.exact(base)
    known = f" (exactly {100 * (1 - exact / first):.0f} %)" if exact is not None and first is not None else ""
    if permuted.high < formula:
        verdict = "With the pairing that training uses, more interpolations gain less than the formula says."
    elif permuted.low > formula:
        verdict = "With the pairing that training uses, more interpolations gain more than the formula says."
    else:
        verdict = "This does not show a difference between the two pairings."
    return (
        f"From K = {base} to K = {k}, with one λ per batch, the closed form falls by {formula:.0f} %; measured is a fall of "
        f"{interval(independent)} % with independent pairs and of {interval(permuted)} %{known} with a permutation of the batch. "
        f"{verdict}"
    )


def _crossover(result: VarianceResult) -> str:
    b_0, batch, k = result.crossover, result.settings.batch, result.settings.compared_k
    if not math.isfinite(b_0.value):
        return "V_λ cannot be distinguished from 0, so B_0 has no finite estimate."
    if result.enumeration is not None:
        source = "from every pair of the training samples"
    else:
        source = f"95 % interval {number(b_0.low)} to {number(b_0.high)}"
    multi, large = result.formula(k), large_batch_variance(result.components, rows=k * batch)
    lower = "multi-mix" if multi.value < large.value else "large-batch mixup"
    return (
        f"B_0 = V_pairs / V_λ = {number(b_0.value)} ({source}). At B = {batch} the closed form gives {number(multi.value)} for "
        f"multi-mix with K = {k} and {number(large.value)} for mixup of {k * batch} pairs with one λ: {lower} has the lower "
        "variance."
    )


def _side(result: VarianceResult, name: str, side: Side) -> str:
    k, seen = result.settings.compared_k, ratio(side.multi.variance, side.large.variance)
    expected = side.multi_formula.value / side.large_formula.value
    verdict = {"lower": "multi-mix is lower", "higher": "large-batch mixup is lower"}.get(
        compare_with_one(seen), "no difference is shown"
    )
    agrees = compare_with_one(seen) == ("higher" if name == "low" else "lower")
    return (
        f"At {'a quarter of' if name == 'low' else 'four times'} B_0 (B = {side.batch:,}, K = {k}) the variance of multi-mix is "
        f"{interval(seen)} times that of mixup of {k * side.batch:,} pairs with one λ (closed form {expected:.2f}): {verdict}, "
        f"{'as' if agrees else 'which is not what'} Proposition 2 says."
    )


def _plug_in(result: VarianceResult) -> str:
    sampled, parts = result.sampled, result.components
    naive = parts.pairs / sampled.plug_in_group
    predicted = parts.lam + (parts.total - parts.pairs - parts.lam) / sampled.group
    return (
        f"The naive V_λ from {sampled.group} pairs is {number(sampled.plug_in_group)} on average (predicted: "
        f"{number(predicted)}) where the unbiased one is {number(parts.lam)}: it would put B_0 at {number(naive)} instead of "
        f"{number(result.crossover.value)}."
    )


def _per_pair(result: VarianceResult) -> str:
    base = result.settings.ks[0]
    parts = []
    for pairing, name in (("independent", "independent pairs"), ("permutation", "a permutation of the batch")):
        own, shared = (result.at(pairing, base, per_pair=per_pair).variance for per_pair in (True, False))  # type: ignore[arg-type]
        found = ratio(own, shared)
        parts.append(f"{interval(found)} with {name} ({compare_with_one(found)})")
    return f"At K = {base}, a λ for each pair instead of one for the batch multiplies the variance by {' and by '.join(parts)}."


def _stratified(result: VarianceResult) -> str:
    k = result.settings.compared_k
    parts, seen = [], []
    for setup, rows in result.measured.items():
        if setup.sampler == "stratified" and k in rows:
            found = ratio(rows[k].variance, result.at(setup.pairing, k, per_pair=setup.per_pair).variance)
            seen.append(compare_with_one(found))
            parts.append(f"{interval(found)} ({setup.pairing}, λ per {'pair' if setup.per_pair else 'batch'})")
    lower = f"{seen.count('lower')} of {len(seen)} intervals lie below 1 and {seen.count('higher')} above"
    return f"At K = {k}, stratified λ multiply the variance of iid λ by {', '.join(parts)}: {lower}."


def _identity(result: VarianceResult) -> str:
    row = result.at("permutation", result.settings.ks[0])
    return (
        f"The identity with (E‖g̃‖)², as printed in the paper, would give {number(row.printed)} for the variance at K = "
        f"{row.k} with a permutation, which is {interval(row.variance)}; E‖g̃‖² alone, the surrogate, is "
        f"{interval(row.squared_norm)}."
    )
