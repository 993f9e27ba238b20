"""Who looks on while a training runs, and who may ask it to stop."""

from collections.abc import Callable
from typing import Protocol

from .checkpoint import Checkpoint
from .history import Epoch
from .log import Step


class Asked(Protocol):
    """Whether this process was asked to stop."""

    asked: bool


class Watcher(Protocol):
    """What follows a training: writes checkpoints and logs, shows progress, says when to stop. Only the first process has one."""

    def step(self, row: Step, images: int) -> None:
        """One update was done."""

    def epoch(self, history: list[Epoch]) -> None:
        """An epoch was finished."""

    def doing(self, what: str) -> None:
        """Something else than updates takes its time now."""

    def between(self, updates: int, state: Callable[[], Checkpoint], stopping: bool) -> None:
        """Between two updates, when the state is whole; the last time if the run stops here."""
