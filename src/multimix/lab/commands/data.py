"""`multimix data`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from ..terminal import note

with suppress(ModuleNotFoundError):  # cli.main() says in one sentence what is missing
    import tyro


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
    from .data_runner import check, fetch

    if action == "fetch":
        print(f"wrote {fetch(what, folder, note=note)}")
        return
    for line in check(Path(what), deep=deep):
        print(line)
