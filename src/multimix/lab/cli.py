"""The command line: parse, call, and turn whatever goes wrong into one sentence."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from .. import __version__
from ..sampling import rank

LAB_PACKAGES = ("tyro", "rich", "matplotlib", "PIL", "scipy", "sklearn", "accelerate", "safetensors")

DESCRIPTION = """\
K ordered interpolations of every pair, for every mixup method and any PyTorch model.

Try it:
  multimix demo --quick                      the noisy spiral without mixup, with mixup, with multi-mix
  multimix digits --quick                    every method, K = 1 and 5, on small real images
  multimix points --quick                    SageMix, K = 1 and 5, on clouds of points
  multimix variance --quick                  the gradient variance and the paper's propositions
  multimix look                              the K steps of every method on two pictures
  multimix list                              recipes, methods, networks, data sets
  multimix data check FOLDER                 what is in a folder of data sets
  multimix train RECIPE --scale smoke        train what a table or figure of the paper compares
  multimix sweep RECIPE --scale smoke        methods × K × seeds, compared at equal steps, samples or compute
  multimix evaluate RUN --on calibration     what trained networks are worth
  multimix table 2                           a table of the paper beside ours
  multimix report multimix-runs              one page of everything
  multimix look --help                       all options of a command
  multimix --version
"""


COMMANDS = (
    "data",
    "demo",
    "digits",
    "evaluate",
    "list",
    "look",
    "points",
    "report",
    "sweep",
    "table",
    "train",
    "transfer",
    "variance",
)


def command(name: str) -> Callable[..., None]:
    """The function behind a command, whose file is imported only when it is asked for."""
    module = import_module(f".commands.{'list_names' if name == 'list' else name}", __package__)
    return cast(Callable[..., None], getattr(module, "list_" if name == "list" else name))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 with one sentence on the standard error stream if the input cannot be used."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["--version"]:
        print(f"multimix {__version__}")
        return 0
    try:
        import tyro

        if given and given[0] in COMMANDS:
            tyro.cli(command(given[0]), prog=f"multimix {given[0]}", args=with_changes(given)[1:])
        else:
            every = {name: command(name) for name in COMMANDS}
            tyro.extras.subcommand_cli_from_dict(every, prog="multimix", description=DESCRIPTION, args=given or ["--help"])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LAB_PACKAGES:
            raise
        return _refused("multimix needs its extra [lab] for this: install it with the extra, as the README says")
    except (ValueError, OSError) as error:
        return _refused(str(error))
    except KeyboardInterrupt:
        _refused("stopped; what is finished is kept, and the same command goes on from there")
        return 130
    return 0


def with_changes(arguments: Sequence[str]) -> list[str]:
    """``train … --field value`` as ``train … --set field=value``, for every field that is not an option; for sweep as well.

    >>> with_changes(["train", "speech", "--schedule.at", "4", "8", "--k", "5"])
    ['train', 'speech', '--k', '5', '--set', 'schedule.at=4,8']
    """
    if not arguments or arguments[0] not in ("train", "sweep"):
        return list(arguments)
    own = {name for name in inspect.signature(command(arguments[0])).parameters if name != "set_"} | {"help"}
    groups: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(argument)
    kept: list[str] = []
    changes: list[str] = []
    for group in groups:
        name, equals, value = group[0].removeprefix("--").partition("=")
        if not group[0].startswith("--") or name.removeprefix("no-").replace("-", "_") in own:
            kept += group
        elif name == "set":
            changes += ([value] if equals else []) + group[1:]
        else:
            words = ([value] if equals else []) + group[1:]
            changes.append(f"{name}={','.join(words) or 'true'}")
    return [*kept, *(["--set", *changes] if changes else [])]


def _refused(sentence: str) -> int:
    if rank() == 0:  # the others of a distributed run would say the same
        print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
