"""A table of the paper beside ours, filled from the rows of finished runs: tables, records of every cell, a page, a list."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import rich.table
from rich.box import SIMPLE_HEAD
from rich.text import Text

from ..recipes import SCALES, recipe
from ..recipes.base import Follow, Scale, arm_names
from ..statistics import Summary, summary
from ..storage import write_files
from .claims import RULE, VERDICTS, Judged, judge, verdict_table
from .page import document, drawing, picture, section, subheading
from .paper import DEMO, EXHIBITS, Column, Exhibit, Key, PaperRow, Value
from .rows import CHANGED, SCALE_WORDS, Aggregate, Line, Rows, aggregate, join_settings
from .table import (
    NOTHING,
    Cell,
    Table,
    counted,
    csv_difference,
    csv_mean,
    csv_text,
    difference_cell,
    joined,
    mean_cell,
    number,
    parts,
)

NOT_RUN = "not run at this scale"
NOT_EVALUATED = "not evaluated"
NOT_HERE = "not in this version"
WIDE = 4  # measurements of which each has a table of its own on a page
COLUMNS = 3  # measurements side by side: with the paper's number and the test beside each there is room for no more


class DemoRuns(NamedTuple):
    """What the study of the spiral has found: accuracies by arm and seed, and what to know about them."""

    accuracy: Mapping[str, Mapping[int, float]]
    notes: tuple[str, ...] = ()


Demo = Mapping[Scale, DemoRuns]


class Entry(NamedTuple):
    """Values by seed, or in ``state`` why there are none; and the paper's number, if it is known."""

    values: Mapping[int, float]
    state: str
    paper: Value | None

    @property
    def summary(self) -> Summary | None:
        """Mean over the seeds with its interval."""
        return summary(list(self.values.values())) if self.values else None


@dataclass(frozen=True)
class FilledTable:
    """A table with our numbers at one scale: a cell for every row and column, by their places; and what to know about them."""

    paper: Exhibit
    scale: Scale
    cells: Mapping[tuple[int, int], Entry]
    notes: tuple[str, ...]
    follow: Follow = "text"

    @property
    def judged(self) -> list[Judged]:
        """The paper's claims with their verdicts."""
        places = {row.key: i for i, row in enumerate(self.paper.rows)}
        found = []
        for claim in self.paper.claims:
            second = claim.second
            other = second if isinstance(second, float) else self.cells[places[second], claim.column].values
            first = self.cells[places[claim.first], claim.column].values
            found.append(judge(claim, first, other, lower=self.paper.columns[claim.column].lower))
        return found


def largest_scale(table: Exhibit, rows: Rows, demo: Demo) -> Scale | None:
    """The largest scale at which there are runs for the table, if there are any."""
    for scale in SCALES:
        if any(row.get("recipe") in table.recipes and row.get("scale") == scale for row in rows):
            return scale
        if DEMO in table.recipes and scale in demo:
            return scale
    return None


def fill(table: Exhibit, scale: Scale, rows: Rows, demo: Demo, follow: Follow = "text") -> FilledTable:
    """Our numbers: only runs with the recipe's own settings count, and how many others there are is noted."""
    wholes = {name: aggregate(recipe(name, follow), scale, rows) for name in table.recipes if name != DEMO}
    spiral = demo.get(scale, DemoRuns({}))
    cells = {}
    for i, row in enumerate(table.rows):
        for j, column in enumerate(table.columns):
            if column.recipe == DEMO:
                values = spiral.accuracy.get(row.arm, {})
                cells[i, j] = Entry(values, "" if values else NOT_RUN, column.paper.get(row.key))
            else:
                cells[i, j] = _entry(row, column, wholes[column.recipe], scale)
    notes = spiral.notes if DEMO in table.recipes else tuple(_notes_on_runs(table, wholes))
    return FilledTable(table, scale, cells, (*notes, *_what_is_missing(table, scale, cells, follow)), follow)


def _entry(row: PaperRow, column: Column, whole: Aggregate, scale: Scale) -> Entry:
    paper, key = column.paper.get(row.key), column.of or row.key
    line = next((line for line in with_own_settings(whole) if (line.arm, line.k) == key), None)
    if line is None:
        return Entry({}, NOT_RUN if row.arm in arm_names() else NOT_HERE, paper)
    values = line.values(column.name(scale, row.k))
    return Entry(values, "" if values else NOT_EVALUATED, paper)


def with_own_settings(whole: Aggregate) -> list[Line]:
    """Lines with the recipe's own settings, all of as many processes as most runs had."""
    own = [line for line in whole.lines if line.runs and not line.changed]
    counts: Counter[int] = Counter()
    for line in own:
        counts[line.processes] += len(line.seeds)
    return [line for line in own if line.processes == counts.most_common(1)[0][0]]


def _notes_on_runs(table: Exhibit, wholes: Mapping[str, Aggregate]) -> Iterator[str]:
    """Which runs were left out and why, and what to know about the others."""
    keys: set[Key] = {key for row in table.rows for key in (row.key, *(column.of for column in table.columns if column.of))}
    timed = any(column.unit != "per cent" for column in table.columns)
    for name, whole in wholes.items():
        own = with_own_settings(whole)
        there = [line for line in whole.lines if line.runs and (line.arm, line.k) in keys]
        dropped = [line for line in there if not line.changed and line not in own]
        if dropped:
            yield f"left out of {name}: {_runs(dropped)} of another number of processes ({_labels(dropped)})"
        changed = [line for line in there if line.changed]
        if changed:
            why = f"{_labels(changed)}: {join_settings(changed[0].changed, 2)}"
            yield f"left out of {name}, since settings are not the recipe's: {_runs(changed)} ({why})"
        shown = {training for one in EXHIBITS for training in one.trainings}
        others = [line for line in whole.lines if line.runs and (name, line.arm, line.k) not in shown]
        if others:
            yield f"{name} has {_runs(others)} that the paper does not show ({_labels(others)}): multimix report has them"
        for note in whole.notes:
            if not note.startswith(CHANGED) and (timed or not note.startswith("seconds ")):
                yield f"{name}: {note}"


def _what_is_missing(table: Exhibit, scale: Scale, cells: Mapping[tuple[int, int], Entry], follow: Follow) -> Iterator[str]:
    """The commands that would fill the cells that are empty."""
    missing = {table.columns[j].evaluator for (_, j), entry in cells.items() if entry.state == NOT_EVALUATED}
    yield from (f"{NOT_EVALUATED}: multimix evaluate RUNS --on {name}" for name in table.evaluators if name in missing)
    if any(entry.state == NOT_RUN for entry in cells.values()):
        word = table.label.split()[1] if table.kind == "table" else f"fig{table.number}"
        yield f"{NOT_RUN}: multimix reproduce --only {word} --scale {scale}{' --follow code' if follow == 'code' else ''}"


def _runs(lines: Sequence[Line]) -> str:
    return counted(sum(len(line.seeds) for line in lines), "run")


def _labels(lines: Sequence[Line]) -> str:
    return ", ".join(dict.fromkeys(line.label for line in lines))


def tables(filled: FilledTable, at_once: int = COLUMNS) -> list[Table]:
    """The table in parts of up to ``at_once`` measurements, as many as fit on a terminal; notes are below the last."""
    count = len(filled.paper.columns)
    pieces = math.ceil(count / at_once)
    # As equal as can be: four columns are two and two, not three and one.
    cuts = [piece * count // pieces for piece in range(pieces + 1)]
    made = []
    for first, end in pairwise(cuts):
        columns: list[tuple[str, Sequence[Cell]]] = [("method", [row.label for row in filled.paper.rows])]
        for place in range(first, end):
            columns += _columns(filled, place)
        words = f"{filled.paper.title} ({SCALE_WORDS[filled.scale]})" if first == 0 else "continued"
        notes = _notes(filled) if end == count else []
        made.append(Table.of_columns(f"{filled.paper.label}: {words}", columns, notes))
    if filled.paper.kind == "figure":
        made.insert(-1, verdict_table(filled.judged, f"{filled.paper.label}: what the paper claims", None))
    return made


def _columns(filled: FilledTable, place: int) -> list[tuple[str, Sequence[Cell]]]:
    """One measurement: ours, the paper's, and in a table the difference of multi-mix and every other row with the verdict."""
    column, rows = filled.paper.columns[place], filled.paper.rows
    entries = [filled.cells[i, place] for i in range(len(rows))]
    columns: list[tuple[str, Sequence[Cell]]] = [(column.head, [_ours(entry, column) for entry in entries])]
    if column.paper:
        columns.append(
            ("paper" if filled.scale == "paper" else "paper (other scale)", [_paper(entry.paper) for entry in entries])
        )
    tests = {one.claim.second: one for one in filled.judged if one.claim.column == place}
    if filled.paper.kind == "table" and any(one.test for one in tests.values()):
        columns.append(("multi-mix (minus this row)", [_tested(tests.get(row.key), column) for row in rows]))
    return columns


def _ours(entry: Entry, column: Column) -> Cell:
    whole = entry.summary
    if whole is None:
        return entry.state
    mean, half = parts(mean_cell(whole, column.places))
    spread = f"SD\u00a0{number(whole.sd, column.places)}" if math.isfinite(whole.sd) else ""
    return mean, ", ".join(filter(None, (half, spread, f"n = {whole.n}")))


def _paper(value: Value | None) -> Cell:
    if value is None:
        return NOTHING
    return number(value.mean), "" if value.sd is None else f"SD\u00a0{number(value.sd)}"


def _tested(one: Judged | None, column: Column) -> Cell:
    if one is None or one.test is None:
        return NOTHING if one is None else one.verdict
    mean, rest = parts(difference_cell(one.test, column.places))
    return mean, ", ".join(filter(None, (rest, one.verdict)))


def _notes(filled: FilledTable) -> list[str]:
    """How to read the table, who is ahead, what is missing, and what to know about the paper's numbers."""
    table, cells = filled.paper, filled.cells.values()
    notes = [table.about, *_units(table)]
    if any(entry.values for entry in cells):
        notes.append("ours: mean over n seeds ± half the 95 % t-interval and standard deviation, which one seed does not have")
    verdicts = Counter(one.verdict for one in filled.judged)
    notes.append(f"the paper's claims: {', '.join(f'{count} {word}' for word, count in verdicts.items())}")
    if any(one.test for one in filled.judged):
        notes.append(RULE)
    notes += _best_means(filled)
    if filled.scale != "paper" and any(entry.paper is not None for entry in cells):
        notes.append(f"the paper's numbers are of its own scale and do not compare with those of this {filled.scale} scale")
    if filled.follow == "text":
        return [*notes, *filled.notes, *table.notes]
    followed = "where the paper's text and the code of its authors and baselines differ, the code was followed (--follow code)"
    return [*notes, followed, *filled.notes, *(note for note in table.notes if "--follow code" not in note)]


def _units(table: Exhibit) -> Iterator[str]:
    heads: dict[tuple[str, bool], list[str]] = {}
    for column in table.columns:
        heads.setdefault((column.unit, column.lower), []).append(column.head)
    for (unit, lower), own in heads.items():
        better = f", {'lower' if lower else 'higher'} is better" if unit == "per cent" else ""
        yield f"in {unit}{better}" + (f": {', '.join(own)}" if len(heads) > 1 else "")


def _best_means(filled: FilledTable) -> Iterator[str]:
    """The best mean of every column, where at least two rows have one."""
    for place, column in enumerate(filled.paper.columns):
        entries = [(row.label, filled.cells[i, place]) for i, row in enumerate(filled.paper.rows)]
        ours = [(label, entry.summary.mean) for label, entry in entries if entry.summary is not None]
        papers = [(label, entry.paper.mean) for label, entry in entries if entry.paper is not None]
        best = [f"{whose} {_best(means, column)}" for whose, means in (("ours", ours), ("the paper's", papers)) if means[1:]]
        if ours[1:]:
            yield f"{'lowest' if column.lower else 'highest'} mean, {column.head}: {'; '.join(best)}"


def _best(means: Sequence[tuple[str, float]], column: Column) -> str:
    end = (min if column.lower else max)(mean for _, mean in means)
    names = " and ".join(label for label, mean in means if mean == end)
    return f"{names} with {number(end, column.places)} (of {len(means)} rows)"


def records(filled: FilledTable) -> list[dict[str, object]]:
    """Every cell with all its numbers in full; None where there is none."""
    return [_record(filled, i, j) for j in range(len(filled.paper.columns)) for i in range(len(filled.paper.rows))]


def _record(filled: FilledTable, i: int, j: int) -> dict[str, object]:
    table, entry = filled.paper, filled.cells[i, j]
    row, column = table.rows[i], table.columns[j]
    record: dict[str, object] = {"in_paper": table.label, "name": table.name, "scale": filled.scale, "recipe": column.recipe}
    record |= {"column": column.head, "field": column.name(filled.scale, row.k), "unit": column.unit}
    record |= {"arm": row.arm, "k": row.k, "label": row.label}
    record |= {"n": len(entry.values), "seeds": " ".join(map(str, entry.values))}
    whole = entry.summary
    means = csv_mean("mean", whole)
    record |= {"mean": means["mean"], "half": means["mean_half"], "state": entry.state}
    record["sd"] = None if whole is None or not math.isfinite(whole.sd) else whole.sd
    record |= {"paper": entry.paper and entry.paper.mean, "paper_sd": entry.paper and entry.paper.sd}
    record["paper_compares"] = "" if entry.paper is None else "yes" if filled.scale == "paper" else "no"
    own = row.key if table.kind == "figure" else None
    judged = next(
        (one for one in filled.judged if one.claim.column == j and row.key in (own and one.claim.first, one.claim.second)), None
    )
    record |= {"verdict": judged and judged.verdict}
    return record | csv_difference("difference", judged and judged.test)


def page(filled: FilledTable, figures: Mapping[str, bytes] = {}) -> str:
    """The table as a self-contained HTML page, beside what ``figures`` show."""
    title = f"{filled.paper.label}: {filled.paper.title}"
    lead = f"The paper's numbers beside ours, {SCALE_WORDS[filled.scale]}. {filled.paper.about}"
    drawn = shown(figures, title)
    # Pictures may be as wide as the page, and stand below.
    beside = drawn[0] if drawn and any(name.endswith(".svg") for name in figures) else ""
    parts = [*(() if beside else drawn), section("Ours and the paper's", *page_parts(filled), unfolded=True)]
    return document(title, lead, parts, headline=claims_sentence(filled.judged), figure=beside)


def shown(figures: Mapping[str, bytes], alt: str) -> list[str]:
    """Figures by file name for a page: drawn where they are drawings, else as the pictures they are."""
    drawings = [drawing(content, alt) for name, content in figures.items() if name.endswith(".svg")]
    return drawings or [picture(content, alt) for content in figures.values()]


def claims_sentence(judged: Sequence[Judged]) -> str:
    """How many of the paper's claims the runs show."""
    counts = Counter(one.verdict for one in judged)
    words = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    if not judged:
        return "There are no claims here that runs could test."
    return f"Of {counted(len(judged), 'claim')} of the paper: {words}."


def page_parts(filled: FilledTable) -> list[str]:
    """The table for a page: one measurement at a time has room there without scrolling, and its name for a heading."""
    if len(filled.paper.columns) > WIDE:
        return _wide_parts(filled)
    made = verdict_table(filled.judged, "", None).html() if filled.paper.kind == "figure" else []
    shown = [table for table in tables(filled, 1) if table.heads[0] == "method"]
    for table, column in zip(shown, filled.paper.columns, strict=True):
        made += [subheading(column.head), *replace(table, heads=[table.heads[0], "ours", *table.heads[2:]]).html()]
    return made


def _wide_parts(filled: FilledTable) -> list[str]:
    """Many measurements: ours in one table, without those that nobody has, the paper's in another, verdicts folded away."""
    rows, columns = filled.paper.rows, filled.paper.columns
    there = [j for j in range(len(columns)) if any(filled.cells[i, j].values for i in range(len(rows)))]
    # Two readings of one number of the paper share it.
    papers = {id(column.paper): column for column in reversed(columns) if column.paper}
    shown = list(reversed(papers.values()))
    ours = [[row.label, *(joined(_ours(filled.cells[i, j], columns[j])) for j in there)] for i, row in enumerate(rows)]
    theirs = [[row.label, *(joined(_paper(column.paper.get(row.key))) for column in shown)] for row in rows]
    made = [subheading("ours"), *Table("", ["method", *(columns[j].head for j in there)], ours).html()] if there else []
    heads = [column.head.partition(" (")[0] for column in shown]
    made += [subheading("the paper's"), *Table("", ["method", *heads], theirs, _notes(filled)).html()]
    return [*made, section("verdict on every claim", *verdict_table(filled.judged, "").html())]


def write_exhibit(filled: FilledTable, out: Path, figures: Mapping[str, bytes] = {}) -> list[Path]:
    """The ``figures`` by file name, and where there are measurements the table as Markdown, CSV and a page."""
    files = dict(figures)
    if filled.paper.columns:
        texts = {"md": "\n".join(part.markdown() for part in tables(filled)), "csv": csv_text(records(filled))}
        texts["html"] = page(filled, figures)
        files |= {f"{filled.paper.file_stem}.{ending}": text.encode() for ending, text in texts.items()}
    return write_files(out, files)


def listing(rows: Rows, demo: Demo, every: Iterable[Exhibit] = EXHIBITS) -> rich.table.Table:
    """All tables and figures for the terminal: number, name, title, and how much there is of ours."""
    title = Text("The paper's tables and figures: multimix table I … VIII, multimix figure 2 … 8")
    shown = rich.table.Table(title=title, padding=(0, 1, 0, 0), box=SIMPLE_HEAD, show_edge=False)
    shown.title_justify = "left"
    for head in ("", "name", "title", "ours"):
        shown.add_column(head, overflow="fold", no_wrap=head in ("", "name"))
    for one in every:
        shown.add_row(*map(Text, (one.label, one.name, one.title, _progress(one, rows, demo))))
    return shown


def _progress(table: Exhibit, rows: Rows, demo: Demo) -> str:
    if not table.columns:
        return "pictures"
    scale = largest_scale(table, rows, demo)
    if scale is None:
        return "not run"
    cells = fill(table, scale, rows, demo).cells.values()
    return f"{sum(bool(entry.values) for entry in cells)} of {len(cells)} cells, {scale} scale"
