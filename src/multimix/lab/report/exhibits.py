"""The paper's tables and figures filled with our numbers, with a verdict on every claim."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from ..recipes import recipe
from ..recipes.base import SCALES, Follow, Scale, arm_names
from ..recipes.spiral import ARMS, COLLAPSED
from ..terminal import counted
from .frame import CHANGED, SCALE_LABELS, Rows, RunGroup, Study, join_settings, study
from .paper import EXHIBITS, SPIRAL, Claim, Exhibit, Key, Measurement, PaperRow, Value
from .stats import VERDICT_RULE, VERDICTS, Paired, Summary, Verdict, claim_verdict, summary
from .tables import EMPTY, Cell, Column, Table, cell, number

NOT_RUN = "not run at this scale"
NOT_EVALUATED = "not evaluated"
NOT_AVAILABLE = "not in this version"

# The demo's runs by scale, as frames with the columns arm, seed, and accuracy.
SpiralRuns = Mapping[Scale, pd.DataFrame]


class Judged(NamedTuple):
    """A claim with its verdict.

    Args:
        claim: The claim.
        verdict: The verdict.
        test: The paired test behind the verdict; None without two common seeds.
    """

    claim: Claim
    verdict: Verdict
    test: Paired | None


class Entry(NamedTuple):
    """Content of a cell of an exhibit.

    Args:
        values: Our values by seed.
        state: Why there are no values, otherwise empty.
        paper: The paper's number.
    """

    values: Mapping[int, float]
    state: str
    paper: Value | None

    @property
    def summary(self) -> Summary | None:
        """Mean over the seeds."""
        return summary(list(self.values.values())) if self.values else None


@dataclass(frozen=True, eq=False)
class FilledExhibit:
    """An exhibit with our numbers at one scale.

    Args:
        paper: The exhibit.
        scale: The scale.
        cells: Entries by indices of row and column.
        notes: Remarks on our runs.
        follow: Whether the recipes follow the paper's text or its authors' code.
    """

    paper: Exhibit
    scale: Scale
    cells: Mapping[tuple[int, int], Entry]
    notes: tuple[str, ...]
    follow: Follow = "text"

    @property
    def any_values(self) -> bool:
        """Whether any cell has a value of ours."""
        return any(entry.values for entry in self.cells.values())

    @cached_property
    def judged(self) -> list[Judged]:
        """The claims with their verdicts."""
        index = {row.key: i for i, row in enumerate(self.paper.rows)}
        verdicts = []
        for claim in self.paper.claims:
            first, second = self.cells[index[claim.first], claim.column].values, claim.second
            reference = second if isinstance(second, float) else self.cells[index[second], claim.column].values
            lower = self.paper.columns[claim.column].lower
            verdicts.append(Judged(claim, *claim_verdict(first, reference, lower=lower)))
        return verdicts


def largest_scale(exhibit: Exhibit, rows: Rows, spiral: SpiralRuns) -> Scale | None:
    """Return the largest scale with runs for the exhibit, or None without runs.

    Args:
        exhibit: The exhibit.
        rows: Stored rows.
        spiral: The demo's runs by scale.
    """
    for scale in SCALES:
        if any(row.get("recipe") in exhibit.recipes and row.get("scale") == scale for row in rows):
            return scale
        if SPIRAL in exhibit.recipes and scale in spiral:
            return scale
    return None


def fill(exhibit: Exhibit, scale: Scale, rows: Rows, spiral: SpiralRuns | None = None, follow: Follow = "text") -> FilledExhibit:
    """Fill an exhibit from finished runs with the recipe's own settings.

    Args:
        exhibit: The exhibit.
        scale: The scale of the runs.
        rows: Stored rows.
        spiral: The demo's runs, if there are any.
        follow: Whether the recipes follow the paper's text or its authors' code.
    """
    studies = {name: study(recipe(name, follow), scale, rows) for name in exhibit.recipes if name != SPIRAL}
    demo = (spiral or {}).get(scale)
    cells = {}
    for i, row in enumerate(exhibit.rows):
        for j, column in enumerate(exhibit.columns):
            if column.recipe == SPIRAL:
                runs = None if demo is None else demo[demo.arm == row.arm].set_index("seed")[column.value]
                values = {} if runs is None else runs.to_dict()
                cells[i, j] = Entry(values, "" if values else NOT_RUN, column.paper.get(row.key))
            else:
                cells[i, j] = _entry(row, column, studies[column.recipe], scale)
    notes = [*_notes_on_runs(exhibit, studies), *_notes_on_collapse(exhibit, demo)]
    return FilledExhibit(exhibit, scale, cells, (*notes, *_missing(exhibit, scale, cells, follow)), follow)


def recipe_groups(study: Study) -> list[RunGroup]:
    """Return the groups with the recipe's settings and the most frequent number of processes.

    Args:
        study: The study.
    """
    groups = [group for group in study.trained if not group.changed]
    counts: Counter[int] = Counter()
    for group in groups:
        counts[group.processes] += len(group.seeds)
    return [group for group in groups if group.processes == counts.most_common(1)[0][0]]


def _entry(row: PaperRow, column: Measurement, study: Study, scale: Scale) -> Entry:
    paper, key = column.paper.get(row.key), column.of or row.key
    group = next((group for group in recipe_groups(study) if (group.arm, group.k) == key), None)
    if group is None:
        return Entry({}, NOT_RUN if row.arm in arm_names() else NOT_AVAILABLE, paper)
    values = group.values(column.name(scale, row.k))
    return Entry(values, "" if values else NOT_EVALUATED, paper)


def _notes_on_collapse(exhibit: Exhibit, demo: pd.DataFrame | None) -> Iterator[str]:
    if SPIRAL not in exhibit.recipes or demo is None:
        return
    failed = demo[demo.accuracy < COLLAPSED].groupby("arm").size()
    counts = ", ".join(f"{arm.words}: {failed[arm.name]}" for arm in ARMS if arm.name in failed)
    if counts:
        yield f"runs that collapsed, below {COLLAPSED:.0f} % ({counts}): each moves a mean by a point or more"


def _notes_on_runs(exhibit: Exhibit, studies: Mapping[str, Study]) -> Iterator[str]:
    """Yield notes on omitted runs."""
    keys: set[Key] = {row.key for row in exhibit.rows} | {column.of for column in exhibit.columns if column.of}
    timed = any(column.unit != "per cent" for column in exhibit.columns)
    trainings = {training for shown in EXHIBITS for training in shown.trainings}
    for name, recipe_study in studies.items():
        shown_groups = recipe_groups(recipe_study)
        exhibit_groups = [group for group in recipe_study.trained if (group.arm, group.k) in keys]
        dropped = [group for group in exhibit_groups if not group.changed and group not in shown_groups]
        if dropped:
            yield f"omitted from {name}: {_runs(dropped)} with another number of processes ({_labels(dropped)})"
        changed = [group for group in exhibit_groups if group.changed]
        if changed:
            reason = f"{_labels(changed)}: {join_settings(changed[0].changed, 2)}"
            yield f"omitted from {name}, since settings are not the recipe's: {_runs(changed)} ({reason})"
        unlisted = [group for group in recipe_study.trained if (name, group.arm, group.k) not in trainings]
        if unlisted:
            yield f"{name} has {_runs(unlisted)} that the paper does not show ({_labels(unlisted)}): multimix report has them"
        for note in recipe_study.notes:
            if not note.startswith(CHANGED) and (timed or not note.startswith("seconds ")):
                yield f"{name}: {note}"


def _missing(exhibit: Exhibit, scale: Scale, cells: Mapping[tuple[int, int], Entry], follow: Follow) -> Iterator[str]:
    """Name the commands that would fill empty cells."""
    missing = {exhibit.columns[j].measure for (_, j), entry in cells.items() if entry.state == NOT_EVALUATED}
    yield from (f"{NOT_EVALUATED}: multimix evaluate RUNS --on {name}" for name in exhibit.measures if name in missing)
    if any(entry.state == NOT_RUN for entry in cells.values()):
        code = " --follow code" if follow == "code" else ""
        yield f"{NOT_RUN}: multimix reproduce --only {exhibit.short} --scale {scale}{code}"


def _runs(groups: Sequence[RunGroup]) -> str:
    return counted(sum(len(group.seeds) for group in groups), "run")


def _labels(groups: Sequence[RunGroup]) -> str:
    return ", ".join(dict.fromkeys(group.label for group in groups))


def exhibit_table(filled: FilledExhibit, columns: Sequence[int] | None = None, *, notes: bool = True) -> Table:
    """Return our numbers beside the paper's, with the difference of multi-mix and every other row.

    Args:
        filled: The exhibit.
        columns: Indices of measurements; None takes all.
        notes: Whether to add the notes.
    """
    paper, indices = filled.paper, range(len(filled.paper.columns)) if columns is None else columns
    table_columns = [Column("method", [row.label for row in paper.rows])]
    for j in indices:
        table_columns += _columns(filled, j)
    title = f"{paper.label}: {paper.title} ({SCALE_LABELS[filled.scale]})"
    return Table(title, table_columns, exhibit_notes(filled) if notes else ())


def verdict_table(filled: FilledExhibit) -> Table:
    """Return a table of all claims with their verdicts and differences.

    Args:
        filled: The exhibit.
    """
    judged = filled.judged
    columns = [
        Column("the paper's claim", [judged_claim.claim.text for judged_claim in judged]),
        Column("verdict", [judged_claim.verdict for judged_claim in judged]),
        Column(
            "difference (95 %)",
            [judged_claim.test for judged_claim in judged],
            places=None if filled.paper.kind == "figure" else 2,
        ),
        Column("n", [judged_claim.test and judged_claim.test.n for judged_claim in judged]),
    ]
    return Table(f"{filled.paper.label}: what the paper claims", columns)


def our_column(filled: FilledExhibit, j: int) -> Column:
    """Return our values of a measurement.

    Args:
        filled: The exhibit.
        j: Index of the measurement.
    """
    column = filled.paper.columns[j]
    entries = [filled.cells[i, j] for i in range(len(filled.paper.rows))]
    return Column(column.head, entries, show=lambda entry: _our_cell(entry, column))


def _columns(filled: FilledExhibit, j: int) -> Iterator[Column]:
    column, rows = filled.paper.columns[j], filled.paper.rows
    entries = [filled.cells[i, j] for i in range(len(rows))]
    yield our_column(filled, j)
    if column.paper:
        head = "paper" if filled.scale == "paper" else "paper (other scale)"
        yield Column(head, [entry.paper for entry in entries], show=paper_cell)
    tests = {judged_claim.claim.second: judged_claim for judged_claim in filled.judged if judged_claim.claim.column == j}
    if filled.paper.kind == "table" and any(judged_claim.test for judged_claim in tests.values()):
        judged_rows = [tests.get(row.key) for row in rows]
        yield Column("multi-mix (minus this row)", judged_rows, show=lambda judged_claim: _test_cell(judged_claim, column))


def _our_cell(entry: Entry, column: Measurement) -> Cell:
    mean = entry.summary
    if mean is None:
        return entry.state
    text = cell(mean, column.places)
    half = text[1] if isinstance(text, tuple) else ""
    spread = f"SD\u00a0{number(mean.sd, column.places)}" if math.isfinite(mean.sd) else ""
    return text[0], ", ".join(filter(None, (half, spread, f"n = {mean.n}")))


def paper_cell(value: Value | None) -> Cell:
    """Format a number of the paper with its standard deviation.

    Args:
        value: The number; None for an empty cell.
    """
    if value is None:
        return EMPTY
    return number(value.mean), "" if value.sd is None else f"SD\u00a0{number(value.sd)}"


def _test_cell(judged: Judged | None, column: Measurement) -> Cell:
    if judged is None or judged.test is None:
        return EMPTY if judged is None else judged.verdict
    text = cell(judged.test, column.places)
    interval = text[1] if isinstance(text, tuple) else ""
    return text[0], ", ".join(filter(None, (interval, judged.verdict)))


def exhibit_notes(filled: FilledExhibit) -> list[str]:
    """Return the notes of an exhibit: units, verdicts, best rows, missing runs, and remarks.

    Args:
        filled: The exhibit.
    """
    paper = filled.paper
    notes = [paper.about, *_units(paper)]
    if filled.any_values:
        notes.append("ours: mean over n seeds ± half the 95 % t-interval, and standard deviation, both for n > 1")
    verdicts = Counter(judged_claim.verdict for judged_claim in filled.judged)
    notes.append(f"the paper's claims: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items())}")
    if any(judged_claim.test for judged_claim in filled.judged):
        notes.append(VERDICT_RULE)
    notes += _best_means(filled)
    if filled.scale != "paper" and any(entry.paper is not None for entry in filled.cells.values()):
        notes.append(f"the paper's numbers are of its own scale and do not compare with those of this {filled.scale} scale")
    if filled.follow == "text":
        return [*notes, *filled.notes, *paper.notes]
    followed = "where the paper's text and the code of its authors and baselines differ, the code was followed (--follow code)"
    return [*notes, followed, *filled.notes, *(note for note in paper.notes if "--follow code" not in note)]


def claims_sentence(judged: Sequence[Judged]) -> str:
    """Count the verdicts on claims of the paper in one sentence.

    Args:
        judged: The claims.
    """
    if not judged:
        return "These exhibits have no claims that runs can test."
    counts = Counter(judged_claim.verdict for judged_claim in judged)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    return f"Of {counted(len(judged), 'claim')} of the paper: {verdicts}."


def exhibit_records(filled: FilledExhibit) -> Table:
    """Return every cell with all digits as a table for CSV.

    Args:
        filled: The exhibit.
    """
    records: list[dict[str, Any]] = []
    for j, column in enumerate(filled.paper.columns):
        for i, row in enumerate(filled.paper.rows):
            entry, mean = filled.cells[i, j], filled.cells[i, j].summary
            # In a table, a claim belongs to the row that multi-mix is compared with; in a figure, to both rows.
            judged = next(
                (
                    candidate
                    for candidate in filled.judged
                    if candidate.claim.column == j
                    and (
                        candidate.claim.second == row.key or (filled.paper.kind == "figure" and candidate.claim.first == row.key)
                    )
                ),
                None,
            )
            records.append(
                {
                    **{"in_paper": filled.paper.label, "scale": filled.scale, "recipe": column.recipe},
                    **{"column": column.head, "field": column.name(filled.scale, row.k), "unit": column.unit},
                    **{"arm": row.arm, "k": row.k, "label": row.label, "state": entry.state},
                    **{"n": len(entry.values), "seeds": " ".join(map(str, entry.values)), "mean": mean},
                    "sd": mean.sd if mean and math.isfinite(mean.sd) else None,
                    "paper": entry.paper and entry.paper.mean,
                    "paper_sd": entry.paper and entry.paper.sd,
                    "paper_compares": "" if entry.paper is None else "yes" if filled.scale == "paper" else "no",
                    "verdict": judged and judged.verdict,
                    "difference": judged and judged.test,
                }
            )
    names = list(records[0]) if records else []
    return Table("", [Column("", [record[name] for record in records], name=name) for name in names])


def _units(exhibit: Exhibit) -> Iterator[str]:
    heads: dict[tuple[str, bool], list[str]] = {}
    for column in exhibit.columns:
        heads.setdefault((column.unit, column.lower), []).append(column.head)
    for (unit, lower), column_heads in heads.items():
        better = f", {'lower' if lower else 'higher'} is better" if unit == "per cent" else ""
        yield f"in {unit}{better}" + (f": {', '.join(column_heads)}" if len(heads) > 1 else "")


def _best_means(filled: FilledExhibit) -> Iterator[str]:
    """Name the best mean of every column with at least two."""
    for j, column in enumerate(filled.paper.columns):
        entries = [(row.label, filled.cells[i, j]) for i, row in enumerate(filled.paper.rows)]
        ours = [(label, entry.summary.mean) for label, entry in entries if entry.summary is not None]
        papers = [(label, entry.paper.mean) for label, entry in entries if entry.paper is not None]
        best = [f"{whose} {_best(means, column)}" for whose, means in (("ours", ours), ("the paper's", papers)) if means[1:]]
        if ours[1:]:
            yield f"{'lowest' if column.lower else 'highest'} mean, {column.head}: {'; '.join(best)}"


def _best(means: Sequence[tuple[str, float]], column: Measurement) -> str:
    best = (min if column.lower else max)(mean for _, mean in means)
    names = " and ".join(label for label, mean in means if mean == best)
    return f"{names} with {number(best, column.places)} (of {len(means)} rows)"
