"""`multimix variance`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ..terminal import bar, note, show

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


def variance(
    *,
    on: Annotated[
        tuple[Literal["spiral", "digits"], ...], tyro.conf.arg(metavar="DATA …", help="On the spiral, on the digits, or both.")
    ] = ("spiral", "digits"),
    quick: Quick = False,
    rebuild: Rebuild = False,
    out: Out = Path("multimix-variance"),
) -> None:
    """Measure how the variance of the gradient falls with K, and check the paper's two propositions at fixed weights.

    Against the closed form, with independent pairs and with a permutation of the batch (what training does), λ per batch and per
    pair, samplers, and against large-batch mixup on both sides of the crossover B_0 (about two minutes; nothing is downloaded).
    For a model and data of your own: multimix.lab.studies.variance in Python.

    Try it:
      multimix variance
      multimix variance --on spiral --quick
    """
    from ..studies.variance import variance as run

    show(run(on=on, quick=quick, rebuild=rebuild, out=out, progress=bar("Measuring"), note=note))
