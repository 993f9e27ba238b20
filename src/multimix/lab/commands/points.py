"""`multimix points`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..terminal import bar, note

try:
    import tyro
except ModuleNotFoundError:
    pass  # cli.main() says in one sentence what is missing
else:
    Out = Annotated[
        Path, tyro.conf.arg(metavar="FOLDER", help="Where everything goes; what is finished there is not done again.")
    ]
    Quick = Annotated[bool, tyro.conf.arg(help="A short run to see that everything works, not how methods compare.")]
    Rebuild = Annotated[bool, tyro.conf.arg(help="Make the report again from the results in the folder; compute nothing.")]


def points(
    *,
    seeds: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help="How many seeds, from 0 on.", help_behavior_hint="(default: 10, or 2 with --quick)"),
    ] = None,
    ks: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K …", help="How many interpolations.")] = (1, 5),
    quick: Quick = False,
    rebuild: Rebuild = False,
    out: Out = Path("multimix-points"),
) -> None:
    """Compare SageMix, K = 1 and K = 5, with no mixing on clouds of points: error, calibration and cost with paired tests.

    A small PointNet learns to tell five kinds of synthetic bodies apart, on the same bodies, starts and batches for all arms (a
    minute; nothing is downloaded). The page shows the clouds and the K steps between two of them. Stopped with Ctrl-C it keeps
    what is finished and goes on from there.

    Try it:
      multimix points
      multimix points --quick
      multimix points --ks 1 2 5 10 --seeds 20
    """
    from ..studies.files import show_study
    from ..studies.points.study import points as run

    show_study(run(seeds=seeds, ks=ks, quick=quick, rebuild=rebuild, out=out, progress=bar("Training"), note=note))
