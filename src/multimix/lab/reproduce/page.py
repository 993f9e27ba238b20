"""One page: the paper's tables and figures in its order, ours beside them, and a verdict on every claim."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..evaluation.cache import collect_runs
from ..recipes import recipe
from ..results.claims import RULE, VERDICTS, Verdict
from ..results.page import details, document, heading, notes, paragraph, picture
from ..results.page import table as html_table
from ..results.paper import DEMO, Exhibit
from ..results.paper_table import FilledTable, fill, page_parts
from ..results.rows import SCALE_WORDS, differences
from ..storage import write_files
from ..studies.spiral.finished import read_demo
from ..terminal import note
from ..training.run import RESULTS
from .figures import figure_files
from .plan import ORDER, Plan
from .run import DEMO_FOLDER


def write_page(plan: Plan, *, out: Path, failed: Sequence[str] = ()) -> Path:
    """The page of everything that is finished in ``out``; its name says what it shows."""
    rows = collect_runs([out], note) if (out / RESULTS).exists() else []
    spiral = out / DEMO_FOLDER
    demo = read_demo(spiral)
    filled = {one: fill(one, plan.scale, rows, demo, plan.follow) for one in plan.exhibits}
    figures = [one for one in plan.exhibits if one.kind == "figure"]
    files = {one: figure_files(filled[one], rows, follow=plan.follow, demo=spiral, note=note) for one in figures}
    drawn = {one: [content for name, content in own.items() if name.endswith(".png")] for one, own in files.items()}
    whole = len(plan.exhibits) == len(ORDER)
    words = [] if whole else [one.label.split()[1] if one.kind == "table" else f"fig{one.number}" for one in plan.exhibits]
    name = "-".join(["paper", plan.scale, *(["code"] if plan.follow == "code" else []), *words])
    (path,) = write_files(out, {f"{name}.html": _page(plan, filled, drawn, failed).encode()})
    return path


def _page(
    plan: Plan, filled: Mapping[Exhibit, FilledTable], drawn: Mapping[Exhibit, Sequence[bytes]], failed: Sequence[str]
) -> str:
    verdicts = {one: Counter(judged.verdict for judged in table.judged) for one, table in filled.items()}
    total: Counter[Verdict] = sum(verdicts.values(), Counter())
    parts = [paragraph(_headline(plan, total), finding=True)]
    lines = [[one.label, one.title, *(str(verdicts[one][word] or "") for word in VERDICTS)] for one in filled if one.claims]
    parts += [html_table(["", "claims of the paper", *VERDICTS], lines), notes([RULE])]
    if plan.missing or failed:
        parts += [
            heading("What is missing"),
            notes([f"{name}: {reason}" for name, reason in plan.missing.items()] + list(failed)),
        ]
    for one in plan.exhibits:
        parts += [heading(f"{one.label}: {one.title}"), *([] if one.columns else [paragraph(one.about)])]
        parts += [picture(png, f"{one.label}: {one.title}") for png in drawn.get(one, ())]
        if not one.columns and not drawn.get(one):
            parts.append(paragraph("There is nothing to show yet."))
        parts += page_parts(filled[one]) if one.columns else [notes(one.notes)]
    parts += [heading("What differs from the paper's set-up"), *_set_up(plan)]
    lead = f"Mixup Augmentation with Multiple Interpolations (Shen, Yu, Yang, Kwok) beside our runs, {SCALE_WORDS[plan.scale]}."
    return document("The paper, reproduced", lead, parts, contents=True)


def _headline(plan: Plan, total: Counter[Verdict]) -> str:
    count = sum(total.values())
    if not count:
        return "These figures make no claims that runs could test."
    words = ", ".join(f"{total[word]} {word}" for word in VERDICTS if total[word])
    scale = "" if plan.scale == "paper" else f" This is the {plan.scale} scale, so it says nothing about the paper's own results."
    return f"Of {count} claims of the paper: {words}.{scale}"


def _set_up(plan: Plan) -> list[str]:
    """For every recipe what is not as in the paper's protocol."""
    followed = {"text": "the paper's text", "code": "the code of its authors and baselines"}[plan.follow]
    parts = [paragraph(f"Where the paper's text and its authors' code differ, {followed} was followed (--follow).")]
    for name in dict.fromkeys(name for one in plan.exhibits for name in one.recipes if name != DEMO):
        chosen = recipe(name, plan.follow)
        found = differences(chosen.settings(plan.scale), chosen.settings("paper"))
        if found:
            parts.append(details(f"{chosen.title}: {len(found)} settings differ from the paper's scale", notes(found)))
    return parts
