"""`multimix points`."""

from pathlib import Path
from typing import Annotated

from .options import Quick, RebuildReport, StudyFolder, StudySeeds, option


def points(
    *,
    seeds: StudySeeds = None,
    ks: Annotated[tuple[int, ...], option("How many interpolations.", "K …")] = (1, 5),
    quick: Quick = False,
    rebuild: RebuildReport = False,
    out: StudyFolder = Path("multimix-points"),
) -> None:
    """Compare SageMix, K = 1 and K = 5, with no mixing on clouds of points: error, calibration and cost with paired tests.

    A small PointNet learns to tell five kinds of synthetic bodies apart, with the same starts and batches for all arms (a few
    minutes; nothing is downloaded). The page shows clouds and the K steps between two of them. It is the recipe shapes_pointnet
    at small scale, trained in one process, and a report. Stopped with Ctrl-C it resumes where it was.

    Try it:
      multimix points
      multimix points --quick
      multimix points --ks 1 2 5 10 --seeds 20
    """
    from .study_runner import run

    run("points", "shapes_pointnet", quick=quick, methods=("sagemix",), ks=ks, seeds=seeds, rebuild=rebuild, out=out)
