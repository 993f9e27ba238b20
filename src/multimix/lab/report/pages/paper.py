"""The page of the paper: its tables and figures with our numbers, and a verdict on every claim."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...recipes import recipe
from ...recipes.base import Follow, Scale
from ..exhibits import (
    FilledExhibit,
    claims_sentence,
    exhibit_notes,
    exhibit_records,
    exhibit_table,
    our_column,
    paper_cell,
    verdict_table,
)
from ..figures import Dot, dots
from ..frame import SCALE_LABELS, settings_differences
from ..page import Block, Heading, Notes, Picture, Section, render_page
from ..paper import SPIRAL
from ..stats import VERDICT_RULE, VERDICTS
from ..style import svg
from ..tables import Column, Table

MAX_SEPARATE_TABLES = 4  # measurements with a table each


def paper_page(
    filled: Sequence[FilledExhibit],
    pictures: Mapping[str, Picture],
    *,
    scale: Scale,
    follow: Follow = "text",
    missing: Sequence[str] = (),
) -> str:
    """Return the page.

    Args:
        filled: The exhibits in the paper's order.
        pictures: Figures by the label of their exhibit.
        scale: The scale of the runs.
        follow: Whether the recipes follow the paper's text or its authors' code.
        missing: Data sets that are missing and runs that failed, in sentences.
    """
    claims = [claim for exhibit in filled for claim in exhibit.judged]
    blocks: list[Block | None] = [
        Section("What is missing", [Notes(missing)], unfolded=True),
        Section("Verdicts", [_verdict_counts(filled), Notes([VERDICT_RULE])]),
        *(_section(exhibit, pictures.get(exhibit.paper.label)) for exhibit in filled),
        Section("Differences from the paper's setup", _setup(filled, scale, follow)),
    ]
    lead = f"Mixup Augmentation with Multiple Interpolations (Shen, Yu, Yang, Kwok) beside our runs, {SCALE_LABELS[scale]}."
    limit = "" if scale == "paper" else f" This is the {scale} scale, so it says nothing about the paper's own results."
    headline = claims_sentence(claims) + limit
    return render_page("The paper, reproduced", lead, blocks, headline=headline, figure=_claims_figure(filled))


def exhibit_files(filled: FilledExhibit, picture: Picture | None) -> dict[str, bytes]:
    """Return an exhibit as files: Markdown, CSV with all digits, and the figure.

    Args:
        filled: The exhibit.
        picture: Its figure, if it has one.
    """
    stem, files = filled.paper.file_stem, {}
    if filled.paper.columns:
        files[f"{stem}.md"] = "\n".join(table.markdown() for table in exhibit_tables(filled)).encode()
        files[f"{stem}.csv"] = exhibit_records(filled).csv().encode()
    if picture is not None:
        files[f"{stem}.{'svg' if picture.svg else 'png'}"] = picture.content
    return files


def exhibit_tables(filled: FilledExhibit) -> list[Table]:
    """Return the tables of an exhibit: verdicts of a figure, then numbers beside the paper's.

    Args:
        filled: The exhibit.
    """
    return [*([verdict_table(filled)] if filled.paper.kind == "figure" else []), exhibit_table(filled)]


def _section(filled: FilledExhibit, picture: Picture | None) -> Section:
    paper = filled.paper
    blocks: list[Block | None] = [picture]
    if not paper.columns:
        blocks += [paper.about, Notes([*filled.notes, *paper.notes])]
        blocks += [] if picture else ["There is nothing to show yet."]
    elif len(paper.columns) > MAX_SEPARATE_TABLES:
        blocks += _wide_tables(filled)
    else:
        blocks += [verdict_table(filled)] if paper.kind == "figure" else []
        for j, column in enumerate(paper.columns):
            blocks += [Heading(column.head), exhibit_table(filled, [j], notes=False)]
        blocks += [Notes(exhibit_notes(filled))]
    return Section(f"{paper.label}: {paper.title}", blocks)


def _wide_tables(filled: FilledExhibit) -> Iterator[Block]:
    """Yield a table of our measurements, a table of the paper's numbers, and the verdicts."""
    paper, rows = filled.paper, range(len(filled.paper.rows))
    measured = [j for j in range(len(paper.columns)) if any(filled.cells[i, j].values for i in rows)]
    names = Column("method", [row.label for row in paper.rows])
    if measured:
        yield Heading("ours")
        yield Table("", [names, *(our_column(filled, j) for j in measured)])
    # Show a number of the paper once if two measurements of ours compare with it.
    shared = {id(column.paper): j for j, column in reversed(list(enumerate(paper.columns))) if column.paper}
    columns = [
        Column(paper.columns[j].head.partition(" (")[0], [filled.cells[i, j].paper for i in rows], show=paper_cell)
        for j in sorted(shared.values())
    ]
    yield Heading("the paper's")
    yield Table("", [names, *columns], exhibit_notes(filled))
    yield Section("Verdict on every claim", [verdict_table(filled)])


def _verdict_counts(filled: Sequence[FilledExhibit]) -> Table:
    rows = []
    for exhibit in filled:
        counts = Counter(judged.verdict for judged in exhibit.judged)
        if counts:
            rows.append([exhibit.paper.label, exhibit.paper.title, *(counts[verdict] or "" for verdict in VERDICTS)])
    return Table.of_rows("verdicts", ["exhibit", "claims of the paper", *VERDICTS], rows)


def _claims_figure(filled: Sequence[FilledExhibit]) -> Picture | None:
    """Draw the claimed differences in per cent that were tested, grouped by exhibit and verdict."""
    rows: dict[str, list[Dot]] = {}
    for exhibit in filled:
        for judged in exhibit.judged:
            column = exhibit.paper.columns[judged.claim.column]
            if judged.test is not None and column.unit == "per cent" and exhibit.paper.number != 7:
                rows.setdefault(exhibit.paper.label, []).append(Dot(judged.test, judged.verdict))
    if not rows:
        return None
    caption = "Every tested claim: difference of the two trainings with its 95 % interval, by verdict."
    return Picture(svg(dots(rows, "difference in points", zero=True, series=list(VERDICTS[:4]))), caption, caption)


def _setup(filled: Sequence[FilledExhibit], scale: Scale, follow: Follow) -> Iterator[Block]:
    """Yield what differs from the paper's protocol, recipe by recipe."""
    followed = {"text": "the paper's text", "code": "the code of its authors and baselines"}[follow]
    yield f"Where the paper's text and its authors' code differ, {followed} was followed (--follow)."
    for name in dict.fromkeys(name for exhibit in filled for name in exhibit.paper.recipes if name != SPIRAL):
        chosen = recipe(name, follow)
        differences = settings_differences(chosen.settings(scale), chosen.settings("paper"))
        if differences:
            yield Section(f"{chosen.title}: {len(differences)} settings differ from the paper's scale", [Notes(differences)])
