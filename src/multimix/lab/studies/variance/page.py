"""The report of the variance study: figures and tables; what the two propositions say is in `propositions.html`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from matplotlib.figure import Figure

from ...results.figures.style import svg
from ...results.page import beside, document, drawing, paragraph, section, table
from ...results.table import NOTHING, Table
from ...storage import environment
from ..files import StudyFiles, write_study
from .cases import FULL, QUICK, Data, VarianceSettings
from .figures import against_k, around_crossover, variance_figures
from .findings import fall, findings, interval, number
from .parts import ratio
from .study import Unit, VarianceResult, run_study
from .theory import crossover

TITLE = "The variance of multi-mix's gradient"
LEAD = (
    "One step of multi-mix averages the loss over B pairs and K interpolations of each. How much does its gradient vary from "
    "step to step, at fixed weights, and is the effort better spent on K interpolations or on K times as many pairs?"
)
SHOWN: Mapping[str, Callable[[VarianceResult], Figure]] = {
    "variance against K, independent pairs": lambda result: against_k(result, "independent"),
    "variance against K, a permutation of the batch, as in training": lambda result: against_k(result, "permutation"),
    "multi-mix against a large batch": around_crossover,
}
NAMES = {"spiral": "The noisy spiral", "digits": "Handwritten digits"}


def variance(
    *,
    on: tuple[Data, ...] = ("spiral", "digits"),
    quick: bool = False,
    out: str | Path = "multimix-variance",
    rebuild: bool = False,
    settings: dict[Data, VarianceSettings] | None = None,
    progress: Callable[[Sequence[Unit]], Iterable[Unit]] = iter,
    note: Callable[[str], None] = print,
) -> StudyFiles:
    """``variance.html``, ``variance.json`` and a figure for each data set, in ``out``.

    Finished pieces are stored in ``out`` and not computed again, so a study that was stopped resumes. ``quick`` takes few samples
    and replicates, for a first look, and writes ``variance-quick.*``. ``rebuild`` computes nothing and reports what is there.
    """
    chosen = settings or (QUICK if quick else FULL)
    results = run_study(on=on, settings=chosen, out=out, rebuild=rebuild, progress=progress, note=note)
    sentences = {result.settings.data: findings(result) for result in results}
    figures = {
        f"{result.settings.data}-{name}": content for result in results for name, content in variance_figures(result).items()
    }
    numbers = {result.settings.data: result.plain() for result in results}
    return write_study(
        out,
        "variance-quick" if quick else "variance",
        page=report_page(results, sentences),
        results={"written_with": environment(), "findings": sentences, "data": numbers},
        figures=figures,
        table=terminal_table(results),
        findings=[f"{data}: {sentence}" for data, each in sentences.items() for sentence in each],
    )


def report_page(results: Sequence[VarianceResult], sentences: Mapping[Data, Sequence[str]]) -> str:
    """The whole page as HTML."""
    parts = []
    for result in results:
        data = result.settings.data
        drawn = (drawing(svg(draw(result)), f"{NAMES[data]}: {words}", words) for words, draw in SHOWN.items())
        parts += [
            section(NAMES[data], paragraph(_description(result)), beside(*drawn), paragraph(_caption(result)), unfolded=True),
            section(f"{NAMES[data]}: what shows", *(paragraph(sentence, finding=True) for sentence in sentences[data])),
            section(f"{NAMES[data]}: numbers", _parts_table(result), _k_table(result), _sides_table(result)),
        ]
    propositions = files(__package__).joinpath("propositions.html").read_text(encoding="utf-8")
    parts += [section("What the two propositions say, and when", propositions), *_methods(results)]
    figure = drawing(
        svg(against_k(results[0], "permutation")), TITLE, f"{NAMES[results[0].settings.data]}, pairs as in training."
    )
    return document(TITLE, LEAD, parts, headline=headline(results), figure=figure)


def headline(results: Sequence[VarianceResult]) -> str:
    """By how much the variance falls with K where pairs are those of training."""
    k, base = results[0].settings.compared_k, results[0].settings.ks[0]
    falls = (f"{interval(fall(result, 'permutation'))} % ({NAMES[result.settings.data].lower()})" for result in results)
    return f"From K = {base} to K = {k} the variance of a training step's gradient falls by {' and by '.join(falls)}."


def terminal_table(results: Sequence[VarianceResult]) -> Table:
    """Variance against K with one λ per batch, measured and by formula, for both pairings."""
    lines = []
    for result in results:
        for k in result.settings.ks:
            exact = result.exact(k)
            independent, permuted = (interval(result.at(pairing, k).variance) for pairing in ("independent", "permutation"))
            formula = number(result.formula(k).value)
            lines.append(
                [result.settings.data, str(k), independent, formula, permuted, NOTHING if exact is None else number(exact)]
            )
    heads = ["data", "K", "independent pairs", "closed form", "permutation", "exact"]
    return Table("trace variance of the gradient, one λ per batch, iid; ± is a 95 % interval", heads, lines, keys=2)


def _description(result: VarianceResult) -> str:
    settings = result.settings
    words = {
        "spiral": f"{settings.samples} training points, a fifth of their labels wrong; eight hidden layers of six units "
        f"({result.parameters} parameters), mixed after the first",
        "digits": f"{settings.samples:,} training images of scikit-learn's digits (8×8, real); two convolutions and a linear "
        f"layer ({result.parameters:,} parameters, no batch norm), mixed at the input",
    }
    return (
        f"{words[settings.data]}. Trained for {settings.epochs} epochs with mixup, K = 1; {result.accuracy:.1f} % right on "
        f"held-out samples. λ from Beta({settings.alpha:g}, {settings.alpha:g}). Everything below is at these weights, seed "
        f"{settings.seed}."
    )


def _caption(result: VarianceResult) -> str:
    exact = "lines of the second are exact" if result.enumeration is not None else "the second has no exact line"
    return (
        f"Dots: measured, {result.settings.replicates:,} batches, bars are 95 % intervals; open dots: stratified λ. Lines of "
        f"the first and the last figure are the closed form; {exact}, and the dashed one is the closed form again, which does "
        "not apply there."
    )


def _parts_table(result: VarianceResult) -> str:
    b_0 = crossover(result.sampled.components)
    bounds = f"{number(b_0.value)} ({number(b_0.low)} to {number(b_0.high)})"
    rows = [["sampled pairs, unbiased", *map(interval, result.sampled.components.estimates), bounds]]
    if result.enumeration is not None:
        exact = result.enumeration.components
        rows.append(["every pair", number(exact.total), number(exact.pairs), number(exact.lam), number(exact.pairs / exact.lam)])
    sampled = result.sampled
    for count, value in ((sampled.pairs, sampled.plug_in), (sampled.group, sampled.plug_in_group)):
        rows.append([f"naive V_λ from {count:,} pairs (biased)", "", "", number(value), number(result.components.pairs / value)])
    return table(["", "V", "V_pairs", "V_λ", "B_0"], rows, "The parts of the variance; ± and brackets are 95 % intervals.")


def _k_table(result: VarianceResult) -> str:
    rows = []
    for per_pair in (False, True):
        for k in result.settings.ks:
            free, bound = (result.at(pairing, k, per_pair=per_pair) for pairing in ("independent", "permutation"))
            formula, exact = result.formula(k, per_pair=per_pair), result.exact(k, per_pair=per_pair)
            assert bound.ratio is not None  # with iid λ all K share their draws
            relative = interval(bound.ratio) if bound.ratio.half > 0 else "1"
            rows.append(
                [
                    f"λ per {'pair' if per_pair else 'batch'}, K = {k}",
                    *(interval(free.variance), interval(formula), f"{ratio(free.variance, formula).value:.3f}"),
                    *(interval(bound.variance), NOTHING if exact is None else number(exact), relative),
                    interval(bound.squared_norm),
                ]
            )
    head = ["", "independent", "closed form", "ratio", "permutation", "exact", "to K = 1", "E‖g̃‖²"]
    return table(
        head, rows, f"Trace variance at B = {result.settings.batch}, iid λ. The last three columns belong to permutations."
    )


def _sides_table(result: VarianceResult) -> str:
    rows = [
        [
            f"B = {side.batch:,} ({'B_0 / 4' if name == 'low' else '4 B_0'})",
            *(interval(side.multi.variance), interval(side.multi_formula)),
            *(interval(side.large.variance), interval(side.large_formula), f"{side.replicates:,}"),
        ]
        for name, side in result.sides.items()
    ]
    k = result.settings.compared_k
    head = ["", f"multi-mix (B, {k})", "closed form", f"mixup ({k}·B, one λ)", "closed form", "batches each"]
    return table(head, rows, "Proposition 2 on both sides of B_0, independent pairs.")


def _methods(results: Sequence[VarianceResult]) -> list[str]:
    nodes = results[0].settings.nodes
    return [
        section(
            "How it was obtained",
            paragraph(
                "Intervals are 95 %, by the delta method over independent batches or pairs, by the jackknife over groups of "
                "pairs for V_λ, and Fieller's for B_0. They cover the sampling, not the choice of weights and "
                "data: other weights have other variances."
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
        )
    ]
