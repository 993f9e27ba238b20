"""What evaluators found about a run, kept in its folder; and finished runs together with all that is known about them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..results import digest
from ..rows import append_row, read_rows
from ..training.loaded import SETTINGS, Which
from ..training.run import RESULTS

EVALUATIONS = "evaluations.jsonl"
PICTURES = "evaluation"  # the folder of their pictures
Note = Callable[[str], None]


def keep(
    folder: Path,
    on: str,
    *,
    checkpoint: Which,
    weights: str,
    options: Mapping[str, Any],
    numbers: Mapping[str, float | None],
    result: Mapping[str, Any],
) -> None:
    """Add what the evaluator ``on`` found to the rows of the run in ``folder``.

    ``numbers`` are what tables show, by name; ``result`` is everything, as JSON. ``options`` are all that the numbers depend on
    beside the ``weights``, given by their checksum.
    """
    row = {"on": on, "checkpoint": checkpoint, "weights": weights, "options": dict(options)}
    append_row(folder / EVALUATIONS, {**row, "numbers": dict(numbers), "result": dict(result)})


def kept(folder: Path, on: str, *, weights: str, options: Mapping[str, Any], note: Note = print) -> dict[str, Any] | None:
    """The row of the same evaluation of the same weights, if there is one."""
    wanted = (on, weights, digest(dict(options)))
    row: dict[str, Any]
    for row in reversed(read_rows(folder / EVALUATIONS, note)):
        if (row.get("on"), row.get("weights"), digest(row.get("options"))) == wanted:
            return row
    return None


def collected(places: Iterable[str | Path], note: Note = print) -> list[dict[str, Any]]:
    """The rows of finished runs in ``places``, each a folder of results or of one run, in the order they were added.

    To each is added ``place``, the folder of the run, and ``evaluations``: by evaluator the newest row about its final weights,
    or by ``name@best`` about its best epoch. Evaluations of weights that a run no longer has are passed over.
    """
    rows: list[dict[str, Any]] = []
    for place in map(Path, places):
        rows += _rows_of(place, note)
    unique = {str(row["place"]): row for row in rows}  # a run that was named twice, or trained twice, counts once
    found = list(unique.values())
    for row in found:
        row["evaluations"] = _evaluations(Path(row["place"]), row.get("weights"), note)
    _tell_differences(found, note)
    return found


def finished_in(place: str | Path, note: Note = print) -> list[Path]:
    """The folders of the finished runs of a folder of results; or the folder itself, if it is that of a finished run."""
    found = dict.fromkeys(row["place"] for row in _rows_of(Path(place), note))
    return [Path(run) for run in found]


def is_run(place: Path) -> bool:
    """Whether the folder is that of a run, finished or not."""
    return (place / SETTINGS).exists()


def _rows_of(place: Path, note: Note) -> list[dict[str, Any]]:
    if is_run(place):
        # A run lies in RESULTS/recipe/scale/name.
        whole = place.resolve()
        root = whole.parents[2] if len(whole.parents) > 2 else whole
        rows = [row for row in read_rows(root / RESULTS, note) if row.get("folder") == str(whole.relative_to(root))]
        return [{**row, "place": str(place)} for row in rows]
    elif (place / RESULTS).exists():
        root, rows = place, read_rows(place / RESULTS, note)
    elif place.is_dir():
        raise ValueError(f"{place} is neither the folder of a run (no {SETTINGS}) nor one of results (no {RESULTS})")
    else:
        raise ValueError(f"there is no folder {place}")
    return [{**row, "place": str(root / row["folder"])} for row in rows if isinstance(row.get("folder"), str)]


def _evaluations(folder: Path, weights: str | None, note: Note) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in read_rows(folder / EVALUATIONS, note):
        if row.get("checkpoint") == "best":
            found[f"{row['on']}@best"] = row
        elif row.get("weights") == weights:
            found[row["on"]] = row
    return found


def _tell_differences(rows: Sequence[Mapping[str, Any]], note: Note) -> None:
    """Numbers that were not measured alike do not compare."""
    ways: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        for on, evaluation in row["evaluations"].items():
            ways.setdefault((row.get("recipe", ""), row.get("scale", ""), on), set()).add(digest(evaluation["options"]))
    for (recipe, scale, on), found in ways.items():
        if len(found) > 1:
            note(f"{on} of {recipe} at {scale} scale was measured in {len(found)} ways, which do not compare")
