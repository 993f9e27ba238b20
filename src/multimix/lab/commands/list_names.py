"""`multimix list`."""

from typing import Annotated, Literal

import tyro


def list_(
    what: Annotated[
        Literal["all", "recipes", "methods", "networks", "data"],
        tyro.conf.arg(metavar="[recipes|methods|networks|data]", help="Which list."),
    ] = "all",
    /,
) -> None:
    """Everything that has a name: recipes, methods and baselines, networks, data sets.

    Try it:
      multimix list
      multimix list recipes
    """
    from rich.console import Console

    from .listing import listing

    for part in listing(None if what == "all" else what):
        Console().print(part)
