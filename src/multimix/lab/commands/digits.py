"""`multimix digits`."""

from pathlib import Path
from typing import Annotated

from .options import Quick, RebuildReport, StudyFolder, StudySeeds, option


def digits(
    *,
    seeds: StudySeeds = None,
    ks: Annotated[tuple[int, ...], option("How many interpolations.", "K …")] = (1, 5),
    methods: Annotated[tuple[str, ...], option("Which; multimix list methods names them.", "NAME …", default="all")] = (),
    quick: Quick = False,
    rebuild: RebuildReport = False,
    out: StudyFolder = Path("multimix-digits"),
) -> None:
    """Compare every method, K = 1 and K = 5, on scikit-learn's digits: error, calibration and cost with paired tests.

    The smallest job with real images: 250 training samples, a small network, the same starts and batches for all methods (15 to
    30 minutes; nothing is downloaded). It is the recipe digits_smallnet at small scale, trained in one process, and a report.
    Stopped with Ctrl-C it resumes where it was.

    Try it:
      multimix digits
      multimix digits --quick
      multimix digits --methods mixup cutmix --seeds 10
    """
    from .study_runner import run

    run("digits", "digits_smallnet", quick=quick, methods=methods, ks=ks, seeds=seeds, rebuild=rebuild, out=out)
