"""`multimix demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..terminal import note, tell

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


def demo(
    *,
    seeds: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help="How many seeds, from 0 on.", help_behavior_hint="(default: 20, or 5 with --quick)"),
    ] = None,
    quick: Quick = False,
    rebuild: Rebuild = False,
    out: Out = Path("multimix-demo"),
) -> None:
    """The paper's first figure: a noisy spiral without mixup, with manifold mixup (K = 1) and with multi-mix (K = 5).

    Trains 20 small networks of each kind at once (a few minutes on a laptop; nothing is downloaded), then writes a page and
    figures and prints a table. Stopped with Ctrl-C it keeps what is finished and goes on from there.

    Try it:
      multimix demo
      multimix demo --quick
      multimix demo --seeds 40
    """
    from ..studies.spiral.demo import demo as run

    written = run(seeds=seeds, quick=quick, rebuild=rebuild, out=out, note=note)
    tell(written.page, "It compares the three and says what the data show. The K steps on pictures: multimix look")
