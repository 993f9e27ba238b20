"""`multimix reproduce`."""

from typing import Annotated, Literal

from ..terminal import note, tell
from .options import PAPER, DataFolder, FollowName, OutFolder, data_folder, option


def reproduce(
    *,
    scale: Annotated[
        Literal["paper", "small", "smoke"],
        option("paper: the paper's setting (GPUs); small: a reduced study (about a day on one core); smoke: a test of minutes."),
    ] = "small",
    only: Annotated[
        tuple[str, ...], option("Tables I … VIII and figures fig2 … fig8, or their names.", "NAME …", default="all")
    ] = (),
    seeds: Annotated[tuple[int, ...], option("Seeds of every training.", "SEED …", default="0 1 2; 0 at smoke scale")] = (),
    follow: FollowName = "text",
    plan: Annotated[bool, option("Print runs, costs, and missing data sets; train nothing.")] = False,
    jobs: Annotated[int, option("Number of runs at a time, each in a separate process.", "N")] = 1,
    data: DataFolder = None,
    out: OutFolder = PAPER,
) -> None:
    """Reproduce Tables I–VIII and Figures 2–8 of the paper: train and evaluate all runs, and write one page.

    The command first prints its cost and the missing data sets. A run that several tables show is trained once. Failed runs are
    listed at the end. After Ctrl-C, the same command resumes. The page has the paper's numbers beside ours, a verdict on every
    claim, and the differences from the paper's setup.

    Try it:
      multimix reproduce --plan
      multimix reproduce --scale smoke
      multimix reproduce --only I V fig6 --scale small --jobs 2
      multimix reproduce --scale paper --only VII --seeds 0 1 2
    """
    from rich.console import Console

    from ..data import dataset
    from ..studies.reproduce.plan import SEEDS, choose, cost_table, make_plan
    from ..studies.reproduce.run import carry_out, write_paper_page
    from ..sweep.engines import InProcess, make_engine
    from ..sweep.workers import unfinished

    chosen = choose(only)
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    folder = data_folder(data)
    planned = make_plan(
        chosen, scale=scale, follow=follow, seeds=seeds or SEEDS[scale], data=folder, cache=out.absolute() / "cache"
    )
    for name, reason in planned.missing.items():
        entry = dataset(name)
        instruction = (
            f"multimix data fetch {name} --folder {folder}" if entry.sources else entry.not_fetched or "it cannot be fetched"
        )
        note(f"missing: {name} ({reason}); {instruction}")
    remaining = unfinished(planned.runs, out, note)
    if planned.runs:
        Console(stderr=not plan).print(cost_table(planned, [run for run in planned.runs if run not in remaining], note))
    if plan:
        return
    # A process takes longer to start than a smoke run.
    engine = InProcess() if scale == "smoke" and jobs == 1 else make_engine("local", out, jobs=jobs)
    failed = carry_out(planned, data=folder, out=out, engine=engine, note=note)
    page = write_paper_page(planned, out=out, failed=failed)
    for sentence in failed:
        note(f"failed: {sentence}")
    tell(page, "It has the paper's tables and figures in its order, with our numbers beside the paper's.")
    if failed:
        raise ValueError(f"{len(failed)} runs and evaluations failed, as listed above; the same command repeats them")
