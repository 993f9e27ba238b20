"""The command line: parse, call, and turn whatever goes wrong into one sentence."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, cast

from .. import __version__
from ..core.checks import nearest
from ..core.sampling import rank
from .terminal import printable

LAB_PACKAGES = (
    "tyro",
    "rich",
    "matplotlib",
    "pandas",
    "jinja2",
    "markupsafe",
    "PIL",
    "scipy",
    "sklearn",
    "accelerate",
    "safetensors",
    "filelock",
)

# Every command with a line about it, grouped by what somebody wants.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "look and learn": {
        "look": "the K steps of every method on two pictures, with a slider",
        "demo": "a noisy spiral without mixup, with mixup, with multi-mix",
        "variance": "how the gradient's variance falls with K",
        "list": "recipes, methods, networks, data sets, exhibits by name",
    },
    "train and compare": {
        "compare": "which mixing is best for a folder of your own pictures",
        "train": "a recipe's networks, or one method, any setting changed",
        "sweep": "methods × K × seeds at equal steps, samples or compute",
        "evaluate": "errors, calibration, robustness, transfer … of trained networks",
        "report": "pages, tables and figures of finished runs",
    },
    "the paper": {
        "reproduce": "all of its tables and figures, on one page",
    },
    "data": {"data": "download a data set, or check a folder"},
}
COMMANDS = tuple(sorted(name for own in GROUPS.values() for name in own))
HELP = "\n".join(
    [
        "usage: multimix COMMAND …",
        "",
        "K ordered interpolations of every pair, for every mixup method.",
        *(
            line
            for group, own in GROUPS.items()
            for line in ("", f"{group}:", *(f"  {name:<11}{words}" for name, words in own.items()))
        ),
        "",
        "multimix COMMAND --help has all options and examples. To begin: multimix look",
    ]
)
# What other libraries call fields of the settings.
ELSEWHERE = {"lr": "schedule.rate", "learning_rate": "schedule.rate", "batch_size": "batch", "alpha": "method.alpha"}
ELSEWHERE |= {"weight_decay": "optimizer.weight_decay", "model": "network.name", "dataset": "data.name"}


def command(name: str) -> Callable[..., None]:
    """The function behind a command, whose file is imported only when it is asked for."""
    from .commands.options import check_sizes

    module = import_module(f".commands.{'list_names' if name == 'list' else name}", __package__)
    function = cast(Callable[..., None], getattr(module, "list_" if name == "list" else name))

    @functools.wraps(function)
    def checked(*arguments: Any, **options: Any) -> None:
        check_sizes(options)
        function(*arguments, **options)

    return checked


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 with one sentence on the error stream if the input cannot be used, or 130 if it was told to stop."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # where λ cannot be written, as on terminals of code page 1252, ? stands for it
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["--version"]:
        print(f"multimix {__version__}")
        return 0
    if not given or given[0] in ("--help", "-h"):
        print(HELP)
        return 0
    try:
        with _stopped_by_sigterm():
            _run(given)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LAB_PACKAGES:
            raise
        return _refused("multimix needs its extra [lab] for this: install it with the extra, as the README says")
    except (ValueError, OSError) as error:
        return _refused(str(error))
    except RuntimeError as error:
        from .data.loader import worker_trouble

        sentence = worker_trouble(error)
        if sentence is None:
            raise
        return _refused(sentence)
    except KeyboardInterrupt:
        # look stores nothing before it ends.
        _refused(
            "stopped" if given[0] == "look" else "stopped; what is finished is kept, and the same command resumes from there"
        )
        return 130
    return 0


def _run(given: list[str]) -> None:
    """Call the command that the words name."""
    import tyro

    if given[:1] in (["train"], ["sweep"], ["compare"]):
        run_with_fields(given[0], given[1:])
    elif given[0] in COMMANDS:
        tyro.cli(command(given[0]), prog=f"multimix {given[0]}", args=given[1:])
    else:
        raise ValueError(f"no command {given[0]!r}{nearest(given[0], COMMANDS)}; multimix --help names all")


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does, at any time: while tables are written, too, where no training listens for it."""
    own = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:  # a forked worker, which inherits this: whoever sent the signal wants it to end
            os._exit(128 + number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # elsewhere Python allows no handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_with_fields(name: str, words: Sequence[str]) -> None:
    """Call a command that has ``--set``. Other options than its own are fields of the settings: --epochs 3 is --set epochs=3."""
    import tyro

    from .recipes.settings import Settings

    function = command(name)

    @functools.wraps(function)
    def parsed(*arguments: Any, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return arguments, options

    (arguments, options), rest = tyro.cli(parsed, prog=f"multimix {name}", args=words, return_unknown_args=True)
    changes: list[str] = []
    for word in rest:
        if word.startswith("--"):
            changes.append(word[2:] if "=" in word else f"{word[2:]}=")
        elif changes:
            changes[-1] += word if changes[-1].endswith("=") else f",{word}"
        else:
            raise ValueError(f"{word!r} belongs to no option; multimix {name} --help has the options")
    known = [field.name for field in dataclasses.fields(Settings)]
    for i, change in enumerate(changes):
        field = change.partition("=")[0].partition(".")[0].replace("-", "_")
        if change.startswith("method=") and "methods" in options:
            raise ValueError(f"no option 'method' (did you mean --methods?); multimix {name} --help has the options")
        if field not in known:
            meant = (
                f" (here it is --{ELSEWHERE[field]})"
                if field in ELSEWHERE
                else nearest(field, [*(option.rstrip("_") for option in options), *known])
            )
            raise ValueError(f"no option or field {field!r}{meant}; multimix {name} --help has the options, --show the fields")
        changes[i] = f"{change}true" if change.endswith("=") else change  # --compile alone
    function(*arguments, **{**options, "set_": (*options["set_"], *changes)})


def _refused(sentence: str) -> int:
    if rank() == 0:  # the others of a distributed run would say the same
        print(printable(sentence), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
