"""`multimix table`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from .options import RUNS

with suppress(ModuleNotFoundError):  # cli.main() says in one sentence what is missing
    import tyro


def table(
    number: Annotated[
        str | None,
        tyro.conf.arg(metavar="[N|NAME]", help="Which table; without one all are listed.", help_behavior_hint=""),
    ] = None,
    /,
    *,
    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.arg(
            metavar="FOLDER …",
            help="Folders of results or of runs that fill our columns.",
            help_behavior_hint=f"(default: {RUNS}, if it is there)",
        ),
    ] = (),
    scale: Annotated[
        Literal["paper", "small", "smoke"] | None,
        tyro.conf.arg(help="Which runs.", help_behavior_hint="(default: the largest scale that was run)"),
    ] = None,
    demo: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where multimix demo wrote, for the spiral.")] = Path(
        "multimix-demo"
    ),
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="FOLDER", help="Also write Markdown, CSV and HTML.", help_behavior_hint="(default: print only)"),
    ] = None,
) -> None:
    """A table or figure of the paper beside ours: means with n and interval, the paper's paired t-test, what was not run.

    Nothing is trained or measured. Where the paper's text and its tables disagree, a note says so.

    Try it:
      multimix table
      multimix table 2
      multimix table calibration --runs multimix-runs --scale small --out tables
    """
    from .table_runner import run

    # What was named must be there; the usual folder need not, since the paper's numbers can be shown without ours.
    run(number, places=runs or ([RUNS] if (RUNS / "results.jsonl").exists() else []), scale=scale, out=out, demo=demo)
