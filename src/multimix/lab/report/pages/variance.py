"""The page of the variance study: findings, figures and tables from its rows.

Schema of the rows (:func:`variance_frame`), one row per number. Columns without a meaning for a row are empty.

====================  ==================================================================================
column                meaning
====================  ==================================================================================
data                  data set
kind                  variance, squared_norm (E‖g̃‖²), printed (E‖g̃‖² − (E‖g̃‖)², as in the paper), V, V_pairs,
                      V_λ, B_0; ratio_to_first_k, ratio_to_closed_form, ratio_to_per_batch (λ per pair
                      relative to one per batch), ratio_to_iid (stratified relative to iid λ),
                      ratio_to_large_batch (multi-mix relative to mixup of K·B pairs with one λ); or
                      the name of a setting
source                measured, closed form, exact; sampled pairs or all pairs for the parts; setup
proposition           1 for the variance against K, 2 for that around B_0
pairing               independent, or permutation: a batch with itself, as in training
per_pair              whether every pair has λ of its own
sampler, λ            iid or stratified; how λ is drawn, in words
k, batch              interpolations per pair, pairs of a batch
replicates            batches measured, if not those of the setup
value, half           the number, and half its 95 % interval
low, high             ends of the interval of B_0; no ``high`` if it is unbounded
====================  ==================================================================================
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..figures import REFERENCE, Series, against
from ..page import Finding, Html, Picture, Section, render_page
from ..style import BLUE, GRAY, SHEET, VERMILION, svg
from ..tables import EMPTY, Cell, Table, joined, number

COLUMNS = (
    *("data", "kind", "source", "proposition", "pairing", "per_pair", "sampler", "k", "batch", "replicates"),
    *("value", "half", "low", "high"),
)
TITLE = "The variance of multi-mix's gradient"
LEAD = (
    "One step of multi-mix averages the loss over B pairs and K interpolations of each. How much does its gradient vary from "
    "step to step at fixed weights, and is the effort better spent on K interpolations or on K times as many pairs?"
)
TRAINING_CAPTION = "Variance against K, pairs as in training. Solid lines: exact; dotted: closed form, one λ per batch."
INDEPENDENT_CAPTION = "Variance against K, independent pairs. Solid lines: closed form."
CROSSOVER_CAPTION = "Variance against B / B_0. Dots: measured at B_0 / 4 and 4 B_0; lines: closed form."
PARTS = {(name,): name for name in ("V", "V_pairs", "V_λ", "B_0")}
SETUP = {(name,): name for name in ("samples", "parameters", "epochs", "accuracy", "alpha", "batch", "replicates", "seed")}
LAM = {False: "per batch", True: "per pair"}
COLORS = {False: BLUE, True: VERMILION}
NOTES = (
    "± and ranges: 95 % intervals. They cover the sampling, not the choice of weights and data.",
    "independent: pairs drawn with replacement; ratio: measured / closed form. in training: a batch paired with its permutation; "
    "exact, ratio to K = 1 and E‖g̃‖² belong to it.",
    "With iid λ, every K uses the same batches and the first K of their λ.",
)


def variance_frame(path: str | Path) -> pd.DataFrame:
    """Return the rows of the study.

    Args:
        path: The ``variance.json`` of the study.
    """
    frame = pd.DataFrame(json.loads(Path(path).read_text(encoding="utf-8"))["rows"], columns=list(COLUMNS))
    frame["λ"] = frame.per_pair.map(LAM) + frame.sampler.map({"iid": "", "stratified": ", stratified"})
    return frame.astype({"k": "Int64", "batch": "Int64", "replicates": "Int64"})


def variance_page(path: str | Path) -> str:
    """Return the page.

    Args:
        path: The ``variance.json`` of the study.
    """
    frame = variance_frame(path)
    propositions = (files("multimix.lab.report") / "templates" / "propositions.html").read_text(encoding="utf-8")
    sentences = findings(frame)
    blocks = [
        Section("Findings", map(Finding, sentences), unfolded=True),
        Section("Variance against K", [_picture(against_k(frame, "independent"), INDEPENDENT_CAPTION), k_table(frame)]),
        Section(
            "Multi-mix against a larger batch",
            [_picture(around_crossover(frame), CROSSOVER_CAPTION) if best_b_0(frame).value.any() else None, sides_table(frame)],
        ),
        Section("Parts of the variance", [table("", frame, {"data": "data", "source": "from"}, ["kind"], PARTS)]),
        Section("What the two propositions say, and when", [Html(propositions)]),
        Section("Data and models", [table("", select(frame, source="setup"), {"data": "data"}, ["kind"], SETUP)]),
    ]
    return render_page(
        TITLE,
        LEAD,
        blocks,
        headline=sentences[0].partition(". ")[0] + ".",
        figure=_picture(against_k(frame, "permutation"), TRAINING_CAPTION),
    )


def _picture(figure: Figure, caption: str) -> Picture:
    return Picture(svg(figure), caption, caption)


def findings(frame: pd.DataFrame) -> list[str]:
    """Return one finding per question of the study, over all data sets.

    Args:
        frame: Rows of the study.
    """
    k, first = int(select(frame, kind="compared_k").value.iloc[0]), int(frame.k.min())
    step = {"pairing": "permutation", "per_pair": False, "sampler": "iid"}
    falls = select(frame, kind="ratio_to_first_k", k=k, per_pair=False)
    falls = falls.assign(value=100 * (1 - falls.value), half=100 * falls.half)
    closed = select(frame, kind="ratio_to_closed_form")
    spans = closed.groupby("data", sort=False).value.agg(["min", "max"])
    sides, b_0 = select(frame, kind="ratio_to_large_batch"), best_b_0(frame)
    predicted = (sides.value < 1) == (sides.batch > sides.data.map(b_0.set_index("data").value))
    per_pair = select(frame, kind="ratio_to_per_batch", k=first)
    stratified = select(frame, kind="ratio_to_iid", k=k)
    printed, variance = (select(frame, **step, k=first, kind=kind, source="measured") for kind in ("printed", "variance"))
    return [
        f"From K = {first} to K = {k} the variance of a training step's gradient falls by {each(falls, 'permutation', ' %')}. "
        f"With independent pairs it falls by {each(falls, 'independent', ' %')}.",
        "Proposition 1, independent pairs: the measured variance is "
        f"{listed(f'{low:.2f} to {high:.2f} on the {data}' for data, low, high in spans.itertuples())} times the closed form. "
        f"{sum(~differs(closed))} of {len(closed)} intervals of this ratio contain 1.",
        f"Proposition 2: B_0 is {each(b_0)}. Divided by the variance of mixup of {k}·B pairs with one λ, that of multi-mix is "
        f"{listed(f'{joined(estimate(row))} on the {row.data} at B = {row.batch}' for row in sides.itertuples())}. "
        f"{sum(differs(sides) & predicted)} of {len(sides)} ratios are on the predicted side of 1.",
        f"At K = {first}, a λ per pair multiplies the variance of one λ per batch by {each(per_pair, 'permutation')} with pairs "
        f"as in training. With independent pairs it multiplies it by {each(per_pair, 'independent')}.",
        f"At K = {k}, stratified λ multiply the variance of iid λ by {each(select(stratified, per_pair=False), 'permutation')} "
        f"with pairs as in training and one λ per batch. Over all pairings and both ways of drawing λ, "
        f"{sum(differs(stratified) & (stratified.value < 1))} of {len(stratified)} intervals are below 1 and "
        f"{sum(differs(stratified) & (stratified.value > 1))} above.",
        f"The identity printed in the paper, E‖g̃‖² − (E‖g̃‖)², gives {each(printed)} at K = {first} with pairs as in training. "
        f"The variance is {each(variance)}.",
    ]


def select(frame: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """Return the rows with the given values.

    Args:
        frame: Rows of the study.
        **columns: Values by column.
    """
    for name, value in columns.items():
        frame = frame[frame[name] == value]
    return frame


def best_b_0(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one B_0 per data set: from all pairs if measured, otherwise from sampled pairs.

    Args:
        frame: Rows of the study.
    """
    return select(frame, kind="B_0").groupby("data", sort=False).tail(1)


def differs(ratios: pd.DataFrame) -> "pd.Series[bool]":
    """Return a mask of the ratios whose intervals exclude 1.

    Args:
        ratios: Rows of ratios.
    """
    return (ratios.value - 1).abs() > ratios.half


def each(rows: pd.DataFrame, pairing: str = "", unit: str = "") -> str:
    """Return the estimates with their data sets: "18.1 ± 1.7 % on the spiral and 15.1 ± 2.4 % on the digits".

    Args:
        rows: Rows of the study.
        pairing: Select rows of this pairing; empty for all.
        unit: Text after every estimate.
    """
    rows = select(rows, pairing=pairing) if pairing else rows
    return listed(f"{joined(estimate(row))}{unit} on the {row.data}" for row in rows.itertuples())


def listed(texts: Iterable[str]) -> str:
    """Join texts with commas and "and".

    Args:
        texts: The texts.
    """
    *leading, last = list(texts) or ["not measured"]
    return f"{', '.join(leading)} and {last}" if leading else last


def estimate(row: Any) -> Cell:
    """Format the value of a row with as many digits as its interval supports.

    Args:
        row: Row of the study.
    """
    if row.kind == "B_0" and row.low != row.high:
        value, low, high = ("∞" if pd.isna(bound) else number(bound, None) for bound in (row.value, row.low, row.high))
        return value, f"{low} … {high}"
    if not row.half > 0:
        return number(row.value, None)
    places = max(0, 1 - math.floor(math.log10(row.half)))
    return f"{row.value:.{places}f}", f"± {row.half:.{places}f}"


def table(
    title: str,
    rows: pd.DataFrame,
    keys: Mapping[str, str],
    columns: Sequence[str],
    heads: Mapping[Any, str],
    notes: Sequence[str] = (),
) -> Table:
    """Return a table with one row per combination of ``keys`` and one column per entry of ``heads``.

    Args:
        title: Title.
        rows: Rows of the study; those without a head are left out.
        keys: Heads by names of columns that identify a row of the table.
        columns: Columns whose values select the head.
        heads: Heads by these values.
        notes: How to read the table.
    """
    cells: dict[tuple[Any, ...], dict[str, Cell]] = {}
    for row in rows.itertuples():
        head = heads.get(tuple(getattr(row, name) for name in columns))
        if head is not None:
            cells.setdefault(tuple(getattr(row, name) for name in keys), {})[head] = estimate(row)
    body = [
        [*map(str, key), *(cells_by_head.get(head, EMPTY) for head in heads.values())] for key, cells_by_head in cells.items()
    ]
    return Table.of_rows(title, [*keys.values(), *heads.values()], body, notes, keys=len(keys))


def k_table(frame: pd.DataFrame, title: str = "") -> Table:
    """Return the variance against K for all ways of drawing batches.

    Args:
        frame: Rows of the study. Without a choice of λ among them, the table has no column for it.
        title: Title.
    """
    heads = {
        ("variance", "measured", "independent"): "independent",
        ("variance", "closed form", "independent"): "closed form",
        ("ratio_to_closed_form", "measured", "independent"): "ratio",
        ("variance", "measured", "permutation"): "in training",
        ("variance", "exact", "permutation"): "exact",
        ("ratio_to_first_k", "measured", "permutation"): "to K = 1",
        ("squared_norm", "measured", "permutation"): "E‖g̃‖²",
    }
    keys = {"data": "data", "λ": "λ", "k": "K"} if frame["λ"].nunique() > 1 else {"data": "data", "k": "K"}
    return table(title, select(frame, proposition=1), keys, ("kind", "source", "pairing"), heads, NOTES)


def sides_table(frame: pd.DataFrame) -> Table:
    """Return the variance of multi-mix and of mixup with as many mixed rows, measured on both sides of B_0.

    Args:
        frame: Rows of the study.
    """
    rows = select(frame, proposition=2, per_pair=False)
    batch, k = (select(frame, kind=kind).value.iloc[0] for kind in ("batch", "compared_k"))
    rows = rows[rows.batch.isin({batch, k * batch, *select(rows, source="measured").batch})]
    heads = {("variance", "measured"): "variance", ("variance", "closed form"): "closed form"}
    heads[("ratio_to_large_batch", "measured")] = "to mixup of K·B pairs"
    keys = {"data": "data", "k": "K", "batch": "B"}
    return table("Independent pairs, one λ per batch", rows, keys, ("kind", "source"), heads)


def against_k(frame: pd.DataFrame, pairing: str) -> Figure:
    """Draw the variance against K for one way of pairing, one panel per data set.

    Args:
        frame: Rows of the study.
        pairing: ``independent`` or ``permutation``.
    """
    rows = select(frame, proposition=1, kind="variance")
    panels: dict[str, list[Series]] = {}
    for data, data_rows in rows.groupby("data", sort=False):
        closed = select(data_rows, source="closed form", per_pair=False)
        panels[data] = [line("", closed, {**REFERENCE, "color": GRAY})]
        for (per_pair, sampler), line_rows in select(data_rows, pairing=pairing).groupby(["per_pair", "sampler"]):
            style = {"color": COLORS[per_pair], "marker": "o", "mfc": COLORS[per_pair] if sampler == "iid" else SHEET}
            shift = {"iid": 0.08, "stratified": 0.24}[sampler] * (1 if per_pair else -1)
            panels[data].append(dots(f"λ {LAM[per_pair]}, {sampler}", line_rows.assign(x=line_rows.k + shift), style))
            panels[data].append(line("", line_rows[line_rows.source != "measured"], {"color": COLORS[per_pair], "marker": ""}))
    ylabel = f"variance, B = {rows.batch.iloc[0]}"
    figure = against(panels, "K, interpolations per pair", ylabel, ticks=sorted(set(rows.k)), connected=False)
    figure.axes[0].set_ylim(bottom=0)  # the panels share it
    return figure


def around_crossover(frame: pd.DataFrame) -> Figure:
    """Draw the variance against B for multi-mix and for mixup with as many mixed rows, one panel per data set with B_0.

    Args:
        frame: Rows of the study.
    """
    rows = select(frame, proposition=2, kind="variance")
    k = rows.k.max()
    styles = {
        (k, False): (f"multi-mix, B pairs, K = {k}", {"color": BLUE}),
        (1, False): (f"mixup, {k}·B pairs, one λ", {"color": VERMILION, "ls": "--"}),
        (1, True): (f"mixup, {k}·B pairs, a λ each", {"color": GRAY, "ls": "--"}),
    }
    rows = rows.assign(x=rows.k * rows.batch / k / rows.data.map(best_b_0(frame).set_index("data").value))
    rows = rows[rows.x.between(0.05, 20)]
    panels: dict[str, list[Series]] = {}
    for data, data_rows in rows.groupby("data", sort=False):
        series = [Series("B_0", [1, 1], [data_rows.value.min(), data_rows.value.max()], style=REFERENCE)]
        for setting, line_rows in data_rows.groupby(["k", "per_pair"]):
            label, style = styles[setting]
            series.append(line(label, select(line_rows, source="closed form"), {**style, "marker": ""}))
            series.append(dots("", line_rows, {**style, "marker": "o"}))
        panels[data] = [points for points in series if points.x]
    return against(panels, "B / B_0", "variance", xlog=True, ylog=True, connected=False, columns=2)


def dots(label: str, rows: pd.DataFrame, style: Mapping[str, Any]) -> Series:
    """Return the measured values with their intervals.

    Args:
        label: Legend entry.
        rows: Rows of the study with ``x``.
        style: Options of matplotlib.
    """
    rows = select(rows, source="measured")
    return Series(label, list(rows.x), list(rows.value), list(rows.half), list(rows.half), style)


def line(label: str, rows: pd.DataFrame, style: Mapping[str, Any]) -> Series:
    """Return the values of a formula.

    Args:
        label: Legend entry.
        rows: Rows of the study.
        style: Options of matplotlib.
    """
    return Series(label, list(rows.get("x", rows.k)), list(rows.value), style=style)
