"""`multimix variance`."""

from pathlib import Path
from typing import Annotated, Literal

from ..terminal import bar, note
from .options import Quick, RebuildReport, StudyFolder, option


def variance(
    *,
    on: Annotated[tuple[Literal["spiral", "digits"], ...], option("On the spiral, on the digits, or both.", "DATA …")] = (
        "spiral",
        "digits",
    ),
    quick: Quick = False,
    rebuild: RebuildReport = False,
    out: StudyFolder = Path("multimix-variance"),
) -> None:
    """Measure how the variance of the gradient falls with K, and check the paper's two propositions at fixed weights.

    Compares the measured variance with the closed form: for independent pairs and for a permutation of the batch (as in
    training), with one λ per batch or per pair, and for two samplers of λ. Compares multi-mix with large-batch mixup on both
    sides of the batch size B_0 where they are equal. Takes about two minutes; nothing is downloaded. If you stop it with Ctrl-C,
    finished parts are kept, and the same command resumes. For your own model and data, use multimix.lab.studies.variance in
    Python.

    Try it:
      multimix variance
      multimix variance --on spiral --quick
    """
    from ..studies.files import show_study
    from ..studies.variance import variance as run

    show_study(run(on=on, quick=quick, rebuild=rebuild, out=out, progress=bar("Measuring"), note=note))
