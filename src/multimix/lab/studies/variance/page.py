"""The study's page: the two propositions as they hold, then what was measured; and the table for the terminal."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from ...results.html import document, heading, paragraph, picture, table
from .cases import Data
from .closed_form import Estimate, crossover
from .estimators import ratio
from .findings import interval, number
from .outcome import Outcome
from .propositions import propositions

TITLE = "The variance of multi-mix's gradient"
LEAD = (
    "One step of multi-mix averages the loss over B pairs and K interpolations of each. How much does its gradient vary from "
    "step to step, at fixed weights, and is the effort better spent on K interpolations or on K times as many pairs?"
)
NAMES = {"spiral": "The noisy spiral", "digits": "Handwritten digits"}


def page(outcomes: Sequence[Outcome], sentences: Mapping[Data, Sequence[str]], figures: Mapping[Data, bytes]) -> str:
    """The whole page as HTML."""
    parts = propositions()
    for outcome in outcomes:
        data = outcome.settings.data
        parts += [heading(NAMES[data]), paragraph(_described(outcome))]
        parts += [paragraph(sentence, finding=True) for sentence in sentences[data]]
        # Three panels side by side would be too small to read on a phone, where the figure scrolls instead.
        wide = f'<div style="overflow-x: auto"><div style="min-width: 820px">{picture(figures[data], _alt(outcome))}</div></div>'
        parts += [wide, paragraph(_caption(outcome)), _parts_table(outcome), _k_table(outcome)]
        parts += [_sides_table(outcome)] if outcome.sides else []
    return document(TITLE, LEAD, [*parts, *_methods(outcomes)])


def terminal_table(outcomes: Sequence[Outcome]) -> Table:
    """Variance against K with one λ per batch, measured and by formula, for both pairings."""
    found = Table(title="trace variance of the gradient, one λ per batch, iid; ± is a 95 % interval")
    for words in ("data", "K", "independent pairs", "closed form", "permutation", "exact"):
        found.add_column(words, justify="left" if words == "data" else "right")
    for outcome in outcomes:
        for k in outcome.settings.ks:
            exact = outcome.exact(k)
            found.add_row(
                *(
                    outcome.settings.data,
                    str(k),
                    interval(outcome.at("independent", k).variance),
                    number(outcome.formula(k).value),
                ),
                *(interval(outcome.at("permutation", k).variance), "–" if exact is None else number(exact)),
                end_section=k == outcome.settings.ks[-1],
            )
    return found


def _described(outcome: Outcome) -> str:
    settings = outcome.settings
    words = {
        "spiral": f"{settings.samples} training points, a fifth of their labels wrong; eight hidden layers of six units "
        f"({outcome.parameters} parameters), mixed after the first",
        "digits": f"{settings.samples:,} training images of scikit-learn's digits (8×8, real); two convolutions and a linear "
        f"layer ({outcome.parameters:,} parameters, no batch norm), mixed at the input",
    }
    return (
        f"{words[settings.data]}. Trained for {settings.epochs} epochs with mixup, K = 1; {outcome.accuracy:.1f} % right on "
        f"samples kept back. λ from Beta({settings.alpha:g}, {settings.alpha:g}). Everything below is at these weights, seed "
        f"{settings.seed}."
    )


def _alt(outcome: Outcome) -> str:
    return (
        f"{NAMES[outcome.settings.data]}: variance against K for independent pairs and for permutations, and against B around B_0"
    )


def _caption(outcome: Outcome) -> str:
    exact = "lines in the middle are exact" if outcome.enumeration is not None else "there is no exact line in the middle"
    return (
        f"Dots: measured, {outcome.settings.replicates:,} batches, bars are 95 % intervals; open dots: stratified λ. Lines on "
        f"the left and on the right are the closed form; {exact}, and the dashed one is the closed form again, which does not "
        "apply there."
    )


def _parts_table(outcome: Outcome) -> str:
    b_0 = crossover(outcome.sampled.components)
    bounds = f"{number(b_0.value)} ({number(b_0.low)} to {number(b_0.high)})"
    rows = [["sampled pairs, unbiased", *map(interval, outcome.sampled.components.estimates), bounds]]
    if outcome.enumeration is not None:
        exact = outcome.enumeration.components
        rows.append(["every pair", number(exact.total), number(exact.pairs), number(exact.lam), number(exact.pairs / exact.lam)])
    sampled = outcome.sampled
    for count, value in ((sampled.pairs, sampled.plug_in), (sampled.group, sampled.plug_in_group)):
        rows.append([f"naive V_λ from {count:,} pairs (biased)", "", "", number(value), number(outcome.components.pairs / value)])
    return table(["", "V", "V_pairs", "V_λ", "B_0"], rows, "The parts of the variance; ± and brackets are 95 % intervals.")


def _k_table(outcome: Outcome) -> str:
    rows = []
    for per_pair in (False, True):
        for k in outcome.settings.ks:
            free, bound = (outcome.at(pairing, k, per_pair=per_pair) for pairing in ("independent", "permutation"))
            formula, exact = outcome.formula(k, per_pair=per_pair), outcome.exact(k, per_pair=per_pair)
            rows.append(
                [
                    f"λ per {'pair' if per_pair else 'batch'}, K = {k}",
                    *(interval(free.variance), interval(formula), f"{ratio(free.variance, formula).value:.3f}"),
                    *(interval(bound.variance), "–" if exact is None else number(exact), _relative(bound.ratio)),
                    interval(bound.squared_norm),
                ]
            )
    head = ["", "independent", "closed form", "ratio", "permutation", "exact", "to K = 1", "E‖g̃‖²"]
    return table(
        head, rows, f"Trace variance at B = {outcome.settings.batch}, iid λ. The last three columns belong to permutations."
    )


def _relative(found: Estimate | None) -> str:
    return "–" if found is None else interval(found) if found.half > 0 else "1"


def _sides_table(outcome: Outcome) -> str:
    rows = [
        [
            f"B = {side.batch:,} ({'B_0 / 4' if name == 'low' else '4 B_0'})",
            *(interval(side.multi.variance), interval(side.multi_formula)),
            *(interval(side.large.variance), interval(side.large_formula), f"{side.replicates:,}"),
        ]
        for name, side in outcome.sides.items()
    ]
    k = outcome.settings.compared_k
    head = ["", f"multi-mix (B, {k})", "closed form", f"mixup ({k}·B, one λ)", "closed form", "batches each"]
    return table(head, rows, "Proposition 2 on both sides of B_0, independent pairs.")


def _methods(outcomes: Sequence[Outcome]) -> list[str]:
    nodes = outcomes[0].settings.nodes
    return [
        heading("How it was obtained"),
        paragraph(
            "Intervals are 95 %, by the delta method over independent batches or pairs, by the jackknife over groups of pairs "
            "for V_λ, and Fieller's for B_0. They cover the sampling, not the choice of weights and data: other weights have "
            "other variances."
        ),
        paragraph(
            f"V_λ multiplies only gradients of different groups of pairs: a group's own noise, squared, would add "
            f"(V − V_pairs − V_λ) / M for M pairs, and B_0 would come out too low. λ is averaged by Gauss's quadrature with "
            f"{nodes} nodes in V_λ and wherever every pair is taken, and drawn at random elsewhere."
        ),
        paragraph(
            "Independent pairs are drawn from the training samples with replacement; for permutations the batch is drawn "
            "without. With iid λ every K uses the same batches and the first K of their λ, so the column “to K = 1” compares "
            "like with like."
        ),
    ]
