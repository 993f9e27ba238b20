"""`multimix figure`: a figure of the paper from our runs, in files and with its numbers on the terminal, or a list of all."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ..terminal import bar, note
from .options import PAPER, FollowName, RunFolders, run_rows

if TYPE_CHECKING:
    from torch import Tensor

SIZE = 256
DEMO = Path("multimix-demo")
REPRODUCED = PAPER / "spiral"


def figure(
    number: Annotated[
        str | None,
        tyro.conf.arg(metavar="[2 … 8]", help="Which figure, or its name; without one all are listed.", help_behavior_hint=""),
    ] = None,
    a: Annotated[
        Path | None,
        tyro.conf.arg(metavar="[A]", help="For 2 and 3: an image file, λ = 0.", help_behavior_hint="(default: a cat)"),
    ] = None,
    b: Annotated[
        Path | None,
        tyro.conf.arg(metavar="[B]", help="For 2 and 3: an image file, λ = 1.", help_behavior_hint="(default: a dog)"),
    ] = None,
    /,
    *,
    runs: RunFolders = (),
    scale: Annotated[
        Literal["paper", "small", "smoke"] | None,
        tyro.conf.arg(help="Which runs.", help_behavior_hint="(default: the largest scale that was run)"),
    ] = None,
    follow: FollowName = "text",
    demo: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="For 4: the folder of multimix demo.")] = DEMO,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where the files go.")] = Path("multimix-figures"),
) -> None:
    """A figure of the paper under its own number, drawn from our runs: PNG, SVG where it is made of lines, and its numbers.

    Fig. 2 and 3 are made of any two pictures, Fig. 4 of what multimix demo has trained, the others of finished runs and what was
    measured on them. Nothing is trained or measured; multimix reproduce does that. The numbers behind 4, 6, 7 and 8 are printed
    as a table: mean, n, SD, interval, what the paper has, and whether its claims are seen.

    Try it:
      multimix figure
      multimix figure 2
      multimix figure 3 cat.jpg dog.jpg
      multimix figure 6 --runs multimix-runs --scale small --out figures
    """
    from rich.console import Console

    from ..reproduce.figures import OF_PICTURES, demo_runs, figure_files
    from ..results.paper import FIGURES, exhibit
    from ..results.paper_table import fill, largest_scale, listing, tables, write_exhibit

    chosen = None if number is None else exhibit("figure", number)
    of_pictures = chosen is not None and chosen.number in OF_PICTURES
    if chosen is not None and not of_pictures and a is not None:
        raise ValueError(f"{chosen.label} is not made of two pictures, as Fig. 2 and 3 are: leave out {str(a)!r}")
    pair = _pair(a, b)
    if demo == DEMO and not demo.exists() and REPRODUCED.exists():
        demo = REPRODUCED
    rows, known = ([], {}) if of_pictures else (run_rows(runs), demo_runs(demo))
    if chosen is None:
        Console().print(listing(rows, known, FIGURES))
        return
    filled = fill(chosen, scale or largest_scale(chosen, rows, known) or "paper", rows, known, follow)
    files = figure_files(filled, rows, follow=follow, demo=demo, pair=pair, track=bar("Mixing"), note=note)
    for sentence in () if chosen.columns else filled.notes:  # otherwise they stand below the table
        note(sentence)
    if not files and chosen.number == 4:
        raise ValueError(
            f"Fig. 4 shows what multimix demo has trained, and {str(demo)!r} has nothing of it: run multimix demo first"
        )
    if not files and not chosen.columns:
        raise ValueError(f"{chosen.label} has nothing to show yet: multimix evaluate RUNS --on transfer draws the birds of a run")
    # Before anything is printed: a reader that goes away early must not cost the files.
    written = write_exhibit(filled, out, files) if files else []
    for part in tables(filled) if chosen.columns else ():
        Console().print(part)
    if not files:
        note(f"{chosen.label} has nothing to draw yet; the notes above say what is missing")
    for path in written:
        print(f"wrote {path}")


def _pair(a: Path | None, b: Path | None) -> "tuple[Tensor, Tensor] | None":
    """The two pictures, if they are given."""
    if a is None or b is None:
        if a is not b:
            raise ValueError("a figure of pictures needs two of them, or none for the two that come with multimix")
        return None
    from ..studies.look.pictures import read_picture

    return read_picture(a, SIZE), read_picture(b, SIZE)
