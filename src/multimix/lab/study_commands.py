"""The commands that need no data: one function each. tyro parses by its signature, then it calls what does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ..methods import METHODS
from .terminal import bar, note, show, tell

SHOWN = ", ".join(kind.name for kind in METHODS)

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
    from .spiral.demo import demo as run

    written = run(seeds=seeds, quick=quick, rebuild=rebuild, out=out, note=note)
    tell(written.page, "It compares the three and says what the data show. The K steps on pictures: multimix look")


def look(
    a: Annotated[
        Path | None, tyro.conf.arg(metavar="[A]", help="An image file, λ = 0.", help_behavior_hint="(default: a cat)")
    ] = None,
    b: Annotated[
        Path | None, tyro.conf.arg(metavar="[B]", help="An image file, λ = 1.", help_behavior_hint="(default: a dog)")
    ] = None,
    /,
    *,
    k: Annotated[int, tyro.conf.arg(metavar="K", help="Steps of each method in the figure, at λ = 1/(K+1) … K/(K+1).")] = 5,
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME …", help=f"Which of {SHOWN}.", help_behavior_hint="(default: all that can be shown)"),
    ] = (),
    size: Annotated[int, tyro.conf.arg(metavar="PIXELS", help="Side of the squares that the pictures are cut to.")] = 256,
    seed: Annotated[int, tyro.conf.arg(metavar="SEED", help="Decides where boxes, holes and fields lie.")] = 5,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where look.png and look.html go.")] = Path("multimix-look"),
) -> None:
    """Show the K steps of every method on two pictures: a figure, and a page with a slider along λ.

    A few are given what two pictures do not have, and the page says what: a small encoder and decoder (trained first, seconds), a
    fixed mask network, a batch before, mirror images, clouds of points. Methods that mix hidden layers only cannot be shown.

    Try it:
      multimix look
      multimix look cat.jpg dog.jpg
      multimix look cat.jpg dog.jpg --methods cutmix fmix --k 7 --seed 3
    """
    from .look import look as written
    from .pictures import cat, dog

    if (a is None) != (b is None):
        raise ValueError("look needs two pictures, or none for the two that come along")
    pictures = (cat(size), dog(size)) if a is None or b is None else (a, b)
    png, html = written(*pictures, k=k, methods=methods, size=size, seed=seed, out=out, track=bar("Mixing"), note=note)
    print(f"wrote {png}")
    tell(html, "Move the slider.")


def digits(
    *,
    seeds: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help="How many seeds, from 0 on.", help_behavior_hint="(default: 5, or 2 with --quick)"),
    ] = None,
    ks: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K …", help="How many interpolations.")] = (1, 5),
    methods: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME …", help=f"Which of {SHOWN}.", help_behavior_hint="(default: all)")
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
    from .digits import digits as run

    progress = bar("Training")
    show(run(seeds=seeds, ks=ks, methods=methods, quick=quick, rebuild=rebuild, out=out, progress=progress, note=note))


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
    from .points.study import points as run

    show(run(seeds=seeds, ks=ks, quick=quick, rebuild=rebuild, out=out, progress=bar("Training"), note=note))


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
    For a model and data of your own: multimix.lab.variance in Python.

    Try it:
      multimix variance
      multimix variance --on spiral --quick
    """
    from .variance import variance as run

    show(run(on=on, quick=quick, rebuild=rebuild, out=out, progress=bar("Measuring"), note=note))
