"""Compare methods on a folder: measure costs, divide the budget, train, evaluate, and recommend."""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ....methods import Method, NoMix
from ...data.own_folder import OwnSplits
from ...evaluation.cache import collect_runs
from ...evaluation.runner import evaluate_sources
from ...report.answer import Answer, answer, group_name
from ...report.comparison import at_equal_budgets
from ...report.frame import RunGroup, Study
from ...report.page import Block, Notes, Section
from ...report.pages.compare import compare_page
from ...report.tables import Table, short
from ...storage import digest, make_folder, write_atomically, write_files
from ...sweep.costs import update_seconds
from ...sweep.engines import Engine, InProcess, Local
from ...sweep.plan import Arm, Planned, Stored, arm_runs, plan_sweep, store_plan
from ...sweep.workers import train_runs
from ...terminal import counted, duration
from ...terminal import note as say
from ...training.run import splits_of
from .budget import OVERHEAD_SECONDS, START_SECONDS, Division, Work, divide, parse_seconds
from .setup import SCALE, FolderSetup

METHODS = ("mixup", "cutmix")
OUT = Path("multimix-compare")
FILE, PAGE = "compare.json", "compare.html"
MIN_PROCESS_SECONDS = 60.0  # shorter runs are trained in this process
MAX_OVERRUN = 1.1  # times the budget; a seed that would end later is not trained
BASE: Arm = (NoMix.name, 1)
MAX_LISTED_CLASSES = 12
Note = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """Options of a comparison.

    Args:
        model: Name or import path of a network; None for the default.
        methods: Methods to compare with no mixing.
        ks: Numbers of interpolations.
        seeds: Trainings per method and K.
        budget: Seconds.
        jobs: Runs at a time.
        changes: Settings to change, by dotted name.

    Raises:
        ValueError: If a number is not positive, or no method mixes.
    """

    model: str | None
    methods: tuple[str, ...]
    ks: tuple[int, ...]
    seeds: int
    budget: float
    jobs: int
    changes: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.jobs < 1:
            raise ValueError(f"seeds and jobs must be at least 1, got {self.seeds} and {self.jobs}")
        if not self.ks or min(self.ks) < 1:
            raise ValueError(f"ks must be positive integers, got {', '.join(map(str, self.ks)) or 'none'}")
        if not set(self.methods) - {NoMix.name}:
            raise ValueError(f"methods must name a method besides none, got {', '.join(self.methods) or 'no names'}")


class Plan(NamedTuple):
    """A divided budget with its measured costs.

    Args:
        division: The division of the budget.
        updates: Seconds of one update by arm.
        broken: Reasons by arm that cannot be trained.
    """

    division: Division
    updates: dict[Arm, float]
    broken: dict[Arm, str]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        updates = [[*arm, seconds] for arm, seconds in self.updates.items()]
        return {**asdict(self.division), "updates": updates, "broken": [[*arm, reason] for arm, reason in self.broken.items()]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Plan":
        """Return the plan of stored JSON values.

        Args:
            content: The result of :meth:`to_json`.
        """
        division = Division(content["epochs"], content["per_class"], content["seconds"])
        updates, broken = ({(arm, k): value for arm, k, value in content[name]} for name in ("updates", "broken"))
        return cls(division, updates, broken)


class ComparisonResult(NamedTuple):
    """Result of a comparison.

    Args:
        study: The finished runs.
        answer: The recommendation.
        splits: The data.
        setup: The settings that fit the folder.
        plan: How the budget was divided.
        planned: The planned runs.
    """

    study: Study
    answer: Answer
    splits: OwnSplits
    setup: FolderSetup
    plan: Plan
    planned: Sequence[Planned]


def compare_folder(
    folder: str | Path,
    *,
    model: str | None = None,
    methods: Sequence[str] = METHODS,
    ks: Sequence[int] = (1, 5),
    seeds: int = 3,
    budget: str = "30m",
    out: str | Path | None = None,
    jobs: int = 1,
    changes: Mapping[str, str] | None = None,
    note: Note = say,
) -> tuple[Path, ComparisonResult]:
    """Train no mixing and ``methods`` on images or sounds within a time budget, and write a page.

    Args:
        folder: Images or WAV files: train/ and test/, or one folder per class.
        model: Name or import path of a network; None chooses one that fits the machine.
        methods: Methods to compare with no mixing.
        ks: Numbers of interpolations.
        seeds: Trainings per method and K.
        budget: A time such as ``30m``.
        out: Folder of results; None for multimix-compare/NAME.
        jobs: Runs at a time.
        changes: Settings to change, by dotted name.
        note: Receives messages.

    Returns:
        The page and its content.

    Raises:
        ValueError: If an argument or the folder is invalid, the budget is too small, or all runs
            fail.
    """
    start = time.monotonic()
    request = Request(model, tuple(methods), tuple(sorted(set(ks))), seeds, parse_seconds(budget), jobs, dict(changes or {}))
    folder = Path(folder)
    setup = FolderSetup(folder, model, request.changes)
    out = OUT / (folder.resolve().name or "folder") if out is None else Path(out)
    _claim(out, setup)
    note(_folder_text(setup))
    plan = _plan(setup, request, out, start, note)
    planned = _planned_runs(setup, request, plan)
    splits = splits_of(planned[0].run.settings.data, folder, out / "cache")
    assert isinstance(splits, OwnSplits)
    skipped = list(dict.fromkeys(text for part in splits.parts.values() for text in part.skipped))
    for text in (*splits.notes, *skipped):
        note(text)
    notes = _train(planned, setup, request, plan, out, start, note)
    run_folders = [str(out / item.run.folder) for item in planned if (out / item.run.folder).exists()]
    _, failed = evaluate_sources(run_folders, ["error", "calibration"], data=folder, out=out, trust=[setup.network])
    rows = collect_runs([out], note)
    recipe = setup.recipe(plan.division.epochs, plan.division.per_class)
    study = at_equal_budgets(recipe, SCALE, rows, [item.entry for item in planned])["steps"]
    if not study.trained:
        raise ValueError(f"all runs failed: {notes[0] if notes else 'there are no results'}")
    recommendation = answer(study)
    result = ComparisonResult(study, recommendation, splits, setup, plan, planned)
    html, files = compare_page(
        study,
        recommendation,
        name=folder.resolve().name,
        lead=_lead(result),
        notes=[*notes, *failed],
        method=_method(planned, recommendation.advice.arm, recommendation.advice.k),
        budget=_budget_blocks(result, request, time.monotonic() - start),
        data=_folder_blocks(result, skipped),
        command=_command(folder, request, out),
    )
    (page,) = write_files(out, {PAGE: html.encode()})
    write_files(out / "figures", files)
    return page, result


def _claim(out: Path, setup: FolderSetup) -> None:
    """Reserve ``out`` for this folder; raise ValueError if it holds a comparison of other files."""
    make_folder(out)
    stored = _read(out)
    if stored and stored.get("files") != setup.fingerprint:
        raise ValueError(
            f"out {str(out)!r} holds a comparison of other files, of {stored.get('folder')}: the folder has changed or is a "
            "different one; choose another --out"
        )
    if not stored:
        _write(out, {"folder": str(setup.folder), "files": setup.fingerprint, "plans": {}})


def _read(out: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((out / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{out / FILE} is damaged ({error}); remove it or choose another --out") from None
    return content


def _write(out: Path, content: Mapping[str, Any]) -> None:
    write_atomically(out / FILE, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def _folder_text(setup: FolderSetup) -> str:
    train, test = setup.sizes(None)
    listed = setup.listed
    view = f"squares of {setup.side} pixels" if setup.kind == "pictures" else "spectrograms of one second"
    return (
        f"{listed.root}: {len(listed.classes)} classes, {train:,} {setup.kind} for training, {test:,} for testing; {view}, "
        f"batches of {setup.batch}, network {setup.network}"
    )


def _plan(setup: FolderSetup, request: Request, out: Path, start: float, note: Note) -> Plan:
    """Return the stored plan of the same comparison, or a new one from measured times."""
    stored = _read(out)
    key = digest(asdict(request))[:10]
    if key in stored["plans"]:
        plan = Plan.from_json(stored["plans"][key])
        note("resuming with the stored plan")
    else:
        plan = _measured_plan(setup, request, out, start, note)
        _write(out, {**stored, "plans": {**stored["plans"], key: plan.to_json()}})
    for arm, reason in plan.broken.items():
        note(f"skipping {_arm_label(arm)}, which cannot be trained: {reason}")
    note(_plan_text(setup, request, plan))
    return plan


def _measured_plan(setup: FolderSetup, request: Request, out: Path, start: float, note: Note) -> Plan:
    limits = range(2, setup.largest_class)
    per_class = next((limit for limit in limits if setup.sizes(limit)[0] >= 4 * setup.batch), None)
    methods = (BASE[0], *request.methods)
    recipe = setup.recipe(2, per_class)
    runs = arm_runs(recipe, scale=SCALE, methods=methods, ks=request.ks, seeds=(0,), changes=setup.changes)
    by_arm = {(run.arm, run.k): run for run in runs}
    note(f"measuring the cost of an update: {', '.join(map(_arm_label, by_arm))}")
    reading_start = time.monotonic()
    splits_of(runs[0].settings.data, setup.folder, out / "cache", runs[0].settings.running.workers)
    reading = (time.monotonic() - reading_start) / max(1, sum(setup.sizes(per_class)))
    clock = None if torch.accelerator.is_available() else time.perf_counter
    updates = update_seconds(by_arm, setup.folder, out / "cache", clock)
    if BASE in updates.broken:
        raise ValueError(f"the network {setup.network} cannot be trained on these data: {updates.broken[BASE]}")
    if len(updates.numbers) == 1:
        raise ValueError(f"none of the methods can be trained: {next(iter(updates.broken.values()))}")
    overhead = START_SECONDS if request.jobs > 1 else OVERHEAD_SECONDS
    sizes = setup.sizes, setup.largest_class
    work = Work(updates.numbers, BASE, request.seeds, setup.batch, reading, *sizes, request.jobs, overhead)
    return Plan(divide(request.budget, time.monotonic() - start, work), updates.numbers, updates.broken)


def _plan_text(setup: FolderSetup, request: Request, plan: Plan) -> str:
    division = plan.division
    train, test = setup.sizes(division.per_class)
    fewer = f" with at most {division.per_class} training samples per class" if division.per_class is not None else ""
    arms, runs = counted(len(plan.updates), "way"), counted(len(plan.updates) * request.seeds, "run")
    return (
        f"{arms} of training × {counted(request.seeds, 'seed')} = {runs} of {division.epochs} epochs{fewer} ({train:,} training "
        f"and {test:,} test samples), with the same number of updates: about {duration(division.seconds)} of the budget of "
        f"{duration(request.budget)}"
    )


def _planned_runs(setup: FolderSetup, request: Request, plan: Plan) -> list[Planned]:
    planned = plan_sweep(
        setup.recipe(plan.division.epochs, plan.division.per_class),
        scale=SCALE,
        methods=(BASE[0], *request.methods),
        ks=request.ks,
        seeds=tuple(range(request.seeds)),
        changes=setup.changes,
    )
    return [item for item in planned if (item.run.arm, item.run.k) in plan.updates]


def _train(
    planned: Sequence[Planned], setup: FolderSetup, request: Request, plan: Plan, out: Path, start: float, note: Note
) -> list[str]:
    """Train seed by seed, so that all runs within the budget are a fair comparison.

    Returns:
        Sentences on runs that failed or were not started.
    """
    methods, seeds = (BASE[0], *request.methods), tuple(range(request.seeds))
    entries = tuple(item.entry for item in planned)
    store_plan(out, Stored("folder", SCALE, methods, request.ks, seeds, ("steps",), setup.changes, entries))
    run_seconds = plan.division.seconds / max(1, len(planned))
    engine: Engine = Local(request.jobs) if request.jobs > 1 or run_seconds > MIN_PROCESS_SECONDS else InProcess()
    notes: list[str] = []
    slowest = 0.0
    for seed in seeds:
        seed_start = time.monotonic()
        if seed > 0 and seed_start - start + slowest > MAX_OVERRUN * request.budget:
            finished = counted(seed, "seed")
            notes.append(f"the budget was spent after {finished} of {request.seeds}: runs took longer than planned")
            note(notes[-1])
            break
        runs = [item.run for item in planned if item.run.seed == seed]
        failures = train_runs(runs, data=setup.folder, out=out, engine=engine, note=note)
        notes += [f"{_arm_label((run.arm, run.k))}, seed {seed}, failed: {reason}" for run, reason, *_ in failures]
        slowest = max(slowest, time.monotonic() - seed_start)
        remaining = (request.seeds - seed - 1) * slowest
        if remaining >= 1:
            note(f"seed {seed + 1} of {request.seeds} finished, about {duration(remaining)} left")
    return notes


def _arm_label(arm: Arm) -> str:
    return group_name(RunGroup(*arm))


def _method(planned: Sequence[Planned], arm: str, k: int) -> Method | None:
    return next((item.run.settings.method for item in planned if (item.run.arm, item.run.k) == (arm, k)), None)


def _lead(result: ComparisonResult) -> str:
    train, test = (len(result.splits[part]) for part in ("train", "test"))
    runs = counted(len(result.study.rows), "run")
    return (
        f"{len(result.splits['train'].classes)} classes, {train:,} {result.setup.kind} for training, {test:,} for testing; "
        f"{runs} of {result.plan.division.epochs} epochs."
    )


def _budget_blocks(result: ComparisonResult, request: Request, elapsed: float) -> list[Block]:
    groups = {(group.arm, group.k): group for group in result.study.trained}
    rows = []
    for arm, seconds in result.plan.updates.items():
        group = groups.get(arm)
        updates, spent = (None, None) if group is None else (group.mean("steps"), group.mean("seconds"))
        runs = 0 if group is None else len(group.seeds)
        rows.append([_arm_label(arm), f"{1000 * seconds:.1f}", short(updates), runs, spent and duration(spent)])
    text = (
        f"{_plan_text(result.setup, request, result.plan)}. This time the command took {duration(elapsed)}. All runs have the "
        "same number of updates, so K > 1 trains on K times as many mixtures, which takes longer."
    )
    heads = ["training", "ms per update (measured before)", "updates of a run", "runs", "training of a run"]
    skipped = [f"{_arm_label(arm)} was skipped: {reason}" for arm, reason in result.plan.broken.items()]
    return [text, Table.of_rows("budget", heads, rows, skipped)]


def _folder_blocks(result: ComparisonResult, skipped: Sequence[str]) -> list[Block]:
    setup, splits = result.setup, result.splits
    if setup.kind == "pictures":
        reason = "as requested" if setup.given_side else "chosen from the images' short sides and the device"
        view = (
            f"Every image is cropped to its central square and resized to {setup.side} × {setup.side} pixels, {reason}. Training "
            "images are flipped and shifted at random."
        )
    else:
        view = "Every sound is converted to the spectrogram of its central second at 16 kHz."
    division = (
        "It has no test folder, so a fifth of every class is the test set, the same for all runs."
        if splits.divided
        else "Its test folder is the test set."
    )
    counts = {part: torch.bincount(split.labels, minlength=len(split.classes)).tolist() for part, split in splits.parts.items()}
    classes = splits["train"].classes
    rows = [[name, *(f"{class_counts[label]:,}" for class_counts in counts.values())] for label, name in enumerate(classes)]
    table = Table.of_rows(
        "classes", ["class", *counts], [*rows, ["all", *(f"{sum(class_counts):,}" for class_counts in counts.values())]]
    )
    files = f"{counted(len(skipped), 'unreadable file')} {'was' if len(skipped) == 1 else 'were'} skipped"
    long = len(classes) > MAX_LISTED_CLASSES
    return [
        f"{setup.listed.root}: {counted(len(classes), 'class', 'es')}. {division} {view} The network is {setup.network}.",
        Notes(splits.notes),
        Section(files, [Notes(skipped)]),
        Section(f"Samples of all {len(classes)} classes", [table]) if long else table,
    ]


def _command(folder: Path, request: Request, out: Path) -> str:
    options = ["--model", request.model] if request.model else []
    options += ["--methods", *request.methods, "--ks", *map(str, request.ks), "--seeds", str(request.seeds)]
    options += ["--budget", f"{request.budget:g}s", *(["--jobs", str(request.jobs)] if request.jobs > 1 else [])]
    options += ["--out", str(out)]
    options += ["--set", *(f"{field}={value}" for field, value in request.changes.items())] if request.changes else []
    return shlex.join(["multimix", "compare", str(folder), *options])
