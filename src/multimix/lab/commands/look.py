"""`multimix look`."""

from pathlib import Path
from typing import Annotated, Literal

from ...methods.registry import entries
from ..terminal import bar, note, say, tell
from .options import option

NAMES = ", ".join(entry.name for entry in entries())


def look(
    a: Annotated[Path | None, option("Image file for λ = 0.", "[A]", default="a cat")] = None,
    b: Annotated[Path | None, option("Image file for λ = 1.", "[B]", default="a dog")] = None,
    /,
    *,
    k: Annotated[int, option("Interpolations of each method in look.png, at λ = 1/(K+1) … K/(K+1).", "K")] = 5,
    methods: Annotated[tuple[str, ...], option(f"Methods: {NAMES}.", "NAME …", default="all that mix images")] = (),
    size: Annotated[int, option("Side of the square that both images are cropped to.", "PIXELS")] = 256,
    seed: Annotated[int, option("Seed of random masks and boxes.", "SEED")] = 5,
    figure: Annotated[
        Literal[2, 3] | None,
        option("Draw the paper's Fig. 2 (one sample of every method) or 3 (four interpolations) instead.", default="none"),
    ] = None,
    out: Annotated[Path, option("Output folder of look.png and look.html, or figure-2.png or figure-3.png.", "FOLDER")] = Path(
        "multimix-look"
    ),
) -> None:
    """Show the K steps of every method on two images: a figure, and a page with a slider along λ.

    Some methods need more than two images, as the page notes: a small autoencoder (trained first, seconds), a fixed mask
    network, a previous batch, mirror images, or point clouds. Methods that mix only hidden layers are not shown.

    Try it:
      multimix look
      multimix look cat.jpg dog.jpg
      multimix look cat.jpg dog.jpg --figure 2
      multimix look cat.jpg dog.jpg --methods cutmix fmix --k 7 --seed 3
    """
    from ..studies.look import cat, dog, write_look, write_paper_figure

    if (a is None) != (b is None):
        raise ValueError("a and b must both be image files, got one; omit both for the built-in images")
    pictures = (cat(size), dog(size)) if a is None or b is None else (a, b)
    track = bar("Mixing")
    if figure is not None:
        path = write_paper_figure(figure, *pictures, methods=methods, size=size, seed=seed, out=out, track=track, note=note)
        say(f"wrote {path}")
        return
    png, html = write_look(*pictures, k=k, methods=methods, size=size, seed=seed, out=out, track=track, note=note)
    say(f"wrote {png}")
    tell(html, "Move the slider.")
