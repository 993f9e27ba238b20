"""Stored rows as pandas data frames, and runs grouped by method, K, and settings.

Schema of the run frame (:func:`run_frame`), one row per finished run:

==================================  ================================================================
column                              meaning
==================================  ================================================================
recipe, scale, arm, k, seed         what was trained
digest, processes                   digest of the settings, number of processes
epochs, steps, samples, compute     what was spent: epochs, updates, rows through the network, and
                                    seconds (CPU seconds if no accelerator was used)
images, seconds                     images loaded, wall seconds of training
machine, on_cpu                     what times depend on
last, median, best, selected        errors in per cent (:class:`multimix.lab.training.log.Outcome`)
squared_grad_norm                   mean over the last epoch
seconds_per_epoch                   median over epochs
calibration.ece, …                  numbers of evaluations: measure, dot, number
row                                 the stored row itself, with ``place``, the folder of the run
==================================  ================================================================

Schema of the epoch frame (:func:`epoch_frame`), one row per epoch of every run: ``arm``, ``k``,
``seed``, ``digest``, the fields of :class:`multimix.lab.training.log.Epoch`, and ``steps``,
``samples`` and ``compute``, spent since the start. Missing values are NaN.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import pandas as pd

from ..recipes import RECIPES
from ..recipes.base import SCALES, Recipe, Scale, arm_names, arm_settings, counts_k
from ..recipes.serialise import describe, rebuild
from ..recipes.settings import MACHINE_FIELDS, Settings
from ..training.log import Epoch, Outcome
from .stats import Summary, summary

BASELINE = "none"
ECE = "calibration.ece"
ERROR_LABELS = {
    "last": "error of the last epoch",
    "median": "median error of the last epochs",
    "best": "error of the best epoch",
    "selected": "error of the selected epoch",
}
CHANGED = "†"  # marks groups that were not trained with the recipe's settings
SCALE_LABELS: Mapping[Scale, str] = {
    "paper": "paper scale",
    "small": "small scale: a reduced study, not the paper's setting",
    "smoke": "smoke scale: shows that everything runs, not the paper's setting",
}
REQUIRED_FIELDS = (
    *("arm", "k", "seed", "digest", "settings", "device", "processes", "skipped", "environment"),
    *("outcome", "epochs"),
)

Row = Mapping[str, Any]
Rows = Sequence[Row]


def run_frame(rows: Rows) -> pd.DataFrame:
    """Return the run frame, with one row per stored row.

    Args:
        rows: Stored rows of finished runs (:func:`multimix.lab.evaluation.cache.collect_runs`).

    Raises:
        ValueError: If a row has other fields than this version writes.
    """
    return pd.DataFrame([_run_record(row) for row in rows])


def epoch_frame(rows: Rows) -> pd.DataFrame:
    """Return the epoch frame, with one row per epoch of every stored row.

    Args:
        rows: Stored rows of finished runs.
    """
    records = [
        {**{name: row[name] for name in ("arm", "k", "seed", "digest")}, **epoch, **spent}
        for row in rows
        for epoch, spent in zip(row["epochs"], _spent(row), strict=True)
    ]
    names = ["arm", "k", "seed", "digest", *(epoch_field.name for epoch_field in fields(Epoch))]
    frame = pd.DataFrame(records, columns=[*names, "steps", "samples", "compute"])
    measured = [epoch_field.name for epoch_field in fields(Epoch)]
    return frame.astype(dict.fromkeys(measured, float))


def _run_record(row: Row) -> dict[str, Any]:
    missing = [name for name in REQUIRED_FIELDS if name not in row]
    try:
        if missing:
            raise KeyError(missing[0])
        epochs = [Epoch(**epoch) for epoch in row["epochs"]]
        outcome = asdict(Outcome(**row["outcome"]))
        processes, threads = row["processes"], row["environment"]["threads"]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"a row of the results of {row.get('recipe')} has other fields than this version writes: {error}"
        ) from error
    on_cpu = _on_cpu(row)
    record = {name: row.get(name) for name in ("recipe", "scale", "arm", "k", "seed", "digest")}
    record |= {
        "processes": processes,
        "machine": f"{row['device']}, {processes} process{'' if processes == 1 else 'es'}, threads: {threads}",
        "on_cpu": on_cpu,
        "epochs": len(epochs),
        **list(_spent(row))[-1],
        "images": sum(epoch.images for epoch in epochs),
        "seconds": sum(epoch.seconds for epoch in epochs),
        "row": row,
    }
    for name, evaluation in row.get("evaluations", {}).items():
        record |= {f"{name}.{key}": value for key, value in evaluation["numbers"].items()}
    return record | outcome


def _spent(row: Row) -> Iterator[dict[str, float]]:
    """Yield updates, rows, and seconds since the start after every epoch."""
    samples = compute = 0.0
    for epoch in row["epochs"]:
        samples += epoch["rows"]
        compute += epoch["cpu_seconds" if _on_cpu(row) else "seconds"]
        yield {"steps": epoch["updates"], "samples": samples, "compute": compute}


def _on_cpu(row: Row) -> bool:
    return str(row["device"]).startswith("cpu")


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs of one method and K with the same settings; empty before the first training.

    Args:
        arm: The method, or a strategy such as ``large_batch``.
        k: Interpolations per pair, or the factor of a strategy; 0 for a network not trained here.
        digest: Digest of the settings.
        processes: Processes of each run. Pairs and batch statistics are per process, so runs with
            different numbers of processes are in different groups.
        runs: Rows of the run frame, indexed by seed in ascending order.
        epochs: Rows of the epoch frame.
        differs: Settings that differ from those of most runs with this method and K, in words.
        changed: Settings that differ from the recipe's, in words.
    """

    arm: str
    k: int
    digest: str = ""
    processes: int = 1
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    epochs: pd.DataFrame = field(default_factory=pd.DataFrame)
    differs: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The method with K, and the number of processes unless it is 1."""
        name = f"{self.arm} K = {self.k}" if self.k and (counts_k(self.arm) or self.k != 1) else self.arm
        return name if self.processes == 1 else f"{name} ({self.processes} processes)"

    @property
    def key(self) -> tuple[str, int, str]:
        """Method, K, and digest."""
        return self.arm, self.k, self.digest

    @property
    def marked(self) -> bool:
        """Whether a note must say that the settings are not the recipe's."""
        return bool(self.changed) and self.changed != self.differs

    @property
    def comparable(self) -> tuple[str, ...]:
        """A key that is equal for groups that differ only by method and K."""
        changed = (text for text in self.changed if not text.startswith(("method ", "method.")))
        return (*changed, f"processes = {self.processes}")

    @property
    def seeds(self) -> list[int]:
        """Seeds of the finished runs."""
        return [int(seed) for seed in self.runs.index]

    @property
    def rows(self) -> list[Row]:
        """The stored rows."""
        return list(self.runs["row"]) if len(self.runs) else []

    def values(self, name: str) -> dict[int, float]:
        """Return a column of the run frame by seed, without missing values.

        Args:
            name: Column of the run frame.
        """
        if name not in self.runs:
            return {}
        column = self.runs[name].dropna()
        return {int(seed): float(value) for seed, value in column.items()}

    def summary(self, name: str) -> Summary | None:
        """Return mean and interval of a column over seeds, or None without values.

        Args:
            name: Column of the run frame.
        """
        values = self.values(name)
        return summary(list(values.values())) if values else None

    def mean(self, name: str) -> float | None:
        """Return the mean of a column over seeds, or None without values.

        Args:
            name: Column of the run frame.
        """
        mean = self.summary(name)
        return None if mean is None else mean.mean

    def evaluated(self, name: str) -> list[Row]:
        """Return the stored evaluations with the key ``name``, one for each run that has it.

        Args:
            name: Key of the evaluation, such as ``error@best``.
        """
        evaluations = (row.get("evaluations", {}).get(name) for row in self.rows)
        return [evaluation for evaluation in evaluations if evaluation is not None]


class Study(NamedTuple):
    """The runs of a recipe at a scale.

    Args:
        recipe: The recipe.
        scale: The scale.
        groups: Groups in the order of the recipe, then others.
        notes: Remarks on settings, machines, and versions.
    """

    recipe: Recipe
    scale: Scale
    groups: tuple[RunGroup, ...]
    notes: tuple[str, ...]

    @property
    def trained(self) -> list[RunGroup]:
        """Groups with finished runs."""
        return [group for group in self.groups if len(group.runs)]

    @property
    def rows(self) -> list[Row]:
        """The stored rows of all groups."""
        return [row for group in self.groups for row in group.rows]

    @property
    def metric(self) -> str:
        """The column that the recipe reports."""
        return self.recipe.reported(self.scale)

    @property
    def error(self) -> str:
        """The compared error: the recipe's metric if it is an error, otherwise ``last``."""
        return self.metric if self.metric in ERROR_LABELS else "last"

    @property
    def timed(self) -> str:
        """Unit of ``compute``."""
        return "CPU s" if all(group.runs["on_cpu"].all() for group in self.trained) else "s"

    def marks(self) -> dict[tuple[str, ...], str]:
        """Return a mark such as ``[1]`` for every distinct set of changed settings."""
        sets = dict.fromkeys(group.differs for group in self.groups if group.differs)
        return {differs: f"[{number}]" for number, differs in enumerate(sets, start=1)}

    def label(self, group: RunGroup) -> str:
        """Return the group's label with its mark.

        Args:
            group: A group of this study.
        """
        return f"{group.label} {self.marks()[group.differs]}" if group.differs else group.label

    def baseline(self) -> RunGroup | None:
        """Return the trained group without mixing."""
        return next((group for group in self.trained if group.arm == BASELINE), None)


def studies(rows: Rows, recipes: Mapping[str, Recipe] = RECIPES) -> list[Study]:
    """Return one study per recipe and scale that has runs, in the order of the recipes.

    Args:
        rows: Stored rows of finished runs.
        recipes: Known recipes by name.

    Raises:
        ValueError: If a row belongs to an unknown recipe.
    """
    names = {row.get("recipe") for row in rows}
    for name in sorted(map(str, names - set(recipes))):
        raise ValueError(f"recipe {name!r} of these runs is unknown; known recipes are {', '.join(recipes)}")
    candidates = [study(recipes[name], scale, rows) for name in recipes if name in names for scale in SCALES]
    return [candidate for candidate in candidates if candidate.trained]


def study(recipe: Recipe, scale: Scale, rows: Rows) -> Study:
    """Group the runs of a recipe at a scale; of several rows for one run, the last counts.

    Args:
        recipe: The recipe.
        scale: The scale.
        rows: Stored rows; rows of other recipes and scales are ignored.

    Raises:
        ValueError: If ``recipe.metric`` is not a field of :class:`Outcome`.
    """
    if recipe.metric not in {outcome_field.name for outcome_field in fields(Outcome)}:
        raise ValueError(f"metric must be a field of Outcome, got {recipe.metric!r}")
    rows = [row for row in rows if (row.get("recipe"), row.get("scale")) == (recipe.name, scale)]
    runs, epochs = run_frame(rows), epoch_frame(rows)
    keys = [(row.arm, row.k) for row in recipe.rows] + [(row["arm"], row["k"]) for row in rows]
    groups: list[RunGroup] = []
    notes = []
    for arm, k in dict.fromkeys(keys):
        group_runs = runs[(runs.arm == arm) & (runs.k == k)] if len(runs) else runs
        if not len(group_runs):
            groups.append(RunGroup(arm, k))
            continue
        groups += _groups(recipe, scale, arm, k, group_runs, epochs)
        for (_, seed), count in group_runs.groupby(["digest", "seed"], sort=False).size().items():
            if count > 1:
                label = RunGroup(arm, k).label
                notes.append(f"{label}, seed {seed}, has {count} rows: the last one counts")
    return Study(recipe, scale, tuple(groups), (*notes, *_changes(groups), *_circumstances(groups)))


def join_settings(settings: Sequence[str], limit: int = 4) -> str:
    """Join at most ``limit`` settings to one text and count the remainder.

    Args:
        settings: Settings in words.
        limit: Settings to name.
    """
    remainder = [f"and {len(settings) - limit} more"] if len(settings) > limit else []
    return "; ".join([*settings[:limit], *remainder])


def settings_differences(first: Settings, second: Settings) -> tuple[str, ...]:
    """Return the dotted names of settings that differ, with both values.

    Args:
        first: Settings.
        second: Settings to compare with.
    """
    return _differences(_plain(describe(first)), _plain(describe(second)))


def _groups(recipe: Recipe, scale: Scale, arm: str, k: int, runs: pd.DataFrame, epochs: pd.DataFrame) -> Iterator[RunGroup]:
    """Yield one group per digest, the group with the most seeds first."""
    expected = _recipe_settings(recipe, scale, arm, k)
    by_digest = {str(digest): frame for digest, frame in runs.groupby("digest", sort=False)}
    newest = {digest: frame.iloc[-1] for digest, frame in by_digest.items()}
    settings = {digest: _with_defaults(last["row"]["settings"]) for digest, last in newest.items()}
    changed = {digest: _differences(stored, expected) for digest, stored in settings.items()}
    seeds = {digest: frame.seed.nunique() for digest, frame in by_digest.items()}
    # With equal numbers of seeds, the recipe's settings come first.
    order = sorted(by_digest, key=lambda digest: (-seeds[digest], len(changed[digest]) > 0))
    for digest in order:
        differs = _differences(settings[digest], settings[order[0]])
        processes = int(newest[digest]["processes"])
        if digest != order[0] and not differs and processes == newest[order[0]]["processes"]:
            differs = (f"digest = {digest}, not {order[0]}",)  # equal numbers in different notation
        frame = by_digest[digest].drop_duplicates("seed", keep="last").set_index("seed").sort_index()
        group_epochs = epochs[(epochs.arm == arm) & (epochs.k == k) & (epochs.digest == digest)]
        group_epochs = group_epochs.drop_duplicates(["seed", "number"], keep="last")
        yield RunGroup(arm, k, digest, processes, frame, group_epochs, differs, changed[digest])


def _recipe_settings(recipe: Recipe, scale: Scale, arm: str, k: int) -> dict[str, Any]:
    """Return the recipe's settings with the method, or without it if this version cannot build it."""
    base = recipe.settings(scale)
    with suppress(ValueError, TypeError):
        if arm in arm_names():
            return _plain(describe(arm_settings(recipe, base, arm, k)))
    return {name: value for name, value in _plain(describe(base)).items() if not _of_method(name)}


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add defaults of fields that are newer than the row, if this version can read it."""
    with suppress(ValueError, TypeError):
        return _plain(describe(rebuild(Settings, settings)))
    return _plain(settings)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON values, without those of the machine."""
    plain = {key: value for key, value in settings.items() if not key.startswith(MACHINE_FIELDS)}
    return json.loads(json.dumps(plain))  # type: ignore[no-any-return]


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    names = [name for name in {**first, **second} if first.get(name, "unset") != second.get(name, "unset")]
    if not any(map(_of_method, second)):
        names = [name for name in names if not _of_method(name)]
    return tuple(f"{name} = {_text(first.get(name, 'unset'))}, not {_text(second.get(name, 'unset'))}" for name in names)


def _of_method(name: str) -> bool:
    return name.partition(".")[0] == "method"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else str(value)


def _changes(groups: Sequence[RunGroup]) -> Iterator[str]:
    labels_by_change: dict[tuple[str, ...], list[str]] = {}
    for group in groups:
        if group.marked:
            labels_by_change.setdefault(group.changed, []).append(group.label)
    for changed, group_labels in labels_by_change.items():
        names = ", ".join(dict.fromkeys(group_labels))
        yield f"{CHANGED} not with the recipe's settings: {names} ({join_settings(changed)})"


def _circumstances(groups: Sequence[RunGroup]) -> Iterator[str]:
    """Yield notes on skipped samples, machines, and versions."""
    skipped: Counter[tuple[int, str]] = Counter()
    versions: dict[str, None] = {}
    machines: dict[str, None] = {}
    for group in groups:
        machines |= dict.fromkeys(group.runs["machine"] if len(group.runs) else ())
        for row in group.rows:
            skipped[row["skipped"], group.label] += 1
            environment = row["environment"]
            versions[f"{environment['commit']} with torch {environment['torch']}"] = None
    for count in sorted({count for count, _ in skipped} - {0}):
        names = ", ".join(label for number, label in skipped if number == count)
        yield f"bad samples left out of the data: {count} ({names})"
    if len(machines) > 1:
        yield f"seconds do not compare, they are from different machines: {'; '.join(machines)}"
    if len(versions) > 1:
        yield f"the runs are of different versions: {'; '.join(versions)}"
