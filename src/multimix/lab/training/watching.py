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

    def due(self, updates: int) -> bool:
        """Whether the state after these updates should be written."""

    def between(self, updates: int, state: Callable[[], Checkpoint], due: bool) -> None:
        """Between two updates, when the state is whole; ``due`` if it was said to be, and if the run stops here."""
