"""The commands that compare runs: one function each. tyro parses by its signature, then it calls what does the work."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from .training_commands import DATA_VARIABLE, change, data_folder

with suppress(ModuleNotFoundError):  # cli.main() says in one sentence what is missing
    import tyro

RUNS = Path("multimix-runs")


def table(
    number: Annotated[
        str | None,
        tyro.conf.arg(metavar="[N|NAME]", help="Which table; without one all are listed.", help_behavior_hint=""),
    ] = None,
    /,
    *,
    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.arg(
            metavar="FOLDER …",
            help="Folders of results or of runs that fill our columns.",
            help_behavior_hint=f"(default: {RUNS}, if it is there)",
        ),
    ] = (),
    scale: Annotated[
        Literal["paper", "small", "smoke"] | None,
        tyro.conf.arg(help="Which runs.", help_behavior_hint="(default: the largest scale that was run)"),
    ] = None,
    demo: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where multimix demo wrote, for the spiral.")] = Path(
        "multimix-demo"
    ),
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="FOLDER", help="Also write Markdown, CSV and HTML.", help_behavior_hint="(default: print only)"),
    ] = None,
) -> None:
    """A table or figure of the paper beside ours: means with n and interval, the paper's paired t-test, what was not run.

    Nothing is trained or measured. Where the paper's text and its tables disagree, a note says so.

    Try it:
      multimix table
      multimix table 2
      multimix table calibration --runs multimix-runs --scale small --out tables
    """
    from .tables.command import run

    # What was named must be there; the usual folder need not, since the paper's numbers can be shown without ours.
    run(number, places=runs or ([RUNS] if (RUNS / "results.jsonl").exists() else []), scale=scale, out=out, demo=demo)


def report(
    runs: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUNS …", help="Folders of results, or of single runs.")],
    /,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where pages and figures go.")] = Path("multimix-report"),
    data: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FOLDER",
            help="Where the data sets are, for pictures of mixed samples.",
            help_behavior_hint=f"(default: ${DATA_VARIABLE}, or data)",
        ),
    ] = None,
    samples: Annotated[bool, tyro.conf.arg(help="Draw the samples that the first update of each run has mixed.")] = True,
) -> None:
    """One self-contained page per study: what shows, tables, curves, calibration, boxes, mixed samples, settings.

    A study is a recipe at a scale. The page is one file that works offline, on a phone and in the dark; its figures are also
    written as PNG and SVG. multimix evaluate adds what it found.

    Try it:
      multimix report multimix-runs
      multimix report multimix-runs --out report --no-samples
    """
    from .reporting.command import reports
    from .terminal import bar, tell

    found = reports(runs, out=out, data=data_folder(data) if samples else None, progress=bar("Reporting"))
    for written in found:
        tell(written.page, f"Its {len(written.figures)} figures are in {written.page.with_suffix('')}.")


def sweep(
    recipe: Annotated[str, tyro.conf.arg(metavar="RECIPE", help="Which table or figure; multimix list recipes names them.")],
    /,
    *,
    methods: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME …", help="What is compared; multimix list methods names all.")
    ] = ("none", "mixup", "cutmix", "puzzlemix"),
    ks: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K …", help="With how many interpolations each.")] = (1, 5),
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="SEED …", help="One training for each.")] = (0, 1, 2),
    scale: Annotated[
        Literal["paper", "small", "smoke"],
        tyro.conf.arg(help="The paper's setting, a reduced study for a CPU (minutes), or a few seconds to see that it runs."),
    ] = "paper",
    equal: Annotated[
        tuple[Literal["steps", "samples", "compute"], ...],
        tyro.conf.arg(
            metavar="BUDGET …", help="What all get the same of: steps (the recipe's schedule), samples, compute; or several."
        ),
    ] = ("steps",),
    jobs: Annotated[int, tyro.conf.arg(metavar="N", help="Runs at a time, each in a process of its own.")] = 1,
    data: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FOLDER", help="Where the data sets are.", help_behavior_hint=f"(default: ${DATA_VARIABLE}, or data)"
        ),
    ] = None,
    out: Annotated[
        Path, tyro.conf.arg(metavar="FOLDER", help="Where runs and results go; what is finished there is not done again.")
    ] = RUNS,
    retry: Annotated[int, tyro.conf.arg(metavar="N", help="How often a run that failed is tried again at once.")] = 0,
    rebuild: Annotated[bool, tyro.conf.arg(help="Make tables and figures again from the results, and train nothing.")] = False,
    set_: Annotated[
        tuple[str, ...],
        tyro.conf.arg(name="set", metavar="FIELD=VALUE …", help="Fields to change; --FIELD VALUE does the same."),
    ] = (),
) -> None:
    """Train methods × K × seeds of a recipe, and compare them at equal steps, equal samples or equal compute.

    Stopped, the same command goes on where it was. A run that fails or is killed is listed at the end and the others go on; the
    same command tries it again. multimix evaluate measures the networks, multimix report makes a page of everything.

    Try it:
      multimix sweep cifar100_preact_resnet18 --scale smoke --methods none cutmix --ks 1 3 --seeds 0 1
      multimix sweep cifar100_preact_resnet18 --scale small --jobs 2
      multimix sweep cifar100_preact_resnet18 --scale small --equal steps samples compute
    """
    from .sweep.command import run

    run(
        recipe,
        methods=methods,
        ks=ks,
        seeds=seeds,
        scale=scale,
        equal=equal,
        data=data_folder(data),
        out=out,
        jobs=jobs,
        changes=dict(change(words) for words in set_),
        rebuild=rebuild,
        retry=retry,
    )
