"""`multimix demo`."""

from pathlib import Path
from typing import Annotated

from ..terminal import note, tell
from .options import Quick, StudyFolder, option


def demo(
    *,
    seeds: Annotated[int | None, option("Number of seeds, from 0.", "N", default="20, or 5 with --quick")] = None,
    quick: Quick = False,
    out: StudyFolder = Path("multimix-demo"),
) -> None:
    """Train on a noisy spiral without mixup, with manifold mixup (K = 1), and with multi-mix (K = 5), as in the paper's Fig. 4.

    Trains 20 small networks of each kind in a few minutes on a laptop and downloads nothing. Then it writes a page with figures
    and prints tables. After Ctrl-C, the same command resumes. If all runs are finished, it only writes the page.

    Try it:
      multimix demo
      multimix demo --quick
      multimix demo --seeds 40
    """
    from rich.console import Console, Group

    from ..report.pages.spiral import accuracy_table, findings, paired_table, read_spiral, write_spiral_page
    from ..studies.spiral.demo import run_demo

    path = run_demo(seeds=seeds, quick=quick, out=out, note=note)
    page, study = write_spiral_page(path), read_spiral(path)
    Console().print(Group(accuracy_table(study), "", paired_table(study), ""))
    for sentence in findings(study):
        print(f"- {sentence}")
    tell(page, "It compares the three trainings. To see the K steps on pictures: multimix look")
