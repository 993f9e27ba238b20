"""The command line: one function per command. tyro parses by its signature, then it calls what does the work."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .. import __version__
from ..methods import Method

if TYPE_CHECKING:
    import tyro
else:
    with contextlib.suppress(ModuleNotFoundError):  # main() says in one sentence what is missing
        import tyro

LAB_PACKAGES = ("tyro", "rich", "matplotlib", "PIL")

DESCRIPTION = """\
K ordered interpolations of every pair, for every mixup method and any PyTorch model.

Try it:
  multimix demo                              a first look, no data needed
  multimix look cat.jpg dog.jpg --k 5        the same on your own two pictures
  multimix look --help                       all options of a command
  multimix --version
"""


def look(
    a: Annotated[Path, tyro.conf.arg(metavar="A", help="An image file; every method starts here, at λ = 0.")],
    b: Annotated[Path, tyro.conf.arg(metavar="B", help="An image file; its share λ grows from step to step.")],
    /,
    *,
    k: Annotated[int, tyro.conf.arg(metavar="K", help="Steps of each method in the figure, at λ = 1/(K+1) … K/(K+1).")] = 5,
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME …", help="Which methods, by name.", help_behavior_hint="(default: all that can be shown)"),
    ] = (),
    size: Annotated[int, tyro.conf.arg(metavar="PIXELS", help="Side of the squares that the pictures are cut to.")] = 256,
    seed: Annotated[int, tyro.conf.arg(metavar="SEED", help="Decides where boxes, holes and fields lie.")] = 0,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where look.png and look.html go.")] = Path("multimix-look"),
) -> None:
    """Show the K steps of every method on two pictures: a figure, and a page with a slider.

    Try it:
      multimix look cat.jpg dog.jpg
      multimix look cat.jpg dog.jpg --methods cutmix fmix --k 7 --seed 3
    """
    from .look import look as written

    _tell(*written(a, b, k=k, methods=methods, size=size, seed=seed, out=out, track=_progress, note=_note))


def demo(
    a: Annotated[
        Path | None, tyro.conf.arg(metavar="[A]", help="An image file instead of the drawn cat.", help_behavior_hint="")
    ] = None,
    b: Annotated[
        Path | None, tyro.conf.arg(metavar="[B]", help="An image file instead of the drawn dog.", help_behavior_hint="")
    ] = None,
    /,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where look.png and look.html go.")] = Path("multimix-look"),
) -> None:
    """Show every method on two pictures that come with multimix; nothing is downloaded.

    Try it:
      multimix demo
      multimix demo --out somewhere/else
    """
    from .look import look as written
    from .pictures import cat, dog

    _tell(*written(cat() if a is None else a, dog() if b is None else b, out=out, track=_progress, note=_note))


COMMANDS: dict[str, Callable[..., None]] = {"look": look, "demo": demo}


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
        print("stopped", file=sys.stderr)
        return 130
    return 0


def _tell(png: Path, html: Path) -> None:
    print(f"wrote {png}\nwrote {html}\nOpen {html} in a browser and move the slider.")


def _progress(methods: Sequence[Method]) -> Iterable[Method]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(methods, "Mixing", console=console, transient=True, disable=not console.is_terminal)


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _refused(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
