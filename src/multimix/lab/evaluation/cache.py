"""Store evaluations in the folders of runs, and collect finished runs with their evaluations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..recipes.runs import BEST, RESULTS, SETTINGS, Which
from ..storage import append_row, checkpoint_sum, digest, read_rows

EVALUATIONS = "evaluations.jsonl"
PICTURES = "evaluation"  # folder of the pictures of evaluations
Note = Callable[[str], None]


@dataclass(frozen=True)
class Query:
    """An evaluation with everything that its numbers depend on.

    Args:
        on: Name of the measure.
        checkpoint: Which weights of the run it measures.
        weights: Checksum of the weights.
        options: All options that the numbers depend on.
        variant: The options that differ from their defaults, in words; empty if none differ.
            Tables take only evaluations without a variant.
        file: Checksum of the file of the checkpoint; None if there is no file.
    """

    on: str
    checkpoint: Which
    weights: str
    options: Mapping[str, Any]
    variant: str = ""
    file: str | None = None

    @property
    def folder(self) -> str:
        """The folder of its pictures, inside the folder of the run."""
        return picture_folder(asdict(self))


def picture_folder(row: Mapping[str, Any]) -> str:
    """Return the folder of an evaluation's pictures, inside the folder of the run.

    Args:
        row: Fields of the evaluation.
    """
    plain = f"{PICTURES}/{evaluation_key(row['on'], '', row['checkpoint'])}"
    return f"{plain}-{digest(dict(row['options']))[:8]}" if row.get("variant") else plain


def evaluation_key(on: str, variant: str, checkpoint: str) -> str:
    """Return the key of an evaluation: ``calibration``, ``calibration[bins = 15]``, ``error@best``.

    Args:
        on: Name of the measure.
        variant: Options that differ from their defaults, in words.
        checkpoint: Which weights it measures.
    """
    return on + (f"[{variant}]" if variant else "") + ("@best" if checkpoint == "best" else "")


def store_row(folder: Path, query: Query, *, numbers: Mapping[str, float | None], result: Mapping[str, Any]) -> None:
    """Append an evaluation to the rows of a run.

    Args:
        folder: Folder of the run.
        query: The evaluation.
        numbers: Numbers for tables.
        result: The complete result as JSON values.
    """
    append_row(folder / EVALUATIONS, {**asdict(query), "numbers": dict(numbers), "result": dict(result)})


def find_row(folder: Path, query: Query, note: Note = print) -> dict[str, Any] | None:
    """Return the newest row of an evaluation, or None.

    Args:
        folder: Folder of the run.
        query: The evaluation.
        note: Receives messages.
    """
    identity = (query.on, query.checkpoint, query.weights, digest(dict(query.options)))
    row: dict[str, Any]
    for row in reversed(_stored_rows(folder, note)):
        if (row.get("on"), row.get("checkpoint"), row.get("weights"), digest(row.get("options"))) == identity:
            return row
    return None


def collect_runs(folders: Iterable[str | Path], note: Note = print) -> list[dict[str, Any]]:
    """Return the rows of finished runs in the order of their training.

    Every row has two more fields: ``place``, the folder of the run, and ``evaluations``, the newest
    evaluation by key. Evaluations of weights that a run no longer has are omitted.

    Args:
        folders: Folders of results or of single runs.
        note: Receives messages.

    Raises:
        ValueError: If a folder does not exist or holds no runs.
    """
    # A run that is listed twice, or trained twice, counts once.
    rows = list({str(row["place"]): row for folder in folders for row in _finished_rows(Path(folder), note)}.values())
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


def finished_runs(folder: str | Path, note: Note = print) -> list[Path]:
    """Return the folders of finished runs.

    Args:
        folder: Folder of results or of a single run.
        note: Receives messages.

    Raises:
        ValueError: If the folder does not exist or holds no runs.
    """
    return [Path(run) for run in dict.fromkeys(row["place"] for row in _finished_rows(Path(folder), note))]


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, finished or not.

    Args:
        folder: The folder.
    """
    return (folder / SETTINGS).exists()


def unequal_evaluations(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for every evaluation whose options differ between the runs of a study.

    Args:
        rows: Rows of finished runs.
    """
    digests_by_key: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        for on, evaluation in row["evaluations"].items():
            digests_by_key.setdefault((row.get("recipe", ""), row.get("scale", ""), on), set()).add(digest(evaluation["options"]))
    return [
        f"{on} of {recipe} at {scale} scale was measured in {len(digests)} ways (options or samples), which do not compare"
        for (recipe, scale, on), digests in digests_by_key.items()
        if len(digests) > 1
    ]


def _finished_rows(folder: Path, note: Note) -> list[dict[str, Any]]:
    if is_run(folder):
        # The folder of a run is RESULTS/recipe/scale/name.
        run = folder.resolve()
        root = run.parents[2] if len(run.parents) > 2 else run
        rows = [row for row in read_rows(root / RESULTS, note) if row.get("folder") == str(run.relative_to(root))]
        return [{**row, "place": str(folder)} for row in rows]
    if (folder / RESULTS).exists():
        rows = read_rows(folder / RESULTS, note)
        return [{**row, "place": str(folder / row["folder"])} for row in rows if isinstance(row.get("folder"), str)]
    if folder.is_dir():
        started = any(folder.glob(f"*/*/*/{SETTINGS}"))
        reason = "no run in it is finished yet" if started else f"it has neither {SETTINGS} nor {RESULTS}"
        raise ValueError(f"{folder} must be the folder of a run or of results: {reason}")
    raise ValueError(f"{folder} must be a folder, it {'is a file' if folder.exists() else 'does not exist'}")


def _evaluations(folder: Path, weights: str | None, note: Note) -> dict[str, dict[str, Any]]:
    evaluations: dict[str, dict[str, Any]] = {}
    best = checkpoint_sum(folder / BEST)
    for row in _stored_rows(folder, note):
        # The row of a run has the checksum of its last weights; the best weights are identified by their file.
        current, measured = (best, row.get("file")) if row.get("checkpoint") == "best" else (weights, row.get("weights"))
        if current is not None and current == measured:
            evaluations[evaluation_key(row["on"], row.get("variant", ""), row["checkpoint"])] = row
    return evaluations


def _stored_rows(folder: Path, note: Note) -> list[dict[str, Any]]:
    """Return all rows of a run, or none with a note if the file cannot be read."""
    try:
        return read_rows(folder / EVALUATIONS, note)
    except OSError as error:
        note(f"{folder / EVALUATIONS} cannot be read: {error.strerror}")
        return []
