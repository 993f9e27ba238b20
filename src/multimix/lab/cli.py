"""The command line: one function per command. tyro parses by its signature, then it calls what does the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from .. import __version__
from ..methods import METHODS

if TYPE_CHECKING:
    from .study import Written

Item = TypeVar("Item")

SHOWN = ", ".join(kind.name for kind in METHODS)

try:
    import tyro
except ModuleNotFoundError:
    pass  # main() says in one sentence what is missing
else:
    Out = Annotated[
        Path, tyro.conf.arg(metavar="FOLDER", help="Where everything goes; what is finished there is not done again.")
    ]
    Quick = Annotated[bool, tyro.conf.arg(help="A short run to see that everything works, not how methods compare.")]
    Rebuild = Annotated[bool, tyro.conf.arg(help="Make the report again from the results in the folder; compute nothing.")]


LAB_PACKAGES = ("tyro", "rich", "matplotlib", "PIL", "scipy", "sklearn")

DESCRIPTION = """\
K ordered interpolations of every pair, for every mixup method and any PyTorch model.

Try it:
  multimix demo --quick                      the noisy spiral without mixup, with mixup, with multi-mix
  multimix digits --quick                    every method, K = 1 and 5, on small real images
  multimix variance --quick                  the gradient variance and the paper's propositions
  multimix look                              the K steps of every method on two pictures
  multimix data check FOLDER                 what is in a folder of data sets
  multimix look --help                       all options of a command
  multimix --version
"""


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

    written = run(seeds=seeds, quick=quick, rebuild=rebuild, out=out, note=_note)
    _tell(written.page, "It compares the three and says what the data show. The K steps on pictures: multimix look")


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
    png, html = written(*pictures, k=k, methods=methods, size=size, seed=seed, out=out, track=_bar("Mixing"), note=_note)
    print(f"wrote {png}")
    _tell(html, "Move the slider.")


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

    progress = _bar("Training")
    _show(run(seeds=seeds, ks=ks, methods=methods, quick=quick, rebuild=rebuild, out=out, progress=progress, note=_note))


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

    _show(run(on=on, quick=quick, rebuild=rebuild, out=out, progress=_bar("Measuring"), note=_note))


def data(
    action: Annotated[
        Literal["fetch", "check"], tyro.conf.arg(metavar="fetch|check", help="Download a set, or look at a folder.")
    ],
    what: Annotated[str, tyro.conf.arg(metavar="NAME|FOLDER", help="The set to fetch, or the folder to check.")],
    /,
    *,
    folder: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where a fetched set goes.")] = Path("data"),
    deep: Annotated[bool, tyro.conf.arg(help="Check: decode every file and compare checksums, not only read headers.")] = False,
) -> None:
    """Download a data set from its official address, or tell what is in a folder and what is wrong with it.

    A download that was stopped goes on where it was; checksums are verified, archives unpacked safely. Sets: cifar10, cifar100,
    tiny_imagenet, cub200, speech_commands_v1, speech_commands_v2, fashion_mnist (ImageNet needs registration at its site).

    Try it:
      multimix data fetch cifar100 --folder data
      multimix data check data
      multimix data check data --deep
    """
    from .data.command import check, fetch

    if action == "fetch":
        print(f"wrote {fetch(what, folder, note=_note)}")
        return
    for line in check(Path(what), deep=deep):
        print(line)


COMMANDS: dict[str, Callable[..., None]] = {
    "data": data,
    "demo": demo,
    "digits": digits,
    "look": look,
    "variance": variance,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 with one sentence on the standard error stream if the input cannot be used."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["--version"]:
        print(f"multimix {__version__}")
        return 0
    try:
        from tyro.extras import subcommand_cli_from_dict

        subcommand_cli_from_dict(COMMANDS, prog="multimix", description=DESCRIPTION, args=given or ["--help"])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LAB_PACKAGES:
            raise
        return _refused("multimix needs its extra [lab] for this: install it with the extra, as the README says")
    except (ValueError, OSError) as error:
        return _refused(str(error))
    except KeyboardInterrupt:
        print("stopped; what is finished is kept, and the same command goes on from there", file=sys.stderr)
        return 130
    return 0


def _show(written: Written) -> None:
    from rich.console import Console

    Console().print(written.table)
    for sentence in written.findings:
        print(f"- {sentence}")
    _tell(written.page, "It has all numbers, figures and tests.")


def _tell(page: Path, words: str) -> None:
    print(f"wrote {page}\nOpen {page} in a browser. {words}")


def _bar(words: str) -> Callable[[Sequence[Item]], Iterable[Item]]:
    """Something to wrap a list of work in: a progress bar on the error stream, if a person is looking at it."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return lambda work: track(work, words, console=console, transient=True, disable=not console.is_terminal)


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _refused(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
