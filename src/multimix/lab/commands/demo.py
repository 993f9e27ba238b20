"""`multimix demo`."""

from pathlib import Path
from typing import Annotated

from ..terminal import note
from .options import Quick, RebuildReport, StudyFolder, option


def demo(
    *,
    seeds: Annotated[int | None, option("How many seeds, from 0 on.", "N", default="20, or 5 with --quick")] = None,
    quick: Quick = False,
    rebuild: RebuildReport = False,
    out: StudyFolder = Path("multimix-demo"),
) -> None:
    """The paper's first figure: a noisy spiral without mixup, with manifold mixup (K = 1) and with multi-mix (K = 5).

    Trains 20 small networks of each kind (a few minutes on a laptop; nothing is downloaded), then writes a page with figures
    and prints a table. If you stop it with Ctrl-C, finished runs are kept, and the same command resumes.

    Try it:
      multimix demo
      multimix demo --quick
      multimix demo --seeds 40
    """
    from ..studies.files import show_study
    from ..studies.spiral.page import write_report
    from ..studies.spiral.runs import run_demo

    result = run_demo(seeds=seeds, quick=quick, rebuild=rebuild, out=out, note=note)
    # A short run must not overwrite a full report.
    files = write_report(result, out, "spiral-quick" if quick else "spiral")
    show_study(files, "It compares the three and says what the data show. The K steps on pictures: multimix look")
