"""`multimix reproduce`."""

from typing import Annotated, Literal

from ..terminal import note, tell
from .options import PAPER, DataFolder, FollowName, OutFolder, data_folder, option


def reproduce(
    *,
    scale: Annotated[
        Literal["paper", "small", "smoke"],
        option("The paper's setting (GPUs), a reduced study (about a day on one core), or minutes to see that it runs."),
    ] = "small",
    only: Annotated[
        tuple[str, ...], option("Tables I … VIII and figures fig2 … fig8, or their names.", "WHAT …", default="all")
    ] = (),
    seeds: Annotated[tuple[int, ...], option("One training for each.", "SEED …", default="0 1 2; 0 at smoke scale")] = (),
    follow: FollowName = "text",
    plan: Annotated[bool, option("Say what it would do and cost, and what is missing; train nothing.")] = False,
    jobs: Annotated[int, option("Runs at a time, each in a process of its own.", "N")] = 1,
    data: DataFolder = None,
    out: OutFolder = PAPER,
) -> None:
    """All of the paper by one command: train and measure what Tables I–VIII and Figures 2–8 need, and write one page.

    It first says what it will cost and which data sets are missing. A run that several tables need is trained once. Stopped, the
    same command resumes; what fails is listed at the end and the rest goes on. The page has the paper's numbers beside ours, a
    verdict on every claim, and what differs from the paper's set-up.

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
        way = f"multimix data fetch {name} --folder {folder}" if entry.sources else entry.not_fetched or "it cannot be fetched"
        note(f"missing: {name} ({reason}); {way}")
    left = unfinished(planned.runs, out, note)
    if planned.runs:
        Console(stderr=not plan).print(cost_table(planned, [run for run in planned.runs if run not in left], note))
    if plan:
        return
    # Starting a process takes longer than a smoke run.
    engine = InProcess() if scale == "smoke" and jobs == 1 else make_engine("local", out, jobs=jobs)
    failed = carry_out(planned, data=folder, out=out, engine=engine, note=note)
    page = write_paper_page(planned, out=out, failed=failed)
    for sentence in failed:
        note(f"failed: {sentence}")
    tell(page, "The paper in its order, with our numbers beside its own.")
    if failed:
        raise ValueError(f"{len(failed)} of the runs and measurements failed, as listed above; the same command tries again")
