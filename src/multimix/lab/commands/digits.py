"""`multimix digits`."""

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


def digits(
    *,
    seeds: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help="How many seeds, from 0 on.", help_behavior_hint="(default: 5, or 2 with --quick)"),
    ] = None,
    ks: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K …", help="How many interpolations.")] = (1, 5),
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME …", help="Which; multimix list methods names them.", help_behavior_hint="(default: all)"),
    ] = (),
    quick: Quick = False,
    rebuild: Rebuild = False,
    out: Out = Path("multimix-digits"),
) -> None:
    """Compare every method, K = 1 and K = 5, on scikit-learn's digits: error, calibration and cost with paired tests.

    The smallest job with real images: 250 training samples, a small network, the same splits, starts and batches for all
    methods (a few minutes; nothing is downloaded). Stopped with Ctrl-C it keeps what is finished and goes on from there.

    Try it:
      multimix digits
      multimix digits --quick
      multimix digits --methods mixup cutmix --seeds 10
    """
    from ..studies.digits import digits as run
    from ..studies.files import show_study

    progress = bar("Training")
    show_study(run(seeds=seeds, ks=ks, methods=methods, quick=quick, rebuild=rebuild, out=out, progress=progress, note=note))
