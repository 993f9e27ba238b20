"""`multimix report`."""

from pathlib import Path
from typing import Annotated

from .options import DATA_VARIABLE, Trust, data_folder, option


def report(
    runs: Annotated[tuple[Path, ...], option("Folders of results, or of single runs.", "RUNS …")],
    /,
    *,
    out: Annotated[Path, option("Where pages and figures go.", "FOLDER")] = Path("multimix-report"),
    data: Annotated[
        Path | None,
        option("Where the data sets are, for pictures of mixed samples.", "FOLDER", default=f"${DATA_VARIABLE}, or data"),
    ] = None,
    samples: Annotated[bool, option("Draw the samples that the first update of each run has mixed.")] = True,
    trust: Trust = (),
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

    found = write_reports(runs, out=out, data=data_folder(data) if samples else None, progress=bar("Reporting"), trust=trust)
    for written in found:
        tell(written.page, f"Its {len(written.figures)} figures are in {written.page.with_suffix('')}.")
