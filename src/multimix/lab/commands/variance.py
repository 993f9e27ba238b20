"""`multimix variance`."""

from pathlib import Path
from typing import Annotated, Literal

from ..terminal import bar, note, say, tell
from .options import Quick, StudyFolder, option


def variance(
    *,
    on: Annotated[tuple[Literal["spiral", "digits"], ...], option("Data sets: spiral, digits, or both.", "DATA …")] = (
        "spiral",
        "digits",
    ),
    quick: Quick = False,
    out: StudyFolder = Path("multimix-variance"),
) -> None:
    """Measure how the variance of the gradient falls with K, and check the paper's two propositions at fixed weights.

    The command compares the measured variance with the closed form. It draws independent pairs or a permutation of the batch (as
    in training), one λ per batch or per pair, from two samplers. It also compares multi-mix with large-batch mixup on both sides
    of the batch size B_0 where they are equal. It takes about two minutes and downloads nothing. After Ctrl-C, the same command
    resumes. For your own model and data, use multimix.lab.studies.variance in Python.

    Try it:
      multimix variance
      multimix variance --on spiral --quick
    """
    from rich.console import Console

    from ..report.pages.variance import findings, k_table, select, variance_frame
    from ..studies.variance.study import variance as run

    page, results = run(on=on, quick=quick, out=out, progress=bar("Measuring"), note=note)
    frame = variance_frame(results)
    Console().print(k_table(select(frame, per_pair=False, sampler="iid"), "Trace variance of the gradient, one λ per batch, iid"))
    for sentence in findings(frame):
        say(f"- {sentence}")
    tell(page, "It has all numbers and figures.")
