"""One page: the paper's tables and figures in its order, ours beside them, and a verdict on every claim."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..evaluation.cache import collect_runs
from ..recipes import recipe
from ..results.claims import RULE, VERDICTS
from ..results.figures.verdicts import verdicts_figure
from ..results.page import document, drawing, notes, paragraph, section
from ..results.page import table as html_table
from ..results.paper import DEMO, Exhibit
from ..results.paper_table import FilledTable, claims_sentence, fill, page_parts, shown
from ..results.rows import SCALE_WORDS, differences
from ..storage import write_files
from ..terminal import note
from ..training.run import RESULTS
from .figures import demo_runs, figure_files
from .plan import ORDER, Plan
from .run import DEMO_FOLDER


def write_page(plan: Plan, *, out: Path, failed: Sequence[str] = ()) -> Path:
    """The page of everything that is finished in ``out``; its name says what it shows."""
    rows = collect_runs([out], note) if (out / RESULTS).exists() else []
    spiral = out / DEMO_FOLDER
    demo = demo_runs(spiral)
    filled = {one: fill(one, plan.scale, rows, demo, plan.follow) for one in plan.exhibits}
    figures = [one for one in plan.exhibits if one.kind == "figure"]
    files = {one: figure_files(filled[one], rows, follow=plan.follow, demo=spiral, note=note) for one in figures}
    whole = len(plan.exhibits) == len(ORDER)
    words = [] if whole else [one.label.split()[1] if one.kind == "table" else f"fig{one.number}" for one in plan.exhibits]
    name = "-".join(["paper", plan.scale, *(["code"] if plan.follow == "code" else []), *words])
    (path,) = write_files(out, {f"{name}.html": _page(plan, filled, files, failed).encode()})
    return path


def _page(
    plan: Plan,
    filled: Mapping[Exhibit, FilledTable],
    drawn: Mapping[Exhibit, Mapping[str, bytes]],
    failed: Sequence[str],
) -> str:
    verdicts = {one.label: Counter(judged.verdict for judged in filled[one].judged) for one in filled if one.claims}
    lines = [[one.label, one.title, *(str(verdicts[one.label][word] or "") for word in VERDICTS)] for one in filled if one.claims]
    missing = notes([f"{name}: {reason}" for name, reason in plan.missing.items()] + list(failed))
    parts = [
        section("What is missing", missing, unfolded=True),
        section("Verdicts", html_table(["", "claims of the paper", *VERDICTS], lines), notes([RULE])),
    ]
    for one in plan.exhibits:
        title = f"{one.label}: {one.title}"
        pictures = shown(drawn.get(one, {}), title)
        inside = page_parts(filled[one]) if one.columns else [paragraph(one.about), notes(one.notes)]
        if not one.columns and not pictures:
            inside.append(paragraph("There is nothing to show yet."))
        parts.append(section(title, *pictures, *inside))
    parts.append(section("What differs from the paper's set-up", *_set_up(plan)))
    lead = f"Mixup Augmentation with Multiple Interpolations (Shen, Yu, Yang, Kwok) beside our runs, {SCALE_WORDS[plan.scale]}."
    scale = "" if plan.scale == "paper" else f" This is the {plan.scale} scale, so it says nothing about the paper's own results."
    headline = claims_sentence([one for table in filled.values() for one in table.judged]) + scale
    words = "What the runs say about the claims of every table and figure."
    figure = drawing(verdicts_figure(verdicts), words, words) if verdicts else ""
    return document("The paper, reproduced", lead, parts, headline=headline, figure=figure)


def _set_up(plan: Plan) -> list[str]:
    """For every recipe what is not as in the paper's protocol."""
    followed = {"text": "the paper's text", "code": "the code of its authors and baselines"}[plan.follow]
    parts = [paragraph(f"Where the paper's text and its authors' code differ, {followed} was followed (--follow).")]
    for name in dict.fromkeys(name for one in plan.exhibits for name in one.recipes if name != DEMO):
        chosen = recipe(name, plan.follow)
        found = differences(chosen.settings(plan.scale), chosen.settings("paper"))
        if found:
            parts.append(section(f"{chosen.title}: {len(found)} settings differ from the paper's scale", notes(found)))
    return parts
