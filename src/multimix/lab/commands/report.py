"""`multimix report`."""

from pathlib import Path
from typing import Annotated

import tyro

from .options import DATA_VARIABLE, data_folder


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
    from ..results.report import write_reports
    from ..terminal import bar, tell

    found = write_reports(runs, out=out, data=data_folder(data) if samples else None, progress=bar("Reporting"))
    for written in found:
        tell(written.page, f"Its {len(written.figures)} figures are in {written.page.with_suffix('')}.")
