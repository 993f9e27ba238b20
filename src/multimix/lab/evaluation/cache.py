"""Measured numbers beside the run they are about, so that nothing is measured twice; and finished runs with all their numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..recipes.runs import BEST, RESULTS, SETTINGS, Which
from ..storage import append_row, checkpoint_sum, digest, read_rows

EVALUATIONS = "evaluations.jsonl"
PICTURES = "evaluation"  # the folder of their pictures
Note = Callable[[str], None]


@dataclass(frozen=True)
class Query:
    """What is measured on a run: the measure ``on``, which weights, and all ``options`` that its numbers depend on beside those.

    ``variant`` names the options that are not the usual ones, in words; tables take only evaluations without any.
    ``weights`` is their checksum, ``file`` that of the checkpoint they were in.
    """

    on: str
    checkpoint: Which
    weights: str
    options: Mapping[str, Any]
    variant: str = ""
    file: str | None = None

    @property
    def folder(self) -> str:
        """The folder of its pictures."""
        return picture_folder(asdict(self))


def picture_folder(row: Mapping[str, Any]) -> str:
    """Return the folder of an evaluation's pictures, inside the folder of the run."""
    plain = f"{PICTURES}/{evaluation_key(row['on'], '', row['checkpoint'])}"
    return f"{plain}-{digest(dict(row['options']))[:8]}" if row.get("variant") else plain


def evaluation_key(on: str, variant: str, checkpoint: str) -> str:
    """What an evaluation is called among those of a run: ``calibration``, ``calibration[bins = 15]``, ``error@best``."""
    return on + (f"[{variant}]" if variant else "") + ("@best" if checkpoint == "best" else "")


def store_row(folder: Path, query: Query, *, numbers: Mapping[str, float | None], result: Mapping[str, Any]) -> None:
    """Add a row to those of the run in ``folder``: ``numbers`` for tables, ``result`` is everything, as JSON."""
    append_row(folder / EVALUATIONS, {**asdict(query), "numbers": dict(numbers), "result": dict(result)})


def find_row(folder: Path, query: Query, note: Note = print) -> dict[str, Any] | None:
    """The newest row of the same evaluation of the same weights, if there is one."""
    wanted = (query.on, query.checkpoint, query.weights, digest(dict(query.options)))
    row: dict[str, Any]
    for row in reversed(_stored_rows(folder, note)):
        if (row.get("on"), row.get("checkpoint"), row.get("weights"), digest(row.get("options"))) == wanted:
            return row
    return None


def collect_runs(places: Iterable[str | Path], note: Note = print) -> list[dict[str, Any]]:
    """The rows of finished runs in ``places``, each a folder of results or of one run, in the order they were added.

    To each is added ``place``, the folder of the run, and ``evaluations``: the newest row of each kind by its key, such as
    ``calibration``, ``calibration[bins = 15]`` or, about the best epoch, ``error@best``. Those of weights that a run no longer
    has are passed over.
    """
    # A run that was named twice, or trained twice, counts once.
    rows = list({str(row["place"]): row for place in places for row in _finished_rows(Path(place), note)}.values())
    for row in rows:
        row["evaluations"] = _evaluations(Path(row["place"]), row.get("weights"), note)
    for sentence in unequal_evaluations(rows):
        note(sentence)
    return rows


def network_evaluations(folder: Path, note: Note = print) -> dict[str, dict[str, Any]]:
    """Return the newest evaluation of each kind of a network that was not trained here.

    Args:
        folder: Its folder, such as ``multimix-evaluations/my_models.resnet50``.
        note: Receives messages.
    """
    return {evaluation_key(row["on"], row.get("variant", ""), row["checkpoint"]): row for row in _stored_rows(folder, note)}


def finished_runs(place: str | Path, note: Note = print) -> list[Path]:
    """The folders of the finished runs of a folder of results; or the folder itself, if it is that of a finished run."""
    return [Path(run) for run in dict.fromkeys(row["place"] for row in _finished_rows(Path(place), note))]


def is_run(place: Path) -> bool:
    """Whether the folder is that of a run, finished or not."""
    return (place / SETTINGS).exists()


def unequal_evaluations(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for every evaluation that was not made of all runs of a study in the same way."""
    ways: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        for on, evaluation in row["evaluations"].items():
            ways.setdefault((row.get("recipe", ""), row.get("scale", ""), on), set()).add(digest(evaluation["options"]))
    return [
        f"{on} of {recipe} at {scale} scale was measured in {len(found)} ways (options or samples), which do not compare"
        for (recipe, scale, on), found in ways.items()
        if len(found) > 1
    ]


def _finished_rows(place: Path, note: Note) -> list[dict[str, Any]]:
    if is_run(place):
        # A run lies in RESULTS/recipe/scale/name.
        whole = place.resolve()
        root = whole.parents[2] if len(whole.parents) > 2 else whole
        rows = [row for row in read_rows(root / RESULTS, note) if row.get("folder") == str(whole.relative_to(root))]
        return [{**row, "place": str(place)} for row in rows]
    if (place / RESULTS).exists():
        rows = read_rows(place / RESULTS, note)
        return [{**row, "place": str(place / row["folder"])} for row in rows if isinstance(row.get("folder"), str)]
    if place.is_dir():
        started = any(place.glob(f"*/*/*/{SETTINGS}"))
        why = "no run in it is finished yet" if started else f"it has neither {SETTINGS} nor {RESULTS}"
        raise ValueError(f"{place} is neither the folder of a run nor one of results: {why}")
    raise ValueError(f"{place} is a file, not a folder" if place.exists() else f"there is no folder {place}")


def _evaluations(folder: Path, weights: str | None, note: Note) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    best = checkpoint_sum(folder / BEST)
    for row in _stored_rows(folder, note):
        # The weights of a finished run are in its row; those of its best epoch are known by the file they were in.
        now, then = (best, row.get("file")) if row.get("checkpoint") == "best" else (weights, row.get("weights"))
        if now is not None and now == then:
            found[evaluation_key(row["on"], row.get("variant", ""), row["checkpoint"])] = row
    return found


def _stored_rows(folder: Path, note: Note) -> list[dict[str, Any]]:
    """All rows of a run; a file that cannot be read is noted, and does not stand in the way of other runs."""
    try:
        return read_rows(folder / EVALUATIONS, note)
    except OSError as error:
        note(f"{folder / EVALUATIONS} cannot be read: {error.strerror}")
        return []
